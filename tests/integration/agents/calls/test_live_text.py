"""What a model says can be watched while it says it, and replay does not depend on it."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from tests.support.agents.phase import LANE, Phase
from tests.support.agents.served_phase import KEY, KEY_VARIABLE, ServedPhase
from tests.support.model_server import Breaks, ModelServer, Says
from tests.support.progress_limit import until

from holdfast.runtime.events import Event

TEXT = "One word after the other, slowly enough to be watched."


@pytest.fixture
def may_end() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, may_end: threading.Event) -> Iterator[ModelServer]:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    slow = Says(TEXT, reasoning="I think it over.", piece_chars=1, pause_s=0.01, holds=may_end)
    with ModelServer({"Go": [slow], "Break": [[Breaks("cut"), Says("Whole.")]]}) as running:
        yield running


def events_of_kind(phase: Phase, kind: str) -> list[Event]:
    return [event for event in phase.events() if event.kind == kind]


async def test_the_text_comes_in_pieces_and_is_whole_at_the_end(phase: Phase, server: ModelServer) -> None:
    await ServedPhase(phase.folder, address=server.address).play(text="Go.")

    pieces = events_of_kind(phase, "text.delta")
    assert "".join(event.payload["text"] for event in pieces) == TEXT
    assert 1 < len(pieces) < len(TEXT)
    assert {event.visibility for event in pieces} == {"public"}
    assert [event.payload for event in events_of_kind(phase, "text.done")] == [
        {"key": f"{LANE}/m0", "chars": len(TEXT)}
    ]
    assert [event.payload["text"] for event in events_of_kind(phase, "reasoning.summary")] == ["I think it over."]


async def test_no_piece_stands_behind_the_answer(phase: Phase, server: ModelServer) -> None:
    await ServedPhase(phase.folder, address=server.address).play(text="Go.")

    kinds = [event.kind for event in phase.events()]
    answer = kinds.index("model.response")
    texts = [index for index, kind in enumerate(kinds) if kind.startswith(("text.", "reasoning."))]
    assert texts
    assert max(texts) < answer


async def test_pieces_are_there_before_the_answer(phase: Phase, server: ModelServer, may_end: threading.Event) -> None:
    may_end.clear()
    playing = asyncio.create_task(ServedPhase(phase.folder, address=server.address).play(text="Go."))
    await until(lambda: (phase.folder / "run.db").exists() and events_of_kind(phase, "text.delta"))
    assert not playing.done()
    may_end.set()
    await playing


async def test_replay_writes_no_text_again(phase: Phase, server: ModelServer) -> None:
    served = ServedPhase(phase.folder, address=server.address)
    await served.play(text="Go.")
    events = phase.events()

    await served.play(text="Go.")

    assert phase.events() == events


async def test_the_pieces_of_another_attempt_say_so(phase: Phase, server: ModelServer) -> None:
    await ServedPhase(phase.folder, address=server.address).play(text="Break.")

    assert [(e.payload["text"], e.payload.get("attempt")) for e in events_of_kind(phase, "text.delta")] == [
        ("Whole.", 2)
    ]


CHINESE = "没有空格的文字也要一段一段地出现，" * 6


async def test_text_without_blanks_comes_in_pieces_too(phase: Phase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    may_end = threading.Event()
    with ModelServer({"Go": [Says(CHINESE, piece_chars=3, pause_s=0.01, holds=may_end)]}) as server:
        playing = asyncio.create_task(ServedPhase(phase.folder, address=server.address).play(text="Go."))
        await until(
            lambda: (
                (phase.folder / "run.db").exists()
                and "".join(event.payload["text"] for event in events_of_kind(phase, "text.delta")) == CHINESE
            ),
            "all of the text is there before the answer ends",
        )
        assert not playing.done()
        may_end.set()
        await playing


async def test_a_known_secret_is_not_cut_in_two_whatever_its_characters(
    phase: Phase, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "这是一个很长的秘密口令"
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    monkeypatch.setenv("MY_PASSWORD", secret)
    with ModelServer({"Go": [Says(f"口令是{secret}。" * 8, piece_chars=1, pause_s=0.02)]}) as server:
        await ServedPhase(phase.folder, address=server.address).play(text="Go.")

    text = "".join(event.payload["text"] for event in events_of_kind(phase, "text.delta"))
    assert text == "口令是[secret]。" * 8
