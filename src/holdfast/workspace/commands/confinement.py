"""Puts a command's own process under the kernel's rules before it becomes the command: a script's helper.

Loaded by `spool_runner.py` in the process that is about to run the command, so it imports only the library and as
little of it as it can. What the rules are was decided by the engine, see `sandbox.py`; here they are applied, and if
one cannot be applied the command does not run.
"""

# ruff: noqa: PTH103, PTH115
from __future__ import annotations

import ctypes
import os
import resource
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FILTER_FD = 9
"""Where bubblewrap finds the filter of system calls."""

_SET_NO_NEW_PRIVS, _SET_SECCOMP, _SET_SUBREAPER, _SET_DEATH_SIGNAL = 38, 22, 36, 1
_AMBIENT, _CLEAR_ALL = 47, 4
_FILTER_MODE = 2
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_NEW_LISTENER = 1 << 3
_CAPABILITY_VERSION = 0x20080522
_SIGKILL = 9
_OPENAT2, _CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 437, 444, 445, 446
_BENEATH, _PORT = 1, 2
_CONNECT = 2
_READING = 4 | 8  # files, and lists of them
_NO_SYMLINKS = 0x04
_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Become the parent of every process below us whose own parent ends, so that none of them can be lost."""
    if sys.platform == "linux":
        _control(_SET_SUBREAPER, 1)


def end_with_parent() -> None:
    """Be killed when the process that started us ends."""
    _control(_SET_DEATH_SIGNAL, _SIGKILL)


def enter(rules: dict[str, Any], hand_over: Callable[[int], None] | None = None) -> None:
    """Put this process under the rules. Raises `OSError` if the kernel does not take one.

    `hand_over` takes the listener to whom the guarded calls go; without one they are refused.
    """
    set_limits(rules["limits"])
    be_ended_first()
    program = bytes.fromhex(rules["filter"])
    landlock = rules.get("landlock")
    if landlock is None:
        _hand_over(program)
        return
    if not rules.get("inherits_env"):
        os.environ.clear()
    os.environ.update(rules.get("env", {}))
    end_with_parent()
    for folder in rules["folders"]:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    drop_capabilities()
    _control(_SET_NO_NEW_PRIVS, 1)
    restrict_files(landlock)
    _load_filter(program, hand_over)


def be_ended_first() -> None:
    """Let the kernel end this process and what it starts before all others, where the machine's memory runs out."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
            file.write("1000")
    except OSError:
        return  # no rule rests on it


def set_limits(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        number = getattr(resource, name)
        _, hard = resource.getrlimit(number)
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        # At the hard limit of time the kernel kills without a word; a moment before it sends a signal that says why.
        resource.setrlimit(number, (most, most + 10 if name == "RLIMIT_CPU" and hard < 0 else most))


def drop_capabilities() -> None:
    """Give up every capability. Together with "no new privileges" that holds for good, also for root."""
    _control(_AMBIENT, _CLEAR_ALL)
    header = ctypes.create_string_buffer(struct.pack("<Ii", _CAPABILITY_VERSION, 0))
    _check(_libc.capset(header, ctypes.create_string_buffer(struct.pack("<6I", *[0] * 6))), "capset")


def restrict_files(landlock: dict[str, Any]) -> None:
    """Allow the listed places and nothing else, for this process and all it will start."""
    attributes = struct.pack("<QQQ", landlock["handled"], landlock["handled_net"], landlock["scoped"])
    attributes = attributes[: landlock["size"]]
    ruleset = _call(_CREATE_RULESET, ctypes.create_string_buffer(attributes), len(attributes), 0)
    for path, access in landlock["places"]:
        place = _open_place(path)
        if place is None:
            continue
        rule = ctypes.create_string_buffer(struct.pack("<Qi", access, place))
        _call(_ADD_RULE, ruleset, _BENEATH, rule, 0)
        os.close(place)
    _allow_own_process(ruleset, landlock["handled"])
    for port in landlock.get("ports", ()):
        _call(_ADD_RULE, ruleset, _PORT, ctypes.create_string_buffer(struct.pack("<QQ", _CONNECT, port)), 0)
    _call(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _allow_own_process(ruleset: int, handled: int) -> None:
    """Allow the command to read what /proc says of its own process; JavaScriptCore aborts where it cannot.

    Not of its children, whose numbers nobody knows yet. The rule is tied to the folder as the kernel has it in memory,
    so the folder stays open for as long as the command runs.
    """
    try:
        own = os.open(f"/proc/{os.readlink('/proc/self')}", os.O_PATH)
    except OSError:
        return
    rule = ctypes.create_string_buffer(struct.pack("<Qi", _READING & handled, own))
    _call(_ADD_RULE, ruleset, _BENEATH, rule, 0)
    os.set_inheritable(own, True)


def find_abi() -> int:
    """Return the version of Landlock that the kernel speaks; 0 for none."""
    found = _libc.syscall(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint(1))
    return max(0, int(found))


def _open_place(path: str) -> int | None:
    """Open a place without following any link: what was a folder when the rules were made may be a link by now."""
    how = ctypes.create_string_buffer(struct.pack("<QQQ", os.O_PATH | os.O_CLOEXEC, 0, _NO_SYMLINKS))
    number = _libc.syscall(
        ctypes.c_long(_OPENAT2), ctypes.c_int(-100), ctypes.c_char_p(os.fsencode(path)), how, ctypes.c_size_t(24)
    )
    return None if number < 0 else int(number)


def _hand_over(program: bytes) -> None:
    source = os.memfd_create("filter")
    os.write(source, program)
    os.lseek(source, 0, os.SEEK_SET)
    os.dup2(source, FILTER_FD)
    os.set_inheritable(FILTER_FD, True)  # dup2 leaves it as it is where both are the same


def _load_filter(program: bytes, hand_over: Callable[[int], None] | None) -> None:
    steps = ctypes.create_string_buffer(program, len(program))
    head = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(program) // 8, ctypes.addressof(steps)))
    if hand_over is not None:
        listener = _libc.syscall(
            ctypes.c_long(_SECCOMP[os.uname().machine]), ctypes.c_uint(1), ctypes.c_uint(_NEW_LISTENER), head
        )
        if listener >= 0:
            hand_over(listener)
            return
        # Somebody around us listens already (EBUSY), and there can be one only: the kernel refuses those calls then.
    _check(_libc.prctl(_SET_SECCOMP, _FILTER_MODE, head, 0, 0), "seccomp")


def _control(option: int, value: int) -> None:
    _check(_libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)), "prctl")


def _call(number: int, *arguments: Any) -> int:
    words = [word if not isinstance(word, int) else ctypes.c_long(word) for word in arguments]
    return _check(_libc.syscall(ctypes.c_long(number), *words), "landlock")


def _check(answer: int, what: str) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return answer
