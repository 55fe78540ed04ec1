"""Says whether a recorded process is still that process, and ends all that belong to one session.

A pid alone proves nothing: it is used again after a while, and after a reboot at once. A process is its pid, the
moment it started and the boot that it started in.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
TAG = "HOLDFAST_SPOOL"


@dataclass(frozen=True)
class ProcessIdentity:
    pid: int
    started: str
    boot_id: str


def identify(pid: int) -> ProcessIdentity | None:
    """Identify a process, or `None` if it has ended (a zombie has)."""
    started = _find_start(pid)
    return ProcessIdentity(pid, started, read_boot_id()) if started else None


def is_alive(identity: ProcessIdentity) -> bool:
    return identify(identity.pid) == identity


def read_boot_id() -> str:
    path = _PROC / "sys/kernel/random/boot_id"
    return path.read_text().strip() if path.exists() else ""


def age_s(identity: ProcessIdentity) -> float | None:
    """Return the age of a process, by a clock that nobody can set; `None` if it is from before the last boot."""
    if identity.boot_id != read_boot_id() or not identity.started.isdigit():
        return None
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(identity.started) / _TICKS


def _find_start(pid: int) -> str | None:
    if not _PROC.joinpath("self/stat").exists():
        listed = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, check=False, text=True)
        return listed.stdout.strip() or None
    fields = _read_stat(pid)
    return fields[19] if fields and fields[0] not in "ZX" else None


def _read_stat(pid: int) -> list[str]:
    """Read the fields after the command's name (it may hold spaces and brackets): state, parent, group, session …"""
    try:
        return (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def find_members(leader: ProcessIdentity, tag: str) -> list[int]:
    """Find the leader and the living processes of its session, and those that left it but still carry the tag."""
    if not _PROC.joinpath("self/stat").exists():
        return [leader.pid] if is_alive(leader) else []
    if leader.boot_id != read_boot_id():
        return []
    now = identify(leader.pid)
    is_reused = now is not None and now != leader
    return [pid for pid in _pids() if _belongs(pid, None if is_reused else leader.pid, tag)]


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())


def _belongs(pid: int, session: int | None, tag: str) -> bool:
    fields = _read_stat(pid)
    if not fields or fields[0] in "ZX":
        return False
    if session in (pid, int(fields[3])):  # just forked, a leader is still in the session of its runner
        return True
    try:
        return f"{TAG}={tag}".encode() in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def send_signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue
