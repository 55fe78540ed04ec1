"""Gives the space that deleted rows took in a SQLite file back to the disk.

Rule: whoever writes meanwhile waits, and gives up after 30 s. So this ends itself before that, with the file as it was.
"""

import contextlib
import os
import shutil
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

LIMIT_S = 20.0
_LOCK_WAIT_S = 5.0
_WORTH_BYTES = 64 * 1024
_STEPS_BETWEEN_LOOKS = 10_000


@dataclass(frozen=True)
class Compaction:
    """The file's size, with its log, before and after; `reason` says why it could not be made smaller."""

    before_bytes: int
    after_bytes: int
    reason: str = ""


def compact(path: Path, *, limit_s: float = LIMIT_S) -> Compaction | None:
    """Make the file as small as what it holds. `None` if there is nothing to gain; it may be used meanwhile."""
    before = _size(path)
    connection = sqlite3.connect(path, isolation_level=None, timeout=_LOCK_WAIT_S)
    try:
        free = _pragma(connection, "freelist_count") * _pragma(connection, "page_size")
        if free < _WORTH_BYTES:
            return None
        if reason := _find_lack_of_room(path, before):
            return Compaction(before, before, reason)
        reason = _vacuum(connection, limit_s)
        return Compaction(before, _size(path), reason)
    finally:
        connection.close()


def _vacuum(connection: sqlite3.Connection, limit_s: float) -> str:
    deadline = time.monotonic() + _LOCK_WAIT_S + limit_s
    connection.set_progress_handler(lambda: int(time.monotonic() > deadline), _STEPS_BETWEEN_LOOKS)
    try:
        # crash: until its commit the file is as it was; SQLite does it in the log like any other change.
        connection.execute("VACUUM")
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_INTERRUPT:
            return f"it would have taken longer than {limit_s:g} s, and others wait; SQLite uses the free space again"
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return "another process was writing to it; the next clean-up tries again"
        return f"SQLite could not: {error}"
    finally:
        connection.set_progress_handler(None, 0)
    with contextlib.suppress(sqlite3.Error):
        busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            return "another process is reading it; it gets smaller when that has ended"
    return ""


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _size(path: Path) -> int:
    total = 0
    for file in (path, Path(f"{path}-wal")):
        with contextlib.suppress(OSError):
            total += file.stat().st_size
    return total


def _find_lack_of_room(path: Path, needed: int) -> str:
    """Find which disk has no room: a copy is made beside the log, and one in SQLite's temporary folder."""
    named = (os.environ.get("SQLITE_TMPDIR"), os.environ.get("TMPDIR"), "/var/tmp", "/usr/tmp", "/tmp")  # noqa: S108
    passing = next((Path(name) for name in named if name and os.access(name, os.W_OK)), path.parent)
    for folder, times in ((path.parent, 2), (passing, 1)):
        if shutil.disk_usage(folder).free < times * needed:
            return f"there is too little room in {folder} for the copy that it takes"
    return ""
