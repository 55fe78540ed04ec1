"""The line a person types into keeps the terminal while lines are printed above it."""

import asyncio
import os
import pty
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session, run_in_terminal
from prompt_toolkit.application.current import set_app
from prompt_toolkit.output import DummyOutput

from holdfast.cli.repl_prompt import TalkCompleter, TalkPrompt

LFLAG = 3


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[int, int]]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    outer, inner = pty.openpty()
    with open(inner) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield outer, inner
    os.close(outer)


async def test_a_key_typed_while_a_line_is_printed_is_the_prompts_own(terminal: tuple[int, int]) -> None:
    outer, inner = terminal
    with create_app_session(output=DummyOutput()):
        prompt = TalkPrompt(completer=TalkCompleter({}, {}, tuple), above=list, below=str, is_busy=lambda: False)
        reading = asyncio.create_task(prompt.read())
        while not prompt._session.app.is_running:
            await asyncio.sleep(0)

        def print_and_type() -> int:
            os.write(outer, b"\x04")  # which a terminal that was given back would swallow
            return int(termios.tcgetattr(inner)[LFLAG])

        with set_app(prompt._session.app):
            flags = await run_in_terminal(print_and_type)

        assert not flags & (termios.ISIG | termios.ICANON | termios.ECHO)
        with pytest.raises(EOFError):
            await reading
