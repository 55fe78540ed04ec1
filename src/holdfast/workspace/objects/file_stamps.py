"""What the files of a small worktree look like from outside, so that one nobody has touched is not looked at by git.

A file is taken for unchanged if its times, size, mode and inode are. Times have a granularity, of two seconds at worst:
of a file that is younger than that its content counts too, as git itself does it.
"""

import hashlib
import os
import stat
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

_MOST_ENTRIES = 2000  # beyond that, asking git is as cheap
_MOST_RECENT_BYTES = 4 * 1024**2
_GRANULARITY_NS = 2_000_000_000


@dataclass(frozen=True)
class FileStamps:
    """The files of a worktree at one moment: by path what `lstat` says, and of the recent ones a digest of the content.

    Paths are from the worktree's top.
    """

    top: str
    files: dict[str, tuple[int, ...]]
    recent: dict[str, bytes]

    def find_changed(self, later: "FileStamps") -> set[str]:
        """Find what was changed, made or removed until `later`, which was read just now."""
        changed = {path for path, _facts in self.files.items() ^ later.files.items()}
        return changed | {
            path for path, was in self.recent.items() if path not in changed and self._is_other(path, was)
        }

    def _is_other(self, path: str, was: bytes) -> bool:
        try:
            return _digest(f"{self.top}/{path}") != was
        except OSError:
            return True

    @property
    def has_ignore_files(self) -> bool:
        return any(path.rpartition("/")[2] == ".gitignore" for path in self.files)


def read_file_stamps(worktree: Path, clock: Path, *, without: Container[str]) -> FileStamps | None:
    """Read what the files look like; `None` where they are too many, or cannot all be seen.

    `clock` is a file on the same file system, whose time of change is what its clock says now. Folders in `without`,
    by their name or their path from the worktree's top, are in no tree whatever becomes of them.
    """
    try:
        clock.touch()
        now_ns = clock.stat().st_mtime_ns
        return _read(str(worktree), now_ns, without)
    except OSError:
        return None


def _read(top: str, now_ns: int, without: Container[str]) -> FileStamps | None:
    files: dict[str, tuple[int, ...]] = {}
    recent: dict[str, bytes] = {}
    left, left_bytes = _MOST_ENTRIES, _MOST_RECENT_BYTES
    folders = [top]
    while folders:
        folder = folders.pop()
        with os.scandir(folder) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
        left -= len(entries)
        if left < 0:
            return None
        for entry in entries:
            if entry.name == ".git":
                if folder != top:
                    return None  # a repository inside has state of its own
                continue
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in without and entry.path[len(top) + 1 :] not in without:
                    folders.append(entry.path)
                continue
            found = entry.stat(follow_symlinks=False)
            if not stat.S_ISREG(found.st_mode) and not stat.S_ISLNK(found.st_mode):
                return None
            facts = (found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
            files[entry.path[len(top) + 1 :]] = facts
            if max(found.st_mtime_ns, found.st_ctime_ns) > now_ns - _GRANULARITY_NS:
                left_bytes -= found.st_size
                if left_bytes < 0:
                    return None
                recent[entry.path[len(top) + 1 :]] = _digest(entry.path)
    return FileStamps(top, files, recent)


def _digest(path: str) -> bytes:
    """Return a digest of a file's content, or of where a link leads."""
    if stat.S_ISLNK(os.lstat(path).st_mode):
        return os.fsencode(Path(path).readlink())
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    with os.fdopen(number, "rb") as file:
        return hashlib.blake2b(file.read(_MOST_RECENT_BYTES)).digest()
