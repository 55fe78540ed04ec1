"""Runs one command for a spool folder, on its own: started as a script, outlives the engine, imports only the library.

    python -I -S spool_runner.py FOLDER      reads  FOLDER/command.json (and FOLDER/in)
                                             writes FOLDER/pid.json, FOLDER/out, FOLDER/rc.json; or instead of the
                                             last FOLDER/lease_end.json, if it was ended with the lease of its run

The command is started at most once per folder: under a lock, only if there is no pid.json, and not before pid.json is
on the disk. Started twice, the second runner ends without doing anything.
"""

# Without pathlib and subprocess it starts in half the time.
# ruff: noqa: PTH100, PTH104, PTH110, PTH120, PTH116, PTH123, S605, S606
from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

TERM_GRACE_S = 3.0
LEASE_GRACE_S = 0.5
"""Before the end of a lease: another machine may begin the same command from then on."""
LEASE_END = "lease_end.json"


def main(folder: str) -> int:
    os.chdir(folder)
    lock = os.open("runner.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    if os.path.exists("pid.json"):
        return 0
    ready, tell = os.pipe()
    if os.fork():
        os.close(tell)
        return 0 if os.read(ready, 1) else 1
    os.setsid()
    with open("command.json") as file:
        command = json.load(file)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    if command.get("confinement"):
        confinement = load("confinement")
        confinement.adopt_orphans()
        if command["confinement"].get("hosts"):
            load("network_proxy").start_proxy(command["confinement"], confinement.end_with_parent)
    child, go = start(command)
    write_whole("pid.json", {"runner": identify(os.getpid()), "leader": identify(child), "started_at": time.time()})
    # crash: before this the command has not run and never will; from here on it has, whatever becomes of us.
    os.write(go, b"1")
    os.write(tell, b"1")
    for number in (ready, tell, go):
        os.close(number)
    supervise(child, command)
    return 0


def load(name: str) -> Any:
    """Load a module that lies beside this script; without it a script sees the library only."""
    here = os.path.dirname(os.path.abspath(__file__))
    if here not in sys.path:
        sys.path.append(here)
    return __import__(name)


def start(command: dict[str, Any]) -> tuple[int, int]:
    """Fork the command; it waits for a byte before it becomes what it is, and ends if we die without sending it."""
    out = os.open("out", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    wait, go = os.pipe()
    rules = command.get("confinement") or {}
    guard = None
    if rules.get("guarded"):
        guard = load("attribute_guard").AttributeGuard(rules["guarded"], rules["landlock"]["places"])
    child = os.fork()
    if child:
        os.close(wait)
        os.close(out)
        if guard:
            guard.start()
        return child, go
    os.close(go)
    os.setsid()
    source = os.open("in" if os.path.exists("in") else os.devnull, os.O_RDONLY)
    for number, target in ((source, 0), (out, 1), (out, 2)):
        os.dup2(number, target)
    if not os.read(wait, 1):
        os._exit(127)
    become(command, guard.hand_over if guard else None)
    raise AssertionError  # never reached


def become(command: dict[str, Any], hand_over: Callable[[int], None] | None) -> NoReturn:
    try:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        if command.get("confinement"):
            load("confinement").enter(command["confinement"], hand_over)
        os.environ[command["tag_name"]] = command["tag"]
        os.chdir(command["cwd"])
        os.execvp(command["argv"][0], command["argv"])
    except OSError as failed:
        os.write(2, f"{failed.filename or command['argv'][0]}: {failed.strerror}\n".encode())
        os._exit(127 if isinstance(failed, FileNotFoundError) else 126)


def supervise(child: int, command: dict[str, Any]) -> None:
    started = time.monotonic()
    deadline = None if command["timeout_s"] is None else started + command["timeout_s"]
    rules = command.get("confinement")
    watch = load("limit_watch").LimitWatch(rules, command["cwd"]) if rules else None
    lease = load("lease_watch").LeaseWatch(command["lease"], LEASE_GRACE_S) if command.get("lease") else None
    end, kill_from = "", 0.0
    while (status := poll(child)) is None:
        if not end:
            end = must_end(deadline, command["max_log_bytes"]) or (watch.find_excess() if watch else "")
            end = "lease" if lease and lease.has_ended() else end
            if end:
                grace_s = LEASE_GRACE_S if end == "lease" else TERM_GRACE_S
                kill_from = time.monotonic() + (0 if watch and watch.is_urgent(end) else grace_s)
                send(child, signal.SIGTERM)
        elif time.monotonic() > kill_from:
            send(child, signal.SIGKILL)
            if watch:
                watch.kill_all()
        pause_s = min(watch.pause_s if watch else 1.0, lease.pause_s if lease else 1.0)
        wait_for_child(0.05 if end else until(deadline, pause_s))
    if end:
        send(child, signal.SIGKILL)
    if end == "lease":
        kill_tagged(child, command["tag"])
    code = os.waitstatus_to_exitcode(status)
    if watch:
        watch.end_all()
        with contextlib.suppress(OSError, RecursionError):
            watch.restore()
    result = {"exit_code": code if code >= 0 else 128 - code, "ended_by": end, "duration_s": time.monotonic() - started}
    # A lost command, and no result: whoever goes on here runs it again.
    write_whole(LEASE_END if end == "lease" else "rc.json", result)


def kill_tagged(child: int, tag: str) -> None:
    """End by force what left the group of the command: nobody else does so for one that ends with its lease."""
    processes = load("processes")
    with open("pid.json") as file:
        leader = processes.ProcessIdentity(*json.load(file)["leader"])
    while members := processes.find_members(leader, tag):
        processes.send_signal(members, signal.SIGKILL)
        time.sleep(0.01)


def poll(child: int) -> int | None:
    """Look whether the command has ended, and take away what else has: orphans of a sandboxed one come to us."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if pid in (0, child):
            return status if pid else None


def must_end(deadline: float | None, max_log_bytes: int) -> str:
    if deadline is not None and time.monotonic() >= deadline:
        return "timeout"
    return "output" if os.stat("out").st_size > max_log_bytes else ""


def until(deadline: float | None, most: float) -> float:
    return most if deadline is None else max(0.01, min(most, deadline - time.monotonic()))


def wait_for_child(seconds: float) -> None:
    if hasattr(signal, "sigtimedwait"):
        signal.sigtimedwait({signal.SIGCHLD}, seconds)
    else:
        time.sleep(min(seconds, 0.05))


def send(child: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, number)


def identify(pid: int) -> list[int | str]:
    """Keep this the same as `processes.identify`."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            started = file.read().rpartition(")")[2].split()[19]
        with open("/proc/sys/kernel/random/boot_id") as file:
            return [pid, started, file.read().strip()]
    except OSError:
        with os.popen(f"ps -o lstart= -p {pid}") as listed:
            return [pid, listed.read().strip(), ""]


def write_whole(name: str, value: object) -> None:
    with open(name + ".part", "w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(name + ".part", name)
    here = os.open(".", os.O_RDONLY)
    os.fsync(here)
    os.close(here)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
