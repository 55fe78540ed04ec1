"""An agent that goes in circles is told so, handed to another model, and stopped with a diagnosis."""

from collections.abc import Iterator

import pytest
from tests.support.agents.phase import LANE, Phase
from tests.support.agents.served_phase import KEY, KEY_VARIABLE, ServedPhase
from tests.support.model_server import ModelServer, Says, asks

from holdfast.agents.calls.stall_detector import Limits, Stalled
from holdfast.errors import PhaseTimeout

LOOK = asks(("read_file", {"file_path": "/README.md"}))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    with ModelServer({"Go": [LOOK] * 9 + [Says("I stop here.")]}) as running:
        yield running


async def test_first_a_nudge_then_another_model_then_a_pause(phase: Phase, server: ModelServer) -> None:
    served = ServedPhase(phase.folder, address=server.address, fallback_models=("second",))

    with pytest.raises(Stalled) as stalled:
        await served.play(text="Go.")

    requests = [("same calls" in str(r.body["messages"][-1]["content"]), r.body["model"]) for r in server.received]
    assert requests == [(False, "main")] * 3 + [(True, "main")] * 2 + [(True, "second")] * 2
    assert stalled.value.facts["calls"][0]["times"] == 7
    assert [e.payload["key"] for e in phase.events() if e.kind == "step.completed"] == [f"{LANE}/m7/stalled"]


async def test_whoever_resumes_lets_it_go_on(phase: Phase, server: ModelServer) -> None:
    served = ServedPhase(phase.folder, address=server.address)
    with pytest.raises(Stalled):
        await served.play(text="Go.")
    before = len(server.received)

    messages = await served.play(text="Go.")
    replayed = await served.play(text="Go.")

    assert messages[-1].content == replayed[-1].content == "I stop here."
    assert len(server.received) == before + 3


async def test_work_is_limited(phase: Phase, server: ModelServer) -> None:
    served = ServedPhase(phase.folder, address=server.address)

    with pytest.raises(PhaseTimeout):
        await served.play(text="Go.", limits=Limits(max_work_s=0.0001))

    assert len(server.received) == 1
