"""`python -m holdfast.cli.crash_process POINT FILE COMMAND …`: a command that is killed at a moment of its run.

Moments are counted over all steps of the process: before a step's call, after it, and once its result is recorded. At
number POINT the process kills itself as nothing else could end it; with 0 it only counts. FILE says how it went.
"""

import os
import signal
import sys
from pathlib import Path

from holdfast.cli.app import main
from holdfast.runtime.run_log import Moment, RunLog


def play(point: int, file: Path) -> None:
    """Run the command of `sys.argv` and die at `point`."""
    count = 0

    def count_moment(_log: RunLog, key: str, moment: Moment) -> None:
        nonlocal count
        count += 1
        if count == point:
            file.write_text(f"{moment} {key}")
            os.kill(os.getpid(), signal.SIGKILL)

    RunLog.probe = count_moment
    try:
        main()
    finally:
        file.write_text(str(count))


if __name__ == "__main__":
    _, number, name, *rest = sys.argv
    sys.argv = ["holdfast", *rest]
    play(int(number), Path(name))
