"""Watches the lease of the run that a command works for, and says when the command must end: another machine may begin
it again from then on.

Part of `spool_runner.py`, and so without anything but the library. The processes that hold runs here say until when,
each in a file of its own (`runtime/checkpoint/lease_file.py`): one that is killed, stopped or cut off says nothing new,
and one that is started again on this machine goes on for it.
"""

# Without pathlib it starts in half the time.
# ruff: noqa: PTH118, PTH123, PTH208
from __future__ import annotations

import json
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LOOK_S = 0.5


class LeaseWatch:
    """Looks until when a run is held on this machine."""

    def __init__(self, lease: dict[str, Any], grace_s: float) -> None:
        self._folder = lease["folder"]
        self._run_id = lease["run_id"]
        self._grace_s = grace_s
        self._boot = _read_boot()
        self.pause_s = _LOOK_S
        """Until it is to look again."""

    def has_ended(self) -> bool:
        """Tell whether the command must begin to end, so that nothing of it is left when the lease is over."""
        left_s = self._find_until() - self._grace_s - _elapsed_s()
        self.pause_s = max(0.01, min(_LOOK_S, left_s))
        return left_s <= 0

    def _find_until(self) -> float:
        """Return the latest time that a process of this boot has said, 0 if none has."""
        return max((self._read(name) for name in _list(self._folder)), default=0.0)

    def _read(self, name: str) -> float:
        try:
            with open(os.path.join(self._folder, name)) as file:
                found = json.load(file)
            return float(found["until"].get(self._run_id, 0.0)) if found["boot"] == self._boot else 0.0
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            return 0.0


def _list(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.endswith(".json")]
    except OSError:
        return []


def _read_boot() -> str:
    """Keep this the same as `lease_file`."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def _elapsed_s() -> float:
    """Keep this the same as `clock.elapsed_s`: it goes on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
