"""What a new process pays before and while it goes on with a run: imports, and the replay of a long one.

All by CPU time, because other processes on the machine would be measured with it otherwise.
"""

import json
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

from benchmarks.measure import Place, Reading

_REPLAY = """
import json, sys, time
started = time.process_time()
from pathlib import Path
from benchmarks.measure import Place
from benchmarks.ours_flow import replay
replay(Place(Path(sys.argv[1]), "", int(sys.argv[2])))
print(json.dumps({"whole_s": time.process_time() - started}))
"""
_FIRST = """
import asyncio, json, sys, time
started = time.process_time()
import holdfast
imported = time.process_time()
async def flow(ctx):
    return await ctx.step("one", lambda: 1)
async def main():
    times = []
    for number in range(4):
        began = time.process_time()
        await holdfast.run_flow(flow, store=f"{sys.argv[1]}/first-{number}.db")
        times.append(time.process_time() - began)
    return times
first, *later = asyncio.run(main())
print(json.dumps({"import_s": imported - started, "first_s": first - sorted(later)[1]}))
"""


def _ask(program: str, place: Place) -> dict[str, float]:
    command = [sys.executable, "-c", program, str(place.folder), str(place.steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def replay(place: Place) -> Reading:
    """The replay of `ours_flow.fill_replay` in a new process, beside one bulk read of the same rows and the imports."""
    started = time.process_time()
    with closing(sqlite3.connect(place.db)) as connection:
        rows = connection.execute("SELECT * FROM events ORDER BY run_id, seq").fetchall()
    bulk_s = time.process_time() - started
    assert len(rows) >= place.steps
    first = first_run(place).extra
    whole_s = _ask(_REPLAY, place)["whole_s"]
    return Reading(whole_s, extra={"bulk_s": bulk_s, "imports_s": first["import_s"] + first["first_s"]})


def first_run(place: Place) -> Reading:
    """What the first `run_flow` of a process costs more than a later one, which is importing."""
    found = _ask(_FIRST, place)
    return Reading(found["first_s"], extra=found)
