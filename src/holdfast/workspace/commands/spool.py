"""Commands that outlive the engine: started once per step key, found again by it.

A command runs in a session of its own under a small runner process (`spool_runner.py`). Output and exit code go to
files in `<spool_dir>/<hash of the key>/`, so nothing depends on a pipe that dies with the engine, and a background
child that keeps its output open blocks nobody. What cannot be known is `lost`, never guessed.
"""

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.concurrency import finish_then_cancel
from holdfast.errors import Nondeterminism, WorkspaceError
from holdfast.workspace.commands import spool_runner
from holdfast.workspace.commands.network_log import NetworkRequest, read_requests
from holdfast.workspace.commands.processes import TAG
from holdfast.workspace.commands.spool_runner import LEASE_END, TERM_GRACE_S
from holdfast.workspace.commands.spool_watch import Spooled, end_members, find_end, read_spooled, wait_for_end
from holdfast.workspace.files import remove_folder, write_whole

ALLOWED_VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TZ", "TMPDIR"),
    *("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LC_NUMERIC", "LC_TIME", "LC_COLLATE"),
)
_START_WAIT_S = 15.0


class CommandState(StrEnum):
    """How a spooled command ended. `lost`: it ran, and nobody can say how it ended."""

    EXITED = "exited"
    TIMED_OUT = "timed_out"
    OUTPUT_LIMIT = "output_limit"
    RESOURCE_LIMIT = "resource_limit"
    CANCELLED = "cancelled"
    LOST = "lost"


@dataclass(frozen=True)
class Outcome:
    """How it ended. `exit_code` is as a shell gives it (128 + signal), `None` if unknown; `log_path` has it all."""

    state: CommandState
    exit_code: int | None
    output: str
    is_truncated: bool
    reattached: bool
    duration_s: float | None
    log_path: Path
    limit: str = ""
    """Which limit it exceeded, in words for whoever started it; empty if none."""
    requests: tuple[NetworkRequest, ...] = ()
    """What it asked the network proxy for, if it had one."""

    @property
    def timed_out(self) -> bool:
        return self.state is CommandState.TIMED_OUT


class RunLease(NamedTuple):
    """A run, and the folder in which the processes of this place say until when they hold it."""

    folder: Path
    run_id: str


@dataclass(frozen=True)
class SpoolOptions:
    """What a command gets, and how much time and output it may take."""

    env: Mapping[str, str] | None = None
    stdin: bytes | None = None
    timeout_s: float | None = None
    """Counted from the recorded start by the runner, also while no engine lives; it ends the whole group."""
    max_output: int = 30_000
    """Characters of the output in its `Outcome`; the log has more."""
    max_log_bytes: int = 1024**3
    leave_running: bool = False
    """Cancelling the wait does not end the group."""
    confinement: Mapping[str, Any] | None = None
    """The kernel's rules for it, from `enclose`; with them nothing that it started outlives it."""
    lease: RunLease | None = None
    """It ends with the lease of this run: another machine may begin it again from then on."""


async def run_spooled(
    key: str, command: Sequence[str] | str, *, cwd: Path, spool_dir: Path, options: SpoolOptions | None = None
) -> Outcome:
    """Run a command (argv, or a line for /bin/sh) once for `key`, or go on waiting for it if it was started before.

    Cancelling ends the whole group, unless `leave_running`. Raises `Nondeterminism` if the key was used for another
    command.
    """
    options = options or SpoolOptions()
    folder = spool_folder(spool_dir, key)
    request = _CommandRequest(
        *(key, _argv(command), str(cwd.resolve()), options.timeout_s, options.max_log_bytes, options.confinement),
        lease=options.lease and {"folder": str(options.lease.folder.resolve()), "run_id": options.lease.run_id},
    )
    reattached = (folder / "pid.json").exists()
    try:
        if not reattached:
            await _start(folder, request, clean_environment(options.env), options.stdin)
        else:
            request.check(folder)
        spooled = await _wait_until_started(folder)
        result = await wait_for_end(spooled)
    except asyncio.CancelledError:
        if not options.leave_running:
            await stop_spooled(key, spool_dir=spool_dir)
        raise
    return _outcome(spooled, result, reattached=reattached, max_output=options.max_output)


async def stop_spooled(key: str, *, spool_dir: Path, grace_s: float = TERM_GRACE_S) -> None:
    """End a command and all it started: politely, by force after `grace_s`. Also what it left in the background."""
    spooled = read_spooled(spool_folder(spool_dir, key))
    if spooled is not None:
        await stop_command(spooled, grace_s=grace_s)


