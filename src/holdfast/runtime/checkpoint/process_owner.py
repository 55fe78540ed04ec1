"""Who owns a run in a store without file locks: a process that its own machine can recognise, and know to be dead.

Rule: "dead" is only said of what can be seen. An owner elsewhere, or an unreadable one, lives until its lease ends.
"""

import os
import secrets
import signal
import socket
import uuid
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from holdfast.runtime.jsondata import from_json, to_json

_EXITING = 0x4  # of the kernel's flags
_KILLED = 1 << (signal.SIGKILL - 1)  # waits to be delivered; none of its threads runs a line before that
_live_tokens: set[str] = set()


@dataclass(frozen=True)
class Owner:
    """One claim of one process; `token` tells the claims of a process apart."""

    host: str
    boot: str
    namespace: str
    pid: int
    started: str
    token: str

    def to_text(self) -> str:
        return to_json(asdict(self))[0].decode()

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def new_owner() -> Owner:
    """Make an owner in this process, alive until `forget` or the end of the process."""
    token = secrets.token_hex(8)
    _live_tokens.add(token)
    host, boot, namespace = _machine()
    return Owner(host, boot, namespace, os.getpid(), _started(os.getpid()), token)


def forget(token: str) -> None:
    _live_tokens.discard(token)


def from_text(text: str) -> Owner | None:
    """Parse an owner as written by `to_text`; `None` if another version wrote something else."""
    try:
        return Owner(**from_json(text))
    except (TypeError, ValueError):
        return None


def machine_mark() -> str:
    """Return a part of the text of every owner on this machine, and of none elsewhere."""
    host, boot, namespace = _machine()
    return to_json({"host": host, "boot": boot, "namespace": namespace})[0].decode()[1:-1]


def is_dead_text(text: str) -> bool:
    owner = from_text(text)
    return owner is not None and is_dead(owner)


def is_dead(owner: Owner) -> bool:
    """Return true if this machine can see that the owner's process, or its claim in this process, is gone."""
    if (owner.host, owner.boot, owner.namespace) != _machine():
        return False
    if owner.pid == os.getpid() and owner.started == _started(owner.pid):
        return owner.token not in _live_tokens
    return not _is_alive(owner.pid, owner.started)


def _is_alive(pid: int, started: str) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it lives, as another user; whether it is the same process only its start tells
    now_started = _started(pid)
    return not (now_started == "dead" or (started and now_started and now_started != started))


@cache
def _machine() -> tuple[str, str, str]:
    """Name host, boot and pid namespace: equal only where process numbers mean the same processes."""
    if name := os.environ.get("HOLDFAST_TEST_MACHINE"):  # several machines on one, for tests
        return name, name, name
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        boot, namespace = str(uuid.getnode()), ""  # no /proc: the network card stands for the machine
    return socket.gethostname(), boot, namespace


def _started(pid: int) -> str:
    """Read when a process started, in ticks since boot; empty if unknown, `dead` if it runs no line any more."""
    fields = _read_stat(pid)
    if not fields:
        return ""
    return "dead" if _is_ending(fields) else fields[19]


def is_ending(pid: int) -> bool:
    """Return true if a process has been killed and runs no line any more, though the system has not cleared it yet."""
    fields = _read_stat(pid)
    return bool(fields) and _is_ending(fields)


def _is_ending(fields: list[str]) -> bool:
    is_gone, is_exiting = fields[0] in "ZX", int(fields[6]) & _EXITING
    return is_gone or bool(is_exiting) or bool(int(fields[28]) & _KILLED)


def _read_stat(pid: int) -> list[str]:
    """Read the fields of a process behind its name; nothing if they cannot be read."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return stat.rpartition(")")[2].split()  # the name before may hold anything, even brackets
