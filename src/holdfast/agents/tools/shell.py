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

from holdfast.agents.policy.file_policy import find_secrets
from holdfast.runtime.step import Suspended, step_key
from holdfast.workspace import (
    CommandState,
    Outcome,
    Sandbox,
    SandboxProbe,
    SpoolOptions,
    Workspace,
    clean_environment,
    find_bubblewrap,
    find_command,
    is_lost,
    remove_spooled,
    run_spooled,
    stop_spooled,
    to_sandboxed,
    workspace_sandbox,
)
from holdfast.workspace.commands.sandbox import SECRET_PLACES

DEFAULT_TIMEOUT_S = 120
MAX_TIMEOUT_S = 3600
MAX_OUTPUT_BYTES = 30_000
# Keys and sessions of other tools, relative to the home folder, beside those that the workspace's sandbox knows.
MORE_SECRET_PLACES = (
    *(".npmrc", ".pypirc", ".git-credentials", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials"),
    *(".claude", ".claude.json", ".codex", ".gemini", ".config/openai", ".config/anthropic", ".password-store"),
    *(".bash_history", ".zsh_history", ".python_history", ".local/share/keyrings", ".mozilla", ".config/google-chrome"),
)
# Asked by nobody and answered by nobody: a command must not wait for a person at a terminal.
_QUIET = {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true", "TERM": "dumb"}
_IN_SANDBOX = {"XDG_CACHE_HOME": "/tmp/cache", "TMPDIR": "/tmp"}  # noqa: S108 - the sandbox's own
_STOP_GRACE_S = 0.4  # the turn is over or out of time: nobody waits longer for a command that wants to live
_log = logging.getLogger(__name__)


@functools.cache
def probe_once() -> SandboxProbe:
    """Return the bubblewrap that works here, or why none does; tried once in this process."""
    found = find_bubblewrap()
    if not found.works:
        _log.info("commands run without a sandbox", extra={"reason": found.reason})
    return found


@dataclass(frozen=True)
class Shell:
    """Where an agent's commands run. With a `sandbox`, `has_network` says whether this call may reach the network."""

    cwd: Path
    spool_dir: Path
    sandbox: Sandbox | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    has_network: bool = False
    is_secret_allowed: Callable[[Path], bool] = lambda _path: False
    running: set[str] = field(default_factory=set)
    """Keys of steps whose command runs; they outlive a shutdown, and are ended with the turn."""
    of_run: set[str] = field(default_factory=set)
    """The same of the whole run, to be ended if it is cancelled."""

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
        if argv is None:
            argv = await asyncio.to_thread(self._to_argv, command)
        options = SpoolOptions({**_QUIET, **self.env}, stdin, timeout_s, max_output, leave_running=True)
        self._note(key)
        # crash: from the start on the command lives without us; the step's next try finds it by the key.
        outcome = await run_spooled(key, argv, cwd=self.cwd, spool_dir=self.spool_dir, options=options)
        if outcome.state is CommandState.LOST:
            raise Suspended(key.partition(":")[2])
        await stop_spooled(key, spool_dir=self.spool_dir)  # what it left in the background
        self._forget(key)
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

    def _to_argv(self, command: Sequence[str] | str) -> list[str]:
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        if self.sandbox is None:
            return argv
        masked = tuple(path for path in find_secrets(self.cwd) if not self.is_secret_allowed(path))
        env = {**_QUIET, **_IN_SANDBOX}
        if not self.sandbox.inherits_env:
            env = {**clean_environment(), **env, **self.env}
        sandbox = replace(self.sandbox, has_network=self.has_network, masked=masked, env=env)
        # Without one that works this fails, as it must: what is to be contained does not run free.
        return to_sandboxed(sandbox, argv, cwd=self.cwd, program=probe_once().program or "bwrap")


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
    home = Path(os.environ.get("HOME") or "/root")
    if workspace is not None:
        sandbox = workspace_sandbox(workspace, data_dir=data_dir, home=home, env={})
    else:
        sandbox = Sandbox((root,), hidden=(data_dir.resolve(), *(home / place for place in SECRET_PLACES)))
    sandbox = replace(sandbox, hidden=(*sandbox.hidden, *(home / place for place in MORE_SECRET_PLACES)))
    if is_read_only:
        sandbox = replace(sandbox, writable=(), read_only=(*sandbox.writable, *sandbox.read_only))
    return replace(shell, sandbox=sandbox)


_granted: ContextVar[Shell | None] = ContextVar("holdfast_shell", default=None)


def grant_shell(shell: Shell) -> None:
    """Let the tool call that runs in this context use a shell."""
    _granted.set(shell)


def granted_shell() -> Shell | None:
    return _granted.get()
