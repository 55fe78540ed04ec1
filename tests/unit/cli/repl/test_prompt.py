"""The line a person types into keeps the terminal while lines are printed above it."""

import asyncio
import os
import pty
import sys
import termios
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session, run_in_terminal
from prompt_toolkit.application.current import set_app
from prompt_toolkit.output import DummyOutput

from holdfast.cli.repl.prompt import TalkCompleter, TalkPrompt

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


@asynccontextmanager
async def reading(*, is_busy: bool = False) -> AsyncIterator[tuple[TalkPrompt, "asyncio.Task[str]"]]:
    with create_app_session(output=DummyOutput()):
        prompt = TalkPrompt(completer=TalkCompleter({}, {}, tuple), above=list, below=str, is_busy=lambda: is_busy)
        task = asyncio.create_task(prompt.read())
        while not prompt._session.app.is_running:
            await asyncio.sleep(0)
        try:
            yield prompt, task
        finally:
            task.cancel()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


@pytest.fixture
def history(tmp_path: Path, terminal: tuple[int, int]) -> None:
    (tmp_path / "holdfast").mkdir()
    (tmp_path / "holdfast" / "history").write_text("\n# 2026-01-01\n+what does add do?\n\n# 2026-01-02\n+and sub?\n")


@pytest.mark.usefixtures("history")
async def test_enter_takes_what_a_search_found_and_a_second_one_sends_it(terminal: tuple[int, int]) -> None:
    async with reading() as (prompt, sent):
        session = prompt._session
        os.write(terminal[0], b"\x12does")
        await until(lambda: session.search_buffer.text == "does")
        os.write(terminal[0], b"\r")
        await until(lambda: session.default_buffer.text == "what does add do?")
        assert session.app.layout.has_focus(session.default_buffer)
        assert not sent.done()

        os.write(terminal[0], b"\r")
        assert await sent == "what does add do?"


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize("key", [b"\x1b", b"\x07", b"\x03", b"\x04"], ids=["escape", "ctrl-g", "ctrl-c", "ctrl-d"])
@pytest.mark.parametrize("is_busy", [False, True])
async def test_a_search_can_be_cancelled_and_the_line_is_as_before(
    terminal: tuple[int, int], key: bytes, is_busy: bool
) -> None:
    async with reading(is_busy=is_busy) as (prompt, sent):
        session = prompt._session
        os.write(terminal[0], b"mine\x12does")
        await until(lambda: session.search_buffer.text == "does")
        os.write(terminal[0], key)
        await until(lambda: session.app.layout.has_focus(session.default_buffer))

        os.write(terminal[0], b"!\r")
        assert await sent == "mine!"
