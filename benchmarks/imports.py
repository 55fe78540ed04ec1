"""How long a bare interpreter takes to start, and what an import adds to it."""

import statistics
import subprocess
import sys
import time

from benchmarks.measure import Place, Reading

_PROGRAMS = {"bare_s": "pass", "import_s": "import holdfast", "flow_s": "from holdfast import run_flow"}


def start(place: Place) -> Reading:
    times: dict[str, list[float]] = {name: [] for name in _PROGRAMS}
    for number in range(place.steps + 1):
        for name, program in _PROGRAMS.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True)
            if number:  # the first ones warm the cache
                times[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(found) for name, found in times.items()}
    return Reading(medians["import_s"] - medians["bare_s"], extra=medians)
