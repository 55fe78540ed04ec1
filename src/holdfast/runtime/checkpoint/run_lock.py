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
from holdfast.runtime.checkpoint.base import OwnerEnding

_MOST_ENDING_S = 5.0
_MOST_UNLISTED_S = 0.02  # the system names a holder no more from its end on, nor ever one in another pid namespace
_NAP_S = 0.005
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

    def give_back(self) -> None:
        """Undo the claim: a lock whose last holder died stays one of which the next holder sees that."""
        if self.was_left:
            self.forget()
        else:
            self.release()

    def forget(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class Patience:
    """How long a batch of claims waits for holders that were killed a moment ago: for all of them together."""

    def __init__(self, wait_s: float = _MOST_ENDING_S) -> None:
        self.wait_s = wait_s
        self._since: float | None = None

    def wait(self, *, is_listed: bool) -> bool:
        """Wait a moment; false, at once, if the holder has been waited for long enough."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if now >= self._since + min(self.wait_s, _MOST_ENDING_S if is_listed else _MOST_UNLISTED_S):
            return False
        time.sleep(_NAP_S)
        return True


def lock_run(folder: str | Path, run_id: str, *, force: bool = False, patience: Patience | None = None) -> RunLock:
    """Take a run's lock, or raise `RunBusy`; a holder that was killed a moment ago is waited for.

    Raises `OwnerEnding` for such a holder if there is no time to wait. `force` takes the lock from a live holder, who
    keeps a dead file.
    """
    path = _place(folder, run_id)
    if force:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    patience = patience or Patience()
    while True:
        was_left = os.path.exists(path)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:
            os.makedirs(folder, exist_ok=True)
            continue
        try:
            _lock(fd, run_id, patience)
        except RunBusy:
            os.close(fd)
            raise
        if _is_current(fd, path):
            return RunLock(
                fd, path, was_left=was_left
            )  # left empty: removing a file with content takes the disk a third of a millisecond
        os.close(fd)  # its holder removed the file between our open and our lock


def _lock(fd: int, run_id: str, patience: Patience) -> None:
    is_first_look = True
    while not _try_lock(fd):
        holder = _find_holder(fd)
        if holder is not None and not process_owner.is_ending(holder):
            raise RunBusy(f"Run {run_id!r} is being driven.", run_id=run_id)
        has_let_go = holder is None and is_first_look  # between our try and our look, most likely
        is_first_look = False
        if not has_let_go and not patience.wait(is_listed=holder is not None):
            error = RunBusy if patience.wait_s else OwnerEnding
            raise error(f"Run {run_id!r} is being driven.", run_id=run_id)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _find_holder(fd: int) -> int | None:
    """Return the process that has the lock; `None` if the system does not list it, this one where it lists nothing."""
    try:
        return _read_holders().get(os.fstat(fd).st_ino)
    except OSError:
        return os.getpid()  # as good as any that lives


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
