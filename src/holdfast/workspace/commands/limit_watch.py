"""Watches what a sandboxed command uses, ends what it started, and puts back what it must not change.

Part of `spool_runner.py`, which has adopted every orphan of the command: whatever it started is below the runner,
however often it forked and whichever session it went into. Imports only the library, as the runner does.
"""

# ruff: noqa: PTH105, PTH106, PTH108, PTH112, PTH114, PTH116, PTH123, PTH208
from __future__ import annotations

import contextlib
import os
import signal
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAUSE_S = 0.2
_END_WAIT_S = 10.0
_MUCH_SHARED_KB = 32 * 1024


class LimitWatch:
    """Adds up what the processes of a command use, against what its confinement has as `watched`."""

    pause_s = _PAUSE_S

    def __init__(self, rules: Mapping[str, Any], folder: str) -> None:
        self._rules = rules
        self._limits: Mapping[str, int] = rules["watched"]
        self._folder = folder
        self._next = time.monotonic() + _PAUSE_S
        self._had_room = _find_room(folder) > self._limits["free_disk"]

    def find_excess(self) -> str:
        """Name the limit that is exceeded now, or nothing. Looks at most every fifth of a second."""
        if time.monotonic() < self._next:
            return ""
        pids = list(find_descendants(os.getpid()))
        self._next = time.monotonic() + _PAUSE_S
        if len(pids) > self._limits["processes"]:
            return "processes"
        if sum(map(_find_memory, pids)) + _find_shared_memory(pids) > self._limits["memory"]:
            return "memory"
        ended = os.times()
        if sum(map(_find_cpu_s, pids)) + ended.children_user + ended.children_system > self._limits["cpu_s"]:
            return "cpu"
        if self._had_room and _find_room(self._folder) < self._limits["free_disk"]:
            return "disk"
        return ""

    def is_urgent(self, limit: str) -> bool:
        """Tell whether waiting politely makes it worse."""
        return limit in ("processes", "memory", "disk")

    def kill_all(self) -> None:
        """Kill all that runs, whole groups first: the kernel kills a group at once, also while it forks."""
        pids = list(find_descendants(os.getpid()))
        own = os.getpgrp()
        for group in {group for pid in pids if (group := _find_group(pid)) not in (0, own)}:
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def end_all(self) -> None:
        """End what the command left behind, and wait until it is gone."""
        deadline = time.monotonic() + _END_WAIT_S
        while time.monotonic() < deadline:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                self.kill_all()
                signal.sigtimedwait({signal.SIGCHLD}, 0.02)

    def restore(self) -> None:
        """Write back files that only a mount could have protected, and remove the command's private folders."""
        for path, content in self._rules["restored"]:
            if _read(path) != content:
                _write(path, content)
        for folder in self._rules["folders"]:
            _remove(folder)


def find_descendants(root: int) -> Iterator[int]:
    """Find all processes below one, itself not among them."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _read_stat(int(name))
            if fields and fields[0] not in "ZX":
                children.setdefault(int(fields[1]), []).append(int(name))
    left = [root]
    while left:
        found = children.get(left.pop(), [])
        yield from found
        left += found


def _read_stat(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def _find_group(pid: int) -> int:
    fields = _read_stat(pid)
    return int(fields[2]) if fields else 0


def _find_memory(pid: int) -> int:
    """Return the memory that is a process's own; what it shares with others would be counted many times."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            resident, shared = file.read().split()[1:3]
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * _PAGE


def _find_shared_memory(pids: list[int]) -> int:
    """Return the memory that processes share and no file on a disk stands behind: counted once, mapped or not.

    Memory behind an open file (`memfd_create`) is that of the file; other memory is found where a process maps it.
    """
    files: dict[int, int] = {}
    mapped = 0
    for pid in pids:
        mapped += _find_mapped(pid)
        for number in _list(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found = os.stat(f"/proc/{pid}/fd/{number}")
                if found.st_dev == _SHARED_DEVICE:
                    files[found.st_ino] = found.st_blocks * 512
    return max(mapped, sum(files.values()))


def _find_mapped(pid: int) -> int:
    """Return a process's part of the shared memory that it maps: half of what two processes map.

    The exact part is slow to find, so it is only looked at where there is much of it.
    """
    with contextlib.suppress(OSError):
        whole = _find_kilobytes(f"/proc/{pid}/status", "RssShmem:")
        if whole < _MUCH_SHARED_KB:
            return 0
        return (_find_kilobytes(f"/proc/{pid}/smaps_rollup", "Pss_Shmem:") or whole) * 1024
    return 0


def _find_kilobytes(path: str, field: str) -> int:
    with open(path, errors="replace") as file:
        return next((int(line.split()[1]) for line in file if line.startswith(field)), 0)


def _list(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _find_shared_device() -> int:
    """Find the number of the device that the kernel keeps files in that are nothing but memory."""
    try:
        file = os.memfd_create("probe")
    except (AttributeError, OSError):
        return -1
    try:
        return os.fstat(file).st_dev
    finally:
        os.close(file)


_SHARED_DEVICE = _find_shared_device()


def _find_cpu_s(pid: int) -> float:
    fields = _read_stat(pid)
    return sum(map(int, fields[11:15])) / _TICKS if fields else 0.0


def _find_room(folder: str) -> int:
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def _read(path: str) -> str | None:
    """Read a small file, or nothing where something else has taken its place."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return None
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), errors="surrogateescape") as file:
            return file.read(65536)
    except OSError:
        return None


def _write(path: str, content: str) -> None:
    """Write a file in a folder that is not ours: never through a link that somebody has put there."""
    part = path + ".holdfast-part"
    _remove(part)
    _remove(path)
    with contextlib.suppress(OSError):
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644), "w") as file:
            file.write(content)
        os.replace(part, path)


def _remove(path: str) -> None:
    """Remove a file or folder whatever is in it; links are removed, never followed."""
    if os.path.islink(path) or not os.path.isdir(path):
        with contextlib.suppress(OSError):
            os.unlink(path)
        return
    for folder, names, files in os.walk(path, topdown=False):
        for name in files:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, name))  # noqa: PTH118
        for name in names:
            place = os.path.join(folder, name)  # noqa: PTH118
            with contextlib.suppress(OSError):
                os.unlink(place) if os.path.islink(place) else os.rmdir(place)
    with contextlib.suppress(OSError):
        os.rmdir(path)
