"""Makes the rules of Landlock for a sandbox: a list of places with what may be done there, and nothing else anywhere.

Landlock only ever allows, and what it allows for a folder holds for all in it. To hide a file in a visible folder, the
folder's other entries are allowed one by one. It has no rule on modes and times: see `attribute_guard`.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from holdfast.workspace.commands.sandbox import Sandbox
from holdfast.workspace.commands.system_places import lies_in

_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_REMOVE_FOLDER, _REMOVE_FILE = 16, 32
_MAKE = (1 << 7) | (1 << 8) | (1 << 9) | (1 << 10) | (1 << 12)  # folders, files, sockets, pipes, links; no devices
_MOVE, _TRUNCATE, _DEVICE_CALLS = 1 << 13, 1 << 14, 1 << 15
_READING = _EXECUTE | _READ | _LIST
_WRITING = _READING | _WRITE | _REMOVE_FOLDER | _REMOVE_FILE | _MAKE | _MOVE | _TRUNCATE
_ON_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _DEVICE_CALLS
_HANDLED = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_CONNECT_AND_BIND = 3
_SCOPED = 3  # no abstract sockets and no signals to processes outside
_NET_FROM, _SCOPED_FROM, _TRUNCATE_FROM = 4, 6, 3

# What of /proc and /dev says nothing about others. The command's own folder in /proc is allowed by its
# process itself, which alone knows its number.
_READABLE = (
    *("cpuinfo", "meminfo", "stat", "loadavg", "uptime", "version", "filesystems", "sys/kernel", "sys/vm", "sys/fs"),
)
_DEVICES = ("null", "zero", "full", "random", "urandom")


def knows_truncate(abi: int) -> bool:
    return abi >= _TRUNCATE_FROM


def knows_ports(abi: int) -> bool:
    return abi >= _NET_FROM


def to_rules(sandbox: Sandbox, *, abi: int, scratch: Path) -> dict[str, Any]:
    """Return the rules as `confinement` applies them; `scratch` is the command's own folder."""
    handled = _HANDLED[min(abi, max(_HANDLED))]
    places = [(str(path), access & handled) for path, access in _list_places(sandbox, scratch)]
    return {
        "handled": handled,
        "handled_net": _CONNECT_AND_BIND if abi >= _NET_FROM and not sandbox.has_network else 0,
        "scoped": _SCOPED if abi >= _SCOPED_FROM else 0,
        "size": 24 if abi >= _SCOPED_FROM else 16 if abi >= _NET_FROM else 8,
        "places": places,
        "ports": [],
    }


def to_environment(sandbox: Sandbox, scratch: Path) -> dict[str, str]:
    """Return the variables by which programs find their own folders and tools where nothing can be mounted."""
    env = {"TMPDIR": str(scratch / "tmp"), "XDG_CACHE_HOME": str(scratch / "tmp/cache")}
    if not sandbox.inherits_env:
        env |= {"HOME": str(scratch / "home"), **sandbox.toolchains}
    env |= sandbox.home_variables
    if sandbox.git is not None:
        env |= {"GIT_DIR": str(sandbox.git.git_dir), "GIT_WORK_TREE": str(sandbox.git.worktree)}
    return env


def _list_places(sandbox: Sandbox, scratch: Path) -> Iterator[tuple[Path, int]]:
    hidden = [path.resolve() for path in sandbox.hidden]
    masked = [path.resolve() for path in sandbox.masked]
    # A mount can protect the worktree's own file .git; here the runner writes it back.
    own = None if sandbox.git is None else sandbox.git.worktree / ".git"
    fixed = [path.resolve() for path in sandbox.read_only if path != own]
    for place in [*(target for _, target in sandbox.system), *(Path("/proc") / name for name in _READABLE)]:
        yield from _allow(place, _READING, hidden)
    for name in _DEVICES:
        yield Path("/dev", name), _READ | _WRITE | _DEVICE_CALLS
    yield scratch, _WRITING
    for path in sandbox.writable:
        place = path.resolve()
        yield from _allow(place, _WRITING, _below(place, [*hidden, *fixed]), _below(place, masked))
    for place in fixed:
        yield from _allow(place, _READING, _below(place, [*hidden, *masked]))
    if sandbox.git is not None:
        yield sandbox.git.git_dir, _READING


def _below(place: Path, others: Iterable[Path]) -> list[Path]:
    """Return what lies below a place; a hidden folder that holds the place does not hide it."""
    return [path for path in others if path != place and lies_in(path, place)]


def _allow(
    place: Path, access: int, excluded: Sequence[Path], unread: Sequence[Path] = ()
) -> Iterator[tuple[Path, int]]:
    """Allow a place without what is excluded in it, and without reading what is `unread`.

    The folders on the way there are a loss: what is new in them cannot be read, and beside what is excluded not be made
    either.
    """
    if place in excluded or place in unread:
        return
    apart, veiled = _below(place, excluded), _below(place, unread)
    if not apart and not veiled:
        if place.exists():
            yield place, access if place.is_dir() else access & _ON_FILES
        return
    yield place, _LIST if apart else access & ~(_READ | _EXECUTE)
    try:
        entries = sorted(os.scandir(place), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if not entry.is_symlink():
            yield from _allow(Path(entry.path), access, apart, veiled)
