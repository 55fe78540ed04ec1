"""Room in SQLite's write-ahead log, so that a commit need not make the file longer.

Measured on ext4: a commit that makes the log longer takes 400 µs, one into blocks that it has 200 µs. SQLite lets the
log grow to a thousand pages, then begins again at its start; until then every commit of a new process is slow.

Rule: only under the write lock, and only behind the end of the file. Nobody else can be writing there, and where zeros
begin the log ends for SQLite, also after a crash: no frame has their checksum.
"""

import os
from pathlib import Path

_FULL_BYTES = 1001 * 4120 + 32  # a thousand pages with their headers
_SMALL_BYTES = 64 * 1024  # a log below this belongs to somebody who writes little
_SMALL_COMMIT_BYTES = 32 * 1024  # larger ones, of many runs, spread the cost anyway
_MIN_FREE_BYTES = 256 << 20
_ZEROS = bytes(64 * 1024)


class LogRoom:
    def __init__(self, path: str) -> None:
        self.is_enough = False
        self._path = Path(path)
        self._seen_bytes = 0

    def make(self) -> None:
        """Lengthen the log to its full size once it grows by small commits. The caller has the write lock."""
        try:
            size = self._path.stat().st_size
            grown, self._seen_bytes = size - self._seen_bytes, size
            if size >= _FULL_BYTES:
                self.is_enough = True
            elif size > _SMALL_BYTES and 0 < grown < _SMALL_COMMIT_BYTES:
                self.is_enough = True  # also if it fails: it works without
                self._lengthen(size)
        except OSError:
            self.is_enough = True

    def _lengthen(self, size: int) -> None:
        disk = os.statvfs(self._path)
        if disk.f_bavail * disk.f_frsize < _MIN_FREE_BYTES:
            return
        fd = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            # crash: whatever of it is written is zeros behind the end.
            for place in range(size, _FULL_BYTES, len(_ZEROS)):
                os.pwrite(fd, _ZEROS[: _FULL_BYTES - place], place)
            os.fdatasync(fd)
        finally:
            os.close(fd)
