"""Files and folders that only their owner may read, whatever the umask: a journal holds prompts, code and answers."""

import contextlib
import os
import stat
from pathlib import Path

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_BESIDE = ("", "-wal", "-shm", "-journal")
# What holdfast keeps in its data folder. A folder that holds anything else is somebody's own as well.
_OWN_NAMES = frozenset({"worktrees", "repositories", "spool", "scratch", "reports", "cleanup.lock"})
_OWN_PREFIXES = ("holdfast.db", "consents.json", "history", ".")


def make_private_folder(folder: Path) -> None:
    """Make a folder for its owner alone; one that is there and holds only what is ours is closed to others."""
    folder = folder.absolute()
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
    elif is_open_to_others(folder) and _is_all_ours(folder):
        _close(folder, 0o700)


def make_private_database(path: str) -> None:
    """Make an empty file for a database, for its owner alone; one that is there is closed to others, if it is ours.

    SQLite gives the files beside it the same mode. What is not there or not ours is left to SQLite.
    """
    if not path or path == ":memory:" or path.startswith("file:"):
        return
    with contextlib.suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        return
    for end in _BESIDE:
        file = Path(f"{path}{end}")
        if is_open_to_others(file):
            _close(file, 0o600)


def is_open_to_others(path: Path) -> bool:
    """Tell whether a file or folder of this user's can be read or changed by anybody else."""
    try:
        found = path.stat()
    except OSError:
        return False
    return found.st_uid == os.geteuid() and bool(stat.S_IMODE(found.st_mode) & _OTHERS)


def _is_all_ours(folder: Path) -> bool:
    try:
        names = [entry.name for entry in folder.iterdir()]
    except OSError:
        return False
    return bool(names) and all(name in _OWN_NAMES or name.startswith(_OWN_PREFIXES) for name in names)


def _close(path: Path, mode: int) -> None:
    with contextlib.suppress(OSError):  # a disk without modes, or one that cannot be written
        path.chmod(mode)
