"""Files that must be whole or absent after a kill, and a lock that a killed process gives back."""

import fcntl
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.errors import WorkspaceError
from holdfast.workspace.git import HELD_LOCKS

OWN_FOLDERS = ("worktrees", "repositories", "spool")


def write_whole(path: Path, content: str | bytes, *, mode: int = 0o644) -> None:
    """Replace a file's content; on return it survives a power cut, and nobody ever sees half of it."""
    raw = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    part = path.with_name(f".{path.name[:100]}.{os.getpid()}.part")
    try:
        part.unlink(missing_ok=True)
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        part.chmod(mode)
        part.replace(path)
        sync_folder(path.parent)
    except OSError as failed:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise WorkspaceError(
            f"{path} could not be written: {failed.strerror}.",
            hint="Free some space or give this user the right to write there, then go on; nothing is half-written.",
            path=str(path),
        ) from failed


def read_text_if_there(path: Path) -> str | None:
    """Read a file of git's that may be gone meanwhile, or may not be readable."""
    try:
        return path.read_text(errors="surrogateescape")
    except OSError:
        return None


def stamp_file(path: Path) -> tuple[int, int, int]:
    """Return what tells that a file was replaced or written since."""
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


def sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextmanager
def hold_lock(path: Path, *, timeout_s: float = 120.0) -> Iterator[None]:
    """Be the only one in this block, over all processes. A git started inside keeps the lock until it ends.

    `path` is a file of its own, or a folder that exists.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    number = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _wait_for(number, path, timeout_s)
        token = HELD_LOCKS.set((*HELD_LOCKS.get(), number))
        try:
            yield
        finally:
            HELD_LOCKS.reset(token)
    finally:
        os.close(number)


def _wait_for(number: int, path: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as busy:
            if time.monotonic() > deadline:
                raise WorkspaceError(
                    f"Another process has worked in this workspace for over {timeout_s:.0f} s.",
                    hint="Wait for it, or end it; a git process may have outlived its engine.",
                    path=str(path),
                ) from busy
            time.sleep(0.01)


def is_within(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents


def own_folders(data_dir: Path, folder: Path) -> tuple[Path, ...]:
    """List our folders in a user's folder: all of the data directory, unless it is that folder or around it."""
    if data_dir != folder and is_within(data_dir, folder):
        return (data_dir,)
    return tuple(data_dir / name for name in OWN_FOLDERS)


def find_occupants(top: Path, name: str) -> Iterator[str]:
    """Yield the files in the way of `name`: itself, a file where a folder is needed, or the content of a folder."""
    for parent in (*Path(name).parents[-2::-1], Path(name)):
        if (top / parent).is_symlink() or (top / parent).is_file():
            yield parent.as_posix()
            return
    below = (Path(folder) / file for folder, _, files in os.walk(top / name) for file in files)
    yield from (file.relative_to(top).as_posix() for file in below)


def remove_folder(folder: Path) -> None:
    """Remove a folder and what is in it, folders without write permission too."""

    def open_up(function: Callable[[str], object], name: str, _: object) -> None:
        with suppress(OSError):
            Path(name).parent.chmod(stat.S_IRWXU)
            if not Path(name).is_symlink():
                Path(name).chmod(stat.S_IRWXU)
            if function in (os.scandir, os.open):
                shutil.rmtree(name)
            else:
                function(name)

    shutil.rmtree(folder, onerror=open_up)
    if os.path.lexists(folder):
        raise WorkspaceError(f"The folder {folder} could not be removed entirely.", path=str(folder))
