"""How the commands of an agent run: spooled under the key of their step, in a sandbox where there is one.

A command belongs to one step. Whoever comes back to the step after a crash finds the command again; nothing that it
started lives longer than it.
"""

import asyncio
import functools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast.agents.policy.file_policy import find_secrets, is_secret
from holdfast.errors import StoreUnavailable, WorkspaceError
from holdfast.persona import Permissions
from holdfast.runtime.step import Stopped, Suspended, step_key
from holdfast.workspace import (
    CommandState,
    Enclosed,
    GitView,
    NetworkRequest,
    Outcome,
    ResourceLimits,
    RunLease,
    Sandbox,
    SandboxProbe,
    SpoolOptions,
    Workspace,
    clean_environment,
    enclose,
    find_command,
    find_sandbox,
    has_ended_with_lease,
    is_lost,
    open_git_view,
    open_sandbox,
    remove_spooled,
    run_spooled,
    spool_folder,
    stop_spooled,
    workspace_sandbox,
)

DEFAULT_TIMEOUT_S = 120
MAX_TIMEOUT_S = 3600
MAX_OUTPUT_BYTES = 30_000
ENDED_WITH_LEASE = "A command was ended: another machine may run it again, as its persona or its kind says."
# Asked by nobody and answered by nobody: a command must not wait for a person at a terminal.
_QUIET = {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", "TERM": "dumb"}
# The last one stands in the sandbox's own command line, where no command can take it off: see `cli/agent_command.py`.
_IN_SANDBOX = {"XDG_CACHE_HOME": "/tmp/cache", "TMPDIR": "/tmp", "HOLDFAST_AGENT_COMMAND": "1"}  # noqa: S108 - the sandbox's own
_STOP_GRACE_S = 0.4  # the turn is over or out of time: nobody waits longer for a command that wants to live
_log = logging.getLogger(__name__)


@functools.cache
def probe_once() -> SandboxProbe:
    """Return the sandbox that works here, or why none does; tried once in this process."""
    found = find_sandbox()
    if not found.works:
        _log.info("commands run without a sandbox", extra={"reason": found.reason})
    return found


@dataclass(frozen=True)
class Shell:
    """Where an agent's commands run. With a `sandbox`, `has_network` says whether this call may reach the network."""

    cwd: Path
    spool_dir: Path
    sandbox: Sandbox | None = None
    workspace: Workspace | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    has_network: bool = False
    is_opened: bool = False
    """In the sandbox more of the machine can be read than usual; a socket may be there, by which to change things."""
    is_secret_allowed: Callable[[Path], bool] = lambda _path: False
    running: set[str] = field(default_factory=set)
    """Keys of steps whose command runs; they outlive a shutdown, and are ended with the turn."""
    of_run: set[str] = field(default_factory=set)
    """The same of the whole run, to be ended if it is cancelled."""
    unfenced: set[str] = field(default_factory=set)
    """Those of the run that another machine would run again by itself, and that nothing contains: to be ended as soon
    as another machine may do so."""
    lease: RunLease | None = None
    """With which those end, also without this process."""
    file_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Whoever has it reads the files; no command begins meanwhile."""
    requests: dict[str, list[NetworkRequest]] = field(default_factory=dict)
    """What the commands of each step asked the network proxy for, until the step's result takes it."""

    @property
    def changes_worktree_only(self) -> bool:
        """Tell whether a command can change the worktree and nothing else: it is in a sandbox, and reaches nobody."""
        return self.sandbox is not None and not (self.has_network or self.sandbox.hosts or self.is_opened)

    async def run(
        self,
        command: Sequence[str] | str,
        *,
        timeout_s: float | None,
        stdin: bytes | None = None,
        max_output: int = MAX_OUTPUT_BYTES,
    ) -> Outcome:
        """Run a command for the current step, or wait for it where it was started before.

        Raises `Suspended` if what became of it cannot be known: a person then says.
        """
        key = step_key()
        if is_lost(key, spool_dir=self.spool_dir):
            # To ask comes before a call is made again, so whoever is to say has said: once more.
            remove_spooled(key, spool_dir=self.spool_dir)
        argv = find_command(key, spool_dir=self.spool_dir)
        enclosed = Enclosed(argv, None) if argv else await asyncio.to_thread(self.enclose, command, key)
        options = SpoolOptions(
            {**_QUIET, **self.env},
            stdin,
            timeout_s,
            max_output,
            leave_running=True,
            confinement=enclosed.confinement,  # of a command that is there already its folder has it
            lease=self.lease if key in self.unfenced else None,
        )
        async with self.file_lock:
            self._note(key)
        # crash: from the start on the command lives without us; the step's next try finds it by the key.
        outcome = await run_spooled(key, enclosed.argv, cwd=self.cwd, spool_dir=self.spool_dir, options=options)
        if outcome.state is CommandState.LOST and has_ended_with_lease(key, spool_dir=self.spool_dir):
            raise Stopped(StoreUnavailable(ENDED_WITH_LEASE))
        if outcome.state is CommandState.LOST:
            raise Suspended(key.partition(":")[2])
        await stop_spooled(key, spool_dir=self.spool_dir)  # what it left in the background
        self._forget(key)
        self.requests.setdefault(key, []).extend(outcome.requests)
        return outcome

    async def stop_all(self) -> None:
        """End every command of this shell that still runs; its step is over, whatever it would have answered."""
        keys = sorted(self.running)
        await asyncio.gather(*(stop_spooled(key, spool_dir=self.spool_dir, grace_s=_STOP_GRACE_S) for key in keys))
        for key in keys:
            self._forget(key)

    def _note(self, key: str) -> None:
        self.running.add(key)
        self.of_run.add(key)

    def _forget(self, key: str) -> None:
        self.running.discard(key)
        self.of_run.discard(key)
        self.unfenced.discard(key)

    def enclose(self, command: Sequence[str] | str, key: str) -> Enclosed:
        """Put a command that the spool will know by `key` into the sandbox, if there is one."""
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        if self.sandbox is None:
            return Enclosed(argv, None)
        masked = tuple(path for path in find_secrets(self.cwd) if not self.is_secret_allowed(path))
        env = {**_QUIET, **_IN_SANDBOX, **self.sandbox.home_variables}
        if not self.sandbox.inherits_env:
            env = {**clean_environment(), **env, **self.env}
        view = None if self.workspace is None else _open_git_view(self.workspace)
        # Where hosts are listed they are all that can be reached, whatever was granted for this call.
        has_network = self.has_network and not self.sandbox.hosts
        sandbox = replace(self.sandbox, has_network=has_network, masked=masked, env=env, git=view)
        folder = spool_folder(self.spool_dir, key)
        return enclose(sandbox, argv, cwd=self.cwd, folder=folder, probe=probe_once())


def _open_git_view(workspace: Workspace) -> GitView | None:
    try:
        return open_git_view(workspace, is_secret)
    except WorkspaceError as failed:
        _log.warning("commands run without git", extra={"reason": str(failed)})
        return None


def open_shell(
    root_dir: Path,
    *,
    data_dir: Path,
    workspace: Workspace | None = None,
    is_read_only: bool = False,
    is_secret_allowed: Callable[[Path], bool] = lambda _path: False,
    of_run: set[str] | None = None,
) -> Shell:
    """Open a shell in a workspace, in a sandbox if that works here; in a read-only phase it cannot write there."""
    root = root_dir.resolve()
    keys = set() if of_run is None else of_run
    shell = Shell(root, data_dir / "spool", is_secret_allowed=is_secret_allowed, of_run=keys)
    if not probe_once().works:
        return shell
    home = Path(os.environ.get("HOME") or "/root").resolve()
    if workspace is not None:
        sandbox = workspace_sandbox(workspace, data_dir=data_dir, home=home, env={})
    else:
        sandbox = open_sandbox(root, data_dir=data_dir, home=home)
    if is_read_only:
        sandbox = replace(sandbox, writable=(), read_only=(*sandbox.writable, *sandbox.read_only))
    return replace(shell, sandbox=sandbox, workspace=workspace)


def permit(shell: Shell, permissions: Permissions) -> Shell:
    """Return the shell with what a persona's permissions open in its sandbox: folders to read, hosts, limits."""
    if shell.sandbox is None:
        return shell
    places = [Path(place).expanduser().resolve() for place in permissions.readable]
    named = tuple(place for place in places if place.exists())
    sandbox = replace(
        shell.sandbox,
        read_only=(*shell.sandbox.read_only, *named),
        # Where nothing is opened, nothing has to be found on the disk.
        hidden=tuple(place for place in shell.sandbox.hidden if not named or place.resolve() not in named),
        hosts=permissions.hosts,
        limits=ResourceLimits(**permissions.limits.to_bytes()),
    )
    return replace(shell, sandbox=sandbox, is_opened=bool(permissions.readable))


_granted: ContextVar[Shell | None] = ContextVar("holdfast_shell", default=None)


def grant_shell(shell: Shell) -> None:
    """Let the tool call that runs in this context use a shell."""
    _granted.set(shell)


def granted_shell() -> Shell | None:
    return _granted.get()