async def stop_command(spooled: Spooled, *, grace_s: float = TERM_GRACE_S) -> None:
    """End a command as `stop_spooled` does; one that was begun with the same key since is left alone."""
    if read_spooled(spooled.folder) != spooled:
        return
    if find_end(spooled) is None:
        write_whole(spooled.folder / "stop.json", "{}")  # crash: the command goes on; a later stop ends it
    await end_members(spooled, grace_s=grace_s)


async def stop_with_lease(key: str, *, spool_dir: Path, grace_s: float = TERM_GRACE_S) -> None:
    """End a command as its runner does with the lease of its run: whoever goes on here takes it for a lost one."""
    spooled = read_spooled(spool_folder(spool_dir, key))
    if spooled is not None and find_end(spooled) is None:
        write_whole(spooled.folder / LEASE_END, "{}")  # crash: the command goes on; its runner ends it
        await end_members(spooled, grace_s=grace_s)


def has_ended_with_lease(key: str, *, spool_dir: Path) -> bool:
    """Tell whether a command was ended because another machine may begin it again."""
    return (spool_folder(spool_dir, key) / LEASE_END).exists()


def remove_spooled(key: str, *, spool_dir: Path) -> None:
    """Forget a command that has ended; its key may then be used again."""
    folder = spool_folder(spool_dir, key)
    spooled = read_spooled(folder)
    if spooled and find_end(spooled) is None and spooled.is_running:
        raise WorkspaceError(f"The command of step {key!r} still runs.", hint="Stop it first.", key=key)
    if folder.exists():
        remove_folder(folder)


def find_command(key: str, *, spool_dir: Path) -> list[str] | None:
    """Find the argv that is to run, runs or ran for a key; `None` if the key is new."""
    path = spool_folder(spool_dir, key) / "command.json"
    return list(json.loads(path.read_text())["argv"]) if path.exists() else None


def list_commands(spool_dir: Path) -> list[str]:
    """List the keys of all commands that run, whoever started them."""
    return list(find_commands(spool_dir))


def find_commands(spool_dir: Path) -> dict[str, Spooled]:
    """Find all commands that run, whoever started them, by their keys."""
    found: dict[str, Spooled] = {}
    for path in sorted(spool_dir.glob("*/command.json")):
        try:
            spooled, key = read_spooled(path.parent), json.loads(path.read_text())["key"]
        except (OSError, ValueError, KeyError):
            continue  # removed meanwhile, or not ours
        if spooled is not None and spooled.is_running:
            found[key] = spooled
    return found


def is_running(key: str, *, spool_dir: Path) -> bool:
    """Tell whether a command that was started, or something that it started, still runs on this machine."""
    spooled = read_spooled(spool_folder(spool_dir, key))
    return spooled is not None and spooled.is_running


def is_lost(key: str, *, spool_dir: Path) -> bool:
    """Tell whether a command was started of which nobody will ever know how it ended."""
    spooled = read_spooled(spool_folder(spool_dir, key))
    return spooled is not None and not spooled.is_running and find_end(spooled) is None


def find_duration(key: str, *, spool_dir: Path) -> float | None:
    """Return how many seconds a command has taken by itself, if it has ended and its runner recorded that."""
    spooled = read_spooled(spool_folder(spool_dir, key))
    end = None if spooled is None else find_end(spooled)
    return None if end is None else end["duration_s"]


def spool_folder(spool_dir: Path, key: str) -> Path:
    return spool_dir.resolve() / hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables a command gets: a short list of harmless ones, and the caller's. Keys never get in."""
    return {name: os.environ[name] for name in ALLOWED_VARIABLES if name in os.environ} | dict(extra or {})


def _argv(command: Sequence[str] | str) -> list[str]:
    argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    if not argv or any("\0" in part for part in argv):
        raise WorkspaceError("A command needs a program, and no NUL in it.", command=command)
    return argv


@dataclass(frozen=True)
class _CommandRequest:
    key: str
    argv: list[str]
    cwd: str
    timeout_s: float | None
    max_log_bytes: int
    confinement: Mapping[str, Any] | None = None
    lease: Mapping[str, str] | None = None

    def write(self, folder: Path) -> None:
        # By the folder and not by the key: another data directory may know the same key.
        tag = hashlib.sha256(os.fsencode(folder)).hexdigest()[:32]
        content = {**vars(self), "tag_name": TAG, "tag": tag}
        write_whole(folder / "command.json", json.dumps(content), mode=0o600)

    def check(self, folder: Path) -> None:
        stored = json.loads((folder / "command.json").read_text())
        differing = [name for name in ("key", "argv", "cwd") if stored.get(name) != vars(self)[name]]
        if differing:
            raise Nondeterminism(
                f"Step {self.key!r} was started with another command before; {', '.join(differing)} differ.",
                key=self.key,
                components=differing,
            )


