"""Until when a process holds runs, in a file that others on its machine read: a command that is to end with the lease.

Rule: times are by `elapsed_s`, which only means something in one boot. Whoever finds no file of this boot that names a
run, or only times that are over, must take it for a run that is held elsewhere.
"""

import contextlib
import json
import logging
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from holdfast.runtime.clock import elapsed_s

_OLD_S = 600.0  # until the file of a process that is gone is removed
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_log = logging.getLogger("holdfast.runtime")


class LeaseFile:
    """The file of this process in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.run_ids: set[str] = set()
        self._boot = _read_boot()
        self._path = folder / f"{os.getpid()}-{secrets.token_hex(4)}.json"
        self._has_failed = False
        for path in folder.glob("*.json"):
            if _is_old(path, self._boot):
                path.unlink(missing_ok=True)

    def write(self, until: Mapping[str, float]) -> None:
        """Write until when those runs are held that are to be shown. A full disk raises nothing: commands end then."""
        held = {run_id: until[run_id] for run_id in sorted(self.run_ids) if run_id in until}
        part = self._path.with_suffix(".part")
        try:
            part.write_text(json.dumps({"boot": self._boot, "until": held}))
            part.replace(self._path)
        except OSError as error:
            if not self._has_failed:  # not with every renewal
                _log.warning("Commands that are to end with a lease may end before it: %s", error)
            self._has_failed = True

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


def _is_old(path: Path, boot: str) -> bool:
    try:
        found = json.loads(path.read_text())
        return found["boot"] != boot or max(found["until"].values(), default=0.0) < elapsed_s() - _OLD_S
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False


def _read_boot() -> str:
    """Read it as `processes.read_boot_id` does."""
    return _BOOT.read_text().strip() if _BOOT.exists() else ""
