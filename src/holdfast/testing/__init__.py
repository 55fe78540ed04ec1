"""Tests of flows: a store in memory, time that is skipped, simulated crashes, and replays of recorded journals.

Nothing here is needed to run flows, and nothing is imported before it is used: pytest loads this package for its
fixtures, `holdfast_store` and `holdfast_clock`, in every project that has holdfast installed.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.testing.crash_point import CrashPoint, SimulatedCrash, crash_at, memory_store
    from holdfast.testing.recorded_journal import Replay, replay
    from holdfast.testing.virtual_clock import VirtualClock, skip_time

__all__ = ["CrashPoint", "Replay", "SimulatedCrash", "VirtualClock", "crash_at", "memory_store", "replay", "skip_time"]

_HOMES = {
    "CrashPoint": "crash_point",
    "Replay": "recorded_journal",
    "SimulatedCrash": "crash_point",
    "VirtualClock": "virtual_clock",
    "crash_at": "crash_point",
    "memory_store": "crash_point",
    "replay": "recorded_journal",
    "skip_time": "virtual_clock",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"holdfast.testing.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
