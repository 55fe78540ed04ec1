"""Who owns a run on this machine: a file lock, so that the operating system itself knows when an owner dies."""
# ruff: noqa: PTH103, PTH108, PTH110, PTH116 - a run that is claimed and released makes no `Path` for each look

import contextlib
import fcntl
import hashlib
import os
import re
import time
import weakref
from collections.abc import Iterable
from pathlib import Path

from holdfast.errors import RunBusy
from holdfast.runtime.checkpoint import process_owner

_MOST_ENDING_S = 5.0
_ENDING_NAP_S = 0.005
_held: "weakref.WeakSet[RunLock]" = weakref.WeakSet()


class RunLock:
    """One run's lock, held until `release` or the end of the process. Not inherited by forked children."""

    def __init__(self, fd: int, path: str, *, was_left: bool) -> None:
        self._fd = fd
        self._path = path
        self.was_left = was_left
        """Its last holder died: whoever gives a lock up removes the file."""
        _held.add(self)

    def release(self) -> None:
        if self._fd < 0:
            return
        # crash: the file may stay behind without a lock, which the next owner simply takes.
        if _is_current(self._fd, self._path):
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        self.forget()

    def forget(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def lock_run(folder: str | Path, run_id: str, *, force: bool = False) -> RunLock:
    """Take a run's lock at once or raise `RunBusy`; `force` takes it from a live holder, who keeps a dead file."""
    path = _place(folder, run_id)
    if force:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    was_left = os.path.exists(path)
    while True:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:
            os.makedirs(folder, exist_ok=True)
            continue
        if not _lock(fd):
            os.close(fd)
            raise RunBusy(f"Run {run_id!r} is being driven.", run_id=run_id)
        if _is_current(fd, path):
            return RunLock(
                fd, path, was_left=was_left
            )  # left empty: removing a file with content takes the disk a third of a millisecond
        os.close(fd)  # its holder removed the file between our open and our lock


def _lock(fd: int) -> bool:
    """Lock a file at once, or as soon as its holder, which was killed a moment ago, is gone; false if it lives."""
    give_up_at = 0.0
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            give_up_at = give_up_at or time.monotonic() + _MOST_ENDING_S
            if time.monotonic() > give_up_at or not _is_holder_ending(fd):
                return False
            time.sleep(_ENDING_NAP_S)
        else:
            return True


def _is_holder_ending(fd: int) -> bool:
    """Return whether the process that has the lock is on its way out; also if it has let go meanwhile."""
    try:
        holder = _read_holders().get(os.fstat(fd).st_ino)
    except OSError:
        return False
    return holder is None or process_owner.is_ending(holder)


def lock_folder(database: str) -> Path:
    """Return where the locks of a database's runs are: beside the file itself, however it was named."""
    return Path(f"{os.path.realpath(database)}-locks")


def find_held(folder: Path, run_ids: Iterable[str]) -> set[str]:
    """Find those of the runs whose lock a living process has, without touching it; all where the system does not tell.

    By one look at the system's list, however many runs there are.
    """
    numbers: dict[str, int] = {}
    for run_id in run_ids:
        with contextlib.suppress(FileNotFoundError):
            numbers[run_id] = os.stat(_place(folder, run_id)).st_ino
    if not numbers:
        return set()
    try:
        locked = _read_holders()
    except OSError:
        return set(numbers)
    return {run_id for run_id, number in numbers.items() if number in locked}


def _read_holders() -> dict[int, int]:
    """Read from the system's list which process has a lock on a file, by the file's number.

    Without the device, which some file systems call otherwise there.
    """
    lines = Path("/proc/locks").read_text()
    return {int(number): int(pid) for pid, number in re.findall(r" (-?\d+) \S+:(\d+) ", lines)}


def _place(folder: str | Path, run_id: str) -> str:
    return f"{folder}{os.sep}{hashlib.sha256(run_id.encode()).hexdigest()[:32]}"


def _is_current(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _forget_in_child() -> None:
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_forget_in_child)
