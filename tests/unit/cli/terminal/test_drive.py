"""Ctrl-C while a run is driven: what the second one does depends on nothing but the first."""

import asyncio
import contextlib
import os
import signal
import uuid
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast.cli.terminal.drive as drive_module
from holdfast.cli.terminal.run_view import RunView
from holdfast.engine.results import RunResult
from holdfast.enums import RunStatus

RUN_ID = str(uuid.uuid4())


class Interrupted:
    """A run that pauses at the first Ctrl-C, and is sent another when driving it is over."""

    def __init__(self) -> None:
        self.left: list[str] = []
        self._request = asyncio.Event()
        self._departure = asyncio.Event()

    async def pause(self, *_: Any, **__: Any) -> None:
        self._request.set()

    def leave(self, run_id: str) -> None:
        self.left.append(run_id)
        self._departure.set()

    async def act(self) -> RunResult:
        os.kill(os.getpid(), signal.SIGINT)
        await self._request.wait()
        return RunResult(uuid.UUID(RUN_ID), RunStatus.PAUSED, None, (), None, waiting_for="person")

    async def play(self, around: contextlib.AbstractContextManager[None]) -> bool:
        """Return whether it was left to be resumed."""
        db: Any = SimpleNamespace(store=SimpleNamespace(read_heads=lambda _: {}, list_events=lambda _: []))
        engine: Any = self
        with around:
            end = await drive_module.drive(engine, db, RUN_ID, self.act, phase_keys=[], can_ask=False)
        os.kill(os.getpid(), signal.SIGINT)
        await self._departure.wait()
        return end.is_interrupted


@pytest.fixture(autouse=True)
def _nothing_to_show(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.asynccontextmanager
    async def show_nothing(*_: Any, **__: Any) -> AsyncIterator[RunView]:
        yield RunView.of(RUN_ID, [])

    monkeypatch.setattr(drive_module, "progress_display", show_nothing)
    monkeypatch.setattr(drive_module, "importing_framework", contextlib.nullcontext)


def test_a_second_ctrl_c_leaves_also_when_the_run_has_just_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> tuple[bool, list[str]]:
        run = Interrupted()
        monkeypatch.setattr(drive_module, "leave", run.leave)
        return await run.play(contextlib.nullcontext()), run.left

    try:
        assert asyncio.run(play()) == (True, [RUN_ID])
    except KeyboardInterrupt:
        pytest.fail("it cancelled what the command does at its end")


def test_where_the_process_goes_on_the_next_ctrl_c_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        run = Interrupted()
        monkeypatch.setattr(drive_module, "leave", run.leave)
        await run.play(drive_module.restoring_interrupts())

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(play())
