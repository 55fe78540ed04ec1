"""What a conversation shows of how it goes: the clock of the turn, and lines that do not stay behind."""

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

from holdfast.cli.repl import loop as repl
from holdfast.cli.repl.view import TalkView
from holdfast.runtime.events import Event, create_event


def at(ts: float, seq: int, kind: str, **payload: Any) -> Event:
    return Event.from_dict(create_event("r", kind, seq=seq, **payload).to_dict() | {"ts": ts})


def apply(view: TalkView, *events: tuple[float, str]) -> None:
    for ts, kind in events:
        view.apply(at(ts, view.last_seq + 1, kind))


def test_the_clock_counts_from_the_turns_start() -> None:
    lines: list[str] = []
    view = TalkView(lines.append)

    apply(view, (100, "run.created"), (101, "run.paused"))
    assert view.turn_began == 0
    apply(view, (500, "message.received"), (502, "run.resumed"), (503, "phase.started"), (504, "model.request"))
    assert view.turn_began == 500
    apply(view, (509, "model.response"), (510, "phase.completed"), (511, "run.paused"))
    assert view.turn_began == 0
    assert lines[-1] == "  10 s · $0.0000"
    apply(view, (900, "message.received"), (901, "run.resumed"), (902, "phase.started"), (903, "tool.started"))
    assert view.turn_began == 901  # 1 s in which the message lay there and nobody worked


def test_the_clock_stands_still_while_nobody_works() -> None:
    lines: list[str] = []
    view = TalkView(lines.append)

    apply(view, (100, "message.received"), (100, "phase.started"), (104, "human.approval.requested"))
    apply(
        view, (104, "run.paused"), (9000, "human.approval.received"), (9000, "run.resumed"), (9003, "phase.completed")
    )

    assert lines[-1] == "  7 s · $0.0000"


async def test_the_status_line_is_drawn_once_more_when_an_answer_has_ended() -> None:
    drawn: list[bool] = []
    is_ended = asyncio.Event()
    talk = SimpleNamespace(is_busy=True, notice="")

    def refresh() -> None:
        drawn.append(talk.is_busy)
        if not talk.is_busy:
            is_ended.set()
        talk.is_busy = False

    shell = SimpleNamespace(is_running=False)
    loop: Any = SimpleNamespace(_talk=talk, _shell=shell, prompt=SimpleNamespace(refresh=refresh))
    ticking = asyncio.create_task(repl._Repl._tick(loop))
    await asyncio.wait_for(is_ended.wait(), 30)
    ticking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await ticking
    assert drawn[:2] == [True, False]
