"""One measurement in a process of its own: `python -m benchmarks.job module.function folder steps [url]`."""

import importlib
import json
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.measure import Place, anchor


def main() -> None:
    name, folder, steps, url = (*sys.argv[1:], "")[:4]
    module, _, function = name.partition(".")
    work = getattr(importlib.import_module(f"benchmarks.{module}"), function)
    place = Place(Path(folder), url, int(steps))
    before = anchor(place.folder)
    found = work(place)
    print(json.dumps({**asdict(found), "steps": place.steps, "anchors": [before, anchor(place.folder)]}))


if __name__ == "__main__":
    main()