async def _start(folder: Path, request: _CommandRequest, env: dict[str, str], stdin: bytes | None) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if (folder / "command.json").exists():
        request.check(folder)
    else:
        if stdin is not None:
            write_whole(folder / "in", stdin, mode=0o600)
        request.write(folder)
    # crash: the runner lives on. Before it wrote pid.json a second one may be started; only one of them will act.
    await finish_then_cancel(asyncio.to_thread(_launch, folder, env))


def _launch(folder: Path, env: dict[str, str]) -> None:
    with (folder / "runner.log").open("ab") as log:
        argv = [sys.executable, "-I", "-S", str(spool_runner.__file__), str(folder)]
        code = subprocess.run(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
            check=False,
        ).returncode
    if code:
        lines = (folder / "runner.log").read_text(errors="replace").strip().splitlines()
        raise WorkspaceError(f"The command could not be started: {lines[-1] if lines else code}.", folder=str(folder))


async def _wait_until_started(folder: Path) -> Spooled:
    """Wait for the runner's first report: it is there at once, unless the runner of a dead engine is just starting."""
    deadline = time.monotonic() + _START_WAIT_S
    while time.monotonic() < deadline:
        if spooled := read_spooled(folder):
            return spooled
        await asyncio.sleep(0.01)
    raise WorkspaceError(f"The command's runner did not start within {_START_WAIT_S:.0f} s.", folder=str(folder))


def _outcome(spooled: Spooled, result: dict[str, Any] | None, *, reattached: bool, max_output: int) -> Outcome:
    output, is_truncated = read_output(spooled.folder / "out", max_output)
    state = CommandState.LOST if result is None else _state(spooled, result)
    return Outcome(
        state=state,
        exit_code=result["exit_code"] if result else None,
        output=output,
        is_truncated=is_truncated,
        reattached=reattached,
        duration_s=result["duration_s"] if result else None,
        log_path=spooled.folder / "out",
        limit=_describe_limit(spooled, result),
        requests=read_requests(spooled.folder / "requests"),
    )


_STATES = {"timeout": CommandState.TIMED_OUT, "output": CommandState.OUTPUT_LIMIT}
_LIMITS = {
    "memory": "It used more memory than the {memory} MB that a command may use, and was ended.",
    "processes": "It started more than the {processes} processes that a command may have, and was ended.",
    "cpu": "It used more than the {cpu_s} s of processor time that a command may use, and was ended.",
    "disk": "It left less than {free_disk} MB free on the disk, and was ended.",
    "file": "It wrote a file larger than the {file} MB that a file may have.",
}
_BY_SIGNAL = {128 + signal.SIGXCPU: "cpu", 128 + signal.SIGXFSZ: "file"}
_MB = 1024**2


def _state(spooled: Spooled, result: dict[str, Any]) -> CommandState:
    if result["ended_by"]:
        return _STATES.get(result["ended_by"], CommandState.RESOURCE_LIMIT)
    is_stopped = (spooled.folder / "stop.json").exists() and (result["exit_code"] or 0) > 128
    return CommandState.CANCELLED if is_stopped else CommandState.EXITED


def _describe_limit(spooled: Spooled, result: dict[str, Any] | None) -> str:
    rules = json.loads((spooled.folder / "command.json").read_text()).get("confinement")
    if not rules or result is None:
        return ""
    text = _LIMITS.get(result["ended_by"] or _BY_SIGNAL.get(result["exit_code"], ""), "")
    watched = rules["watched"]
    sizes = {name: watched[name] // _MB for name in ("memory", "free_disk")}
    return text.format(**{**watched, **sizes, "file": rules["limits"].get("RLIMIT_FSIZE", 0) // _MB})


def read_output(path: Path, max_bytes: int) -> tuple[str, bool]:
    """Read an output, if it is longer only its head and tail with a note between; and say whether it was cut."""
    size = path.stat().st_size if path.exists() else 0
    if size <= max_bytes:
        return (path.read_bytes().decode(errors="replace") if size else ""), False
    with path.open("rb") as file:
        head = file.read(max_bytes // 2)
        file.seek(size - (max_bytes - len(head)))
        tail = file.read(max_bytes - len(head))
    note = f"\n[… {size - max_bytes} of {size} bytes are not shown …]\n"
    return head.decode(errors="replace") + note + tail.decode(errors="replace"), True
