"""Changes modes, owners and times of files for a command under Landlock, which has no rule on them: a script's helper.

The command's filter of system calls stops at those calls and asks the runner. It opens what the call names, looks where
that lies, and makes the change itself on the very file that it has looked at; the command's own call is never let
through, since its words could be exchanged after the look. Imports only the library, as the runner does.
"""

# ruff: noqa: PIE800, PTH101, PTH115
from __future__ import annotations

import _socket
import _thread
import array
import contextlib
import ctypes
import errno
import fcntl
import os
import stat
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
_NOTICE = struct.Struct("<QIIiIQ6Q")
_ANSWER = struct.Struct("<QqiI")
_WORKING_FOLDER = -100
_NO_FOLLOW, _EMPTY_PATH = 0x100, 0x1000
_WRITE = 2
_LONGEST_PATH = 4096
_OWN_FILES = b"/proc/self/fd/"
_UNCHANGED = 0xFFFFFFFF
_TIMES = struct.Struct("<4q")
_libc = ctypes.CDLL(None, use_errno=True)

# Which argument is a folder or a file that is open, which one a path, which one holds flags.
_OPEN = {"fchmod": 0, "fchown": 0, "fchmodat": 0, "fchmodat2": 0, "fchownat": 0, "futimesat": 0, "utimensat": 0}
_PATH = {
    **{"chmod": 0, "chown": 0, "lchown": 0, "utime": 0, "utimes": 0},
    **{"fchmodat": 1, "fchmodat2": 1, "fchownat": 1, "futimesat": 1, "utimensat": 1},
}
_FLAGS = {"fchmodat2": 3, "fchownat": 4, "utimensat": 3}


class AttributeGuard:
    """Answers the calls of one command: `calls` names them by their number, `places` are the rules of Landlock."""

    def __init__(self, calls: Mapping[str, str], places: Sequence[Sequence[Any]]) -> None:
        self._calls = {int(number): name for number, name in calls.items()}
        self._places = [path for path, access in places if access & _WRITE]
        self._ours, self._theirs = _socket.socketpair()

    def hand_over(self, listener: int) -> None:
        """Give the command's listener to the runner; called in the process that is about to become the command."""
        listeners = array.array("i", [listener])
        self._theirs.sendmsg([b"1"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, listeners)])
        os.close(listener)

    def start(self) -> None:
        """Answer from now on, beside the runner's own work. If we end, the kernel refuses the calls."""
        self._theirs.close()
        _thread.start_new_thread(self._serve, ())

    def _serve(self) -> None:
        listener = self._receive()
        if listener is None:
            return
        try:
            while (notice := _wait_for_notice(listener)) is not None:
                self._answer(listener, *_NOTICE.unpack(notice))
        finally:
            os.close(listener)  # who still waits for an answer, or asks later, is refused

    def _receive(self) -> int | None:
        """Wait for the listener, or for the end of a command that has none."""
        _, found, _, _ = self._ours.recvmsg(1, _socket.CMSG_LEN(4))
        self._ours.close()
        listeners = array.array("i", b"".join(data[:4] for _, _, data in found))
        return listeners[0] if listeners else None

    def _answer(self, listener: int, notice: int, pid: int, _flags: int, number: int, *rest: int) -> None:
        try:
            with _AttributeCall(self._calls[number], pid, rest[2:]) as call:
                fcntl.ioctl(listener, _IS_VALID, struct.pack("<Q", notice))  # the process is still the one that asked
                self._change(call)
            code = 0
        except OSError as failed:
            code = failed.errno or errno.EPERM
        with contextlib.suppress(OSError):
            fcntl.ioctl(listener, _SEND, _ANSWER.pack(notice, 0, -code, 0))

    def _change(self, call: _AttributeCall) -> None:
        found = os.fstat(call.file)
        is_device = stat.S_ISCHR(found.st_mode) or stat.S_ISBLK(found.st_mode)
        # We may have rights that the command has given up, so what only those would allow is refused here.
        if is_device or found.st_uid != os.geteuid() or not self._is_inside(call.file):
            raise PermissionError(errno.EPERM, "outside")
        if call.name.endswith(("chmod", "chmodat", "chmodat2")):
            os.chmod(f"/proc/self/fd/{call.file}", call.number & 0o7777)
        elif "chown" in call.name:
            if call.number not in (_UNCHANGED, found.st_uid) or call.second_number not in (_UNCHANGED, found.st_gid):
                raise PermissionError(errno.EPERM, "another owner")
        elif _libc.utimensat(call.file, b"", call.times, _EMPTY_PATH) < 0:
            raise OSError(ctypes.get_errno(), "utimensat")

    def _is_inside(self, file: int) -> bool:
        path = os.readlink(f"/proc/self/fd/{file}")
        return any(path == place or path.startswith(f"{place}/") for place in self._places)


