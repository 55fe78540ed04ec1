"""`!command` in a conversation: a real command, its output shown, kept within bounds, and ended by Ctrl-C."""

import asyncio
from pathlib import Path

import pytest

from holdfast.cli.repl.shell import MAX_OUTPUT_CHARS, ShellCommands
from holdfast.errors import ConfigInvalid


class Shell:
    def __init__(self, folder: Path) -> None:
        self.lines: list[str] = []
        self.commands = ShellCommands(self.lines.append, folder)

    async def run(self, command: str, worktree: Path | None = None) -> str:
        self.commands.start(command, worktree=worktree)
        assert self.commands._running is not None
        await asyncio.wait_for(self.commands._running, 60)
        return "\n".join(self.lines)

    async def wait_for(self, text: str) -> None:
        async with asyncio.timeout(60):
            while not any(text in line for line in self.lines):
                await asyncio.sleep(0.01)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


async def test_a_command_runs_in_the_persons_folder_and_its_output_is_taken_once(shell: Shell, tmp_path: Path) -> None:
    screen = await shell.run("pwd; echo $AGENT_WORKTREE; echo no >&2; exit 3", worktree=tmp_path / "tree")

    assert f"in {tmp_path}" in screen.splitlines()[1]
    assert screen.splitlines()[2:] == [f"  {tmp_path}", f"  {tmp_path}/tree", "  no", "  exit code 3"]
    assert shell.commands.waiting == 1
    taken = shell.commands.take()
    assert taken.startswith('<shell command="pwd;')
    assert taken.endswith("\nno\n</shell>")
    assert (shell.commands.waiting, shell.commands.take()) == (0, "")


async def test_a_command_can_be_ended_with_its_children(shell: Shell, tmp_path: Path) -> None:
    shell.commands.start("trap '' INT; (sleep 600; touch left) & echo started; wait", worktree=None)
    await shell.wait_for("started")
    with pytest.raises(ConfigInvalid, match="still running"):
        shell.commands.start("ls", worktree=None)

    await asyncio.wait_for(shell.commands.stop(), 60)

    assert not shell.commands.is_running
    assert "started" in shell.commands.take()
    assert "ended by SIG" in shell.lines[-1]


async def test_a_command_that_is_only_being_started_gets_the_first_signal_too(shell: Shell) -> None:
    shell.commands.start("sleep 600", worktree=None)

    await shell.commands.stop()

    assert "ended by SIGINT" in shell.lines[-1]


async def test_an_endless_output_is_kept_within_bounds(shell: Shell) -> None:
    screen = await shell.run("i=0; yes 'a long line of text' | head -n 200000")
    assert len(screen) < 100_000
    assert "the rest is not shown" in screen
    taken = shell.commands.take()
    assert len(taken) < MAX_OUTPUT_CHARS + 1000
    assert "characters are left out here" in taken


async def test_what_a_terminal_would_obey_is_not_shown(shell: Shell) -> None:
    screen = await shell.run("printf '\\033[2Ja\\rb\\377'")
    assert "\x1b" not in screen
    assert "\r" not in screen


async def test_it_reads_nothing_from_the_terminal(shell: Shell) -> None:
    assert "exit code 1" in await shell.run("read line")


async def test_no_command_is_refused(shell: Shell) -> None:
    with pytest.raises(ConfigInvalid, match="Name a command"):
        shell.commands.start("", worktree=None)
