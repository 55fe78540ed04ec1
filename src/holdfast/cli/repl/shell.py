"""`!command`: a command of the person's own, in the folder they stand in, whose output the agent can be given.

It is not the agent's: no policy, no sandbox, no journal. Only the output that goes along with a message is recorded.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

from holdfast.cli.terminal.output import paint, plain
from holdfast.errors import ConfigInvalid

MAX_OUTPUT_CHARS = 32_000
_HEAD_CHARS = 8_000
_MAX_LINES = 1_000
_LINE_BYTES = 64 * 1024
_END_S = 1.5


class OutputText:
    """The beginning and the end of an output; what lies between is counted and forgotten."""

    def __init__(self) -> None:
        self._head = ""
        self._tail = ""
        self._left_out = 0

    def add(self, text: str) -> None:
        room = _HEAD_CHARS - len(self._head)
        self._head += text[:room] if room > 0 else ""
        self._tail += text[max(room, 0) :]
        too_much = len(self._tail) - (MAX_OUTPUT_CHARS - _HEAD_CHARS)
        if too_much > 0:
            self._left_out += too_much
            self._tail = self._tail[too_much:]

    def __str__(self) -> str:
        middle = f"\n[{self._left_out} characters are left out here]\n" if self._left_out else ""
        return f"{self._head}{middle}{self._tail}".rstrip()


class ShellCommands:
    """Runs one command at a time beside the prompt, and keeps the outputs for the next message."""

    def __init__(self, tell: Callable[[str], None], folder: Path) -> None:
        self._tell = tell
        self._folder = folder
        self._running: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._has_process = asyncio.Event()
        self._outputs: list[str] = []
        self.command = ""
        """What is running now."""

    @property
    def is_running(self) -> bool:
        return self._running is not None and not self._running.done()

    @property
    def waiting(self) -> int:
        """How many outputs go along with the next message."""
        return len(self._outputs)

    def start(self, command: str, *, worktree: Path | None) -> None:
        """Run a command in the background. Raises `ConfigInvalid` while another one runs, and for none at all."""
        if not command:
            raise ConfigInvalid("Name a command.", hint="For example: !git status", key="!")
        if self.is_running:
            raise ConfigInvalid(f"{self.command!r} is still running.", hint="Ctrl-C ends it.", key="!")
        self.command = command
        self._tell(f"\n{paint(f'! {plain(command)}', 'bold')} {paint(f'in {self._folder}', 'dim')}")
        self._has_process.clear()
        self._running = asyncio.create_task(self._run(command, worktree))

    async def _run(self, command: str, worktree: Path | None) -> None:
        output = OutputText()
        try:
            code = await self._execute(command, worktree, output)
        except OSError as error:
            self._tell(f"  {paint('✕', 'failed')} It cannot be started: {error.strerror}.")
            return
        finally:
            self._process = None
            self._has_process.set()  # also if it could not be started: nobody waits for it then
        ended = f"exit code {code}" if code >= 0 else f"ended by {signal.Signals(-code).name}"
        self._outputs.append(f'<shell command="{command}" ended="{ended}">\n{output}\n</shell>')
        self._tell(paint(f"  {ended}", "dim"))

    async def _execute(self, command: str, worktree: Path | None, output: OutputText) -> int:
        # Not HOLDFAST_…: those are settings, and `!holdfast runs list` would not know this one.
        more = {} if worktree is None else {"AGENT_WORKTREE": str(worktree)}
        self._process = await asyncio.create_subprocess_shell(
            command,
            cwd=self._folder,
            env={**os.environ, **more},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # so that a Ctrl-C reaches it and its children, and nobody else
            limit=_LINE_BYTES,
        )
        self._has_process.set()
        await self._show(self._process, output)
        return await self._process.wait()

    async def _show(self, process: asyncio.subprocess.Process, output: OutputText) -> None:
        assert process.stdout is not None
        rest, count = "", 0
        while piece := await process.stdout.read(_LINE_BYTES):
            text = piece.decode(errors="replace")
            output.add(text)
            *lines, rest = (rest + text).split("\n")
            rest = rest[-_LINE_BYTES:]
            for line in lines[: max(_MAX_LINES - count, 0)]:
                self._tell(f"  {plain(line)}")
            if count <= _MAX_LINES < count + len(lines):
                self._tell(paint(f"  more than {_MAX_LINES} lines; the rest is not shown", "dim"))
            count += len(lines)
        if rest and count < _MAX_LINES:
            self._tell(f"  {plain(rest)}")

    async def stop(self) -> None:
        """End the command that is running: first as Ctrl-C does, then for good."""
        if not self.is_running:
            return
        assert self._running is not None
        await self._has_process.wait()
        # Twice as Ctrl-C does: a shell that has only just begun, and has no child yet, forgets the first.
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            if self._process is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)
            done, _ = await asyncio.wait({self._running}, timeout=_END_S)
            if done:
                return
        # A child that has left the group can hold the output open; nobody waits for that.
        self._running.cancel()

    def take(self) -> str:
        """Return the outputs since the last message, for the agent, and forget them."""
        outputs, self._outputs = self._outputs, []
        text = ""
        for number, output in enumerate(reversed(outputs)):
            if number and len(text) + len(output) > 2 * MAX_OUTPUT_CHARS:
                break  # the newest ones, as many as fit
            text = f"{output}\n\n{text}"
        return text.strip()