def _wait_for_notice(listener: int) -> bytearray | None:
    while True:
        notice = bytearray(_NOTICE.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, notice)
        except OSError as failed:
            if failed.errno in (errno.ENOENT, errno.EINTR):  # the caller was ended while it waited
                continue
            return None
        return notice


class _AttributeCall:
    """A call with its words, read once from the memory of the process that made it, and the file that it names."""

    def __init__(self, name: str, pid: int, words: Sequence[int]) -> None:
        self.name = name
        self._pid = pid
        self._words = words
        self.file = -1

    def __enter__(self) -> _AttributeCall:
        flags = self._words[_FLAGS[self.name]] if self.name in _FLAGS else 0
        path = self._read_path()
        follows = not flags & _NO_FOLLOW and self.name != "lchown"
        base = self._open_base() if path is None or not path.startswith(b"/") else -1
        try:
            if path is None or (not path and flags & _EMPTY_PATH):
                self.file, base = base, -1
            else:
                mode = os.O_PATH | (0 if follows else os.O_NOFOLLOW)
                self.file = os.open(path, mode, dir_fd=base if base >= 0 else None)
        finally:
            if base >= 0:
                os.close(base)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.file)

    @property
    def number(self) -> int:
        """The first of the numbers that a mode or an owner is."""
        return self._words[self._after_file] & 0xFFFFFFFF

    @property
    def second_number(self) -> int:
        return self._words[self._after_file + 1] & 0xFFFFFFFF

    @property
    def times(self) -> bytes | None:
        """The times of access and of change as the kernel takes them; `None` for now."""
        place = self._words[self._after_file]
        if not place:
            return None
        if self.name == "utime":
            accessed, changed = struct.unpack("<2q", self._read(place, 16))
            return _TIMES.pack(accessed, 0, changed, 0)
        if self.name == "utimensat":
            return self._read(place, _TIMES.size)
        accessed, accessed_us, changed, changed_us = _TIMES.unpack(self._read(place, _TIMES.size))
        return _TIMES.pack(accessed, accessed_us * 1000, changed, changed_us * 1000)

    @property
    def _after_file(self) -> int:
        return _PATH.get(self.name, _OPEN.get(self.name, 0)) + 1

    def _open_base(self) -> int:
        number = _to_signed(self._words[_OPEN[self.name]]) if self.name in _OPEN else _WORKING_FOLDER
        what = "cwd" if number == _WORKING_FOLDER else f"fd/{number}"
        try:
            return os.open(f"/proc/{self._pid}/{what}", os.O_PATH)
        except FileNotFoundError:
            raise OSError(errno.EBADF, "not open") from None

    def _read_path(self) -> bytes | None:
        """Read the path; `None` where the call names an open file instead."""
        if self.name not in _PATH:
            return None
        place = self._words[_PATH[self.name]]
        if not place and self.name in ("utimensat", "futimesat"):
            return None
        text, end, _ = self._read_some(place, _LONGEST_PATH).partition(b"\0")
        if not end:
            raise OSError(errno.ENAMETOOLONG, "path")
        if text.startswith(_OWN_FILES):  # so libraries name an open file; for us it would be one of ours
            text = b"/proc/%d/fd/" % self._pid + text.removeprefix(_OWN_FILES)
        if not text and not (self.name in _FLAGS and self._words[_FLAGS[self.name]] & _EMPTY_PATH):
            raise OSError(errno.ENOENT, "path")
        return text

    def _read(self, place: int, size: int) -> bytes:
        found = self._read_some(place, size)
        if len(found) < size:
            raise OSError(errno.EFAULT, "memory")
        return found

    def _read_some(self, place: int, size: int) -> bytes:
        memory = os.open(f"/proc/{self._pid}/mem", os.O_RDONLY)
        try:
            return os.pread(memory, size, place)
        except (OSError, OverflowError):
            raise OSError(errno.EFAULT, "memory") from None
        finally:
            os.close(memory)


def _to_signed(word: int) -> int:
    low = word & 0xFFFFFFFF
    return low - (1 << 32) if low & 0x80000000 else low
