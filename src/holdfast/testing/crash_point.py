"""Simulated crashes: a run ends in the middle of a step, as if its process was killed; and a store to outlive it."""

import contextlib
from collections.abc import Iterator
from typing import get_args

from holdfast.runtime.checkpoint.sqlite.store import SQLiteCheckpointer
from holdfast.runtime.run_log import Moment, RunLog
from holdfast.runtime.step import Stopped


class SimulatedCrash(Exception):
    """What `run_flow` raises where `crash_at` has ended it; nothing of the run is recorded from there on."""


class CrashPoint:
    """Where a run is to crash, and whether it has."""

    def __init__(self, step: str, moment: Moment) -> None:
        self.step = step
        self.moment = moment
        self.has_crashed = False

    def is_met_by(self, key: str) -> bool:
        """Return true for the step's key: in full, or without the lane it is in."""
        return not self.has_crashed and self.step in (key, key.rpartition("/")[2])


def memory_store() -> SQLiteCheckpointer:
    """Make an empty store in memory, for `run_flow`, `start_flow` and `Runtime` of one process.

    It has all that a file has, owners and rows too, and is gone with its last reference or by `close()`.
    """
    return SQLiteCheckpointer(":memory:")


@contextlib.contextmanager
def crash_at(step: str, moment: Moment = "after") -> Iterator[CrashPoint]:
    """Crash the first run that comes to this step: `run_flow` raises `SimulatedCrash` there, once.

    `"before"` its function is called; `"after"` it was called and before its result is recorded, the worst of moments;
    or as soon as that is `"recorded"`. Then run the flow again, inside the block or after it, as a new process would.
    Raises `AssertionError` at the end of a block in which no run came there.
    """
    if moment not in get_args(Moment):
        raise ValueError(f"A crash is 'before' or 'after' a step, or once it is 'recorded', not {moment!r}.")
    point = CrashPoint(step, moment)
    before = RunLog.probe

    def crash_there(log: RunLog, key: str, reached: Moment) -> None:
        if reached == moment and point.is_met_by(key):
            point.has_crashed = True
            crash = SimulatedCrash(f"{moment} step {key!r}")
            log.stop(crash)  # the other lanes of the run record nothing more either
            raise Stopped(crash)
        if before is not None:
            before(log, key, reached)

    RunLog.probe = crash_there
    try:
        yield point
    finally:
        RunLog.probe = before
    if not point.has_crashed:
        raise AssertionError(f"No run came to step {step!r}, so none has crashed there.")
