"""What is recorded is not done again, and a replay that asks for something else is refused."""

from typing import Any

import pytest
from langchain_core.exceptions import ContextOverflowError
from tests.support.agents.phase import ARTIFACT, LANE, RUN_ID, Phase, essence, open_log
from tests.support.agents.scripted_model import ScriptedModel, asks, says

from holdfast.agents.calls.gate import ModelCall, Usage
from holdfast.errors import Nondeterminism, ProviderContextExceeded, RowRefused
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.events import create_event
from holdfast.runtime.step import SameCommit, Stopped


async def test_replay_makes_no_call_and_changes_no_file(phase: Phase) -> None:
    messages = await phase.play()
    files, events = phase.files(), phase.events()
    (phase.root / "README.md").write_text("changed since\n")
    files["README.md"] = "changed since\n"
    (phase.root / ARTIFACT).unlink()
    del files[ARTIFACT]

    again = await phase.play(build={"model": ScriptedLike()})

    assert essence(again) == essence(messages)
    assert phase.files() == files
    assert phase.events() == events


async def test_the_live_agent_sees_what_a_replay_will_see(phase: Phase) -> None:
    live = await phase.play()
    replayed = await phase.play()

    assert [m.model_dump(exclude={"id"}) for m in live] == [m.model_dump(exclude={"id"}) for m in replayed]


async def test_nothing_but_the_work_is_in_the_workspace(phase: Phase) -> None:
    await phase.play()

    added = set(phase.files()) - {"README.md", "src/app.py", "rehearsal/add_greeting_command.md"}
    assert added == {
        ARTIFACT,
        "rehearsal/rehearsed_add_greeting_command.py",
        "rehearsal/test_rehearsed_add_greeting_command.py",
    }


async def test_other_messages_are_refused(phase: Phase) -> None:
    await phase.play()

    with pytest.raises(Stopped) as stopped:
        await phase.play(text="Do something else.", accept_drift=frozenset({"messages"}))

    assert isinstance(stopped.value.error, Nondeterminism)
    assert stopped.value.error.facts["changed"] == ["messages"]
    assert "fork" in stopped.value.error.hint
    assert "--accept-drift" not in stopped.value.error.hint


async def test_another_system_prompt_is_refused_unless_it_is_accepted(phase: Phase) -> None:
    messages = await phase.play()
    other = OtherPrompt(phase.folder)

    with pytest.raises(Stopped) as stopped:
        await other.play()
    accepted = await other.play(accept_drift=frozenset({"system"}))

    assert isinstance(stopped.value.error, Nondeterminism)
    assert stopped.value.error.facts["changed"] == ["system"]
    assert "--accept-drift" in stopped.value.error.hint
    assert f"fork {RUN_ID} implement" in stopped.value.error.hint
    assert essence(accepted) == essence(messages)


async def test_a_failure_of_the_model_is_replayed_without_a_call(phase: Phase) -> None:
    model = ScriptedModel(script=[ContextOverflowError("too long")])
    with pytest.raises(ProviderContextExceeded, match="too long"):
        await phase.play(build={"model": model})

    again = ScriptedModel(script=[says("never asked")])
    with pytest.raises(ProviderContextExceeded, match="too long"):
        await phase.play(build={"model": again})

    assert model.calls == [0]
    assert again.calls == []


async def test_a_second_turn_in_the_lane_goes_on_counting(phase: Phase) -> None:
    async def two_turns(model: Any) -> list[Any]:
        async with open_log(phase.store) as log:
            journal = phase.middleware(log)
            agent = phase.agent(journal, model=model)
            first = await agent.ainvoke({"messages": [{"role": "user", "content": "Go."}]})
            second = await agent.ainvoke(
                {"messages": [*first["messages"], {"role": "user", "content": "Repair it."}]},
            )
            await journal.drain()
            return list(second["messages"])

    model = ScriptedModel(script=[asks(("ls", {"path": "/"})), says("done"), says("repaired")])
    messages = await two_turns(model)
    replayed = await two_turns(ScriptedModel(script=[]))

    assert messages[-1].content == "repaired"
    assert essence(replayed) == essence(messages)
    assert [e.payload["key"] for e in phase.events() if e.kind == "model.response"] == [
        f"{LANE}/m0",
        f"{LANE}/m1",
        f"{LANE}/m2",
    ]


async def test_money_is_written_with_the_calls_it_belongs_to(phase: Phase) -> None:
    gate = Till()
    await phase.play(gate=gate, build={"model": ScriptedModel(script=[says("done")])})
    events = [(event.kind, event.payload.get("usage")) for event in phase.events()]

    replay = Till()
    await phase.play(gate=replay, build={"model": ScriptedModel(script=[])})

    assert [kind for kind, _ in events] == ["model.request", "budget.reserved", "model.response", "budget.settled"]
    assert gate.settled == [Usage(10, 5)]
    assert gate.calls[0].model == "scripted"
    assert replay.calls == []


async def test_a_failed_call_gives_its_reservation_back(phase: Phase) -> None:
    gate = Till()

    with pytest.raises(RuntimeError, match="boom"):
        await phase.play(gate=gate, build={"model": ScriptedModel(script=[RuntimeError("boom")])})

    kinds = [str(event.kind) for event in phase.events()]
    assert kinds == ["model.request", "budget.reserved", "budget.settled", "model.error"]


async def test_a_gate_that_refuses_keeps_the_call_from_being_made(phase: Phase) -> None:
    model = ScriptedModel(script=[says("never asked")])

    with pytest.raises(PermissionError):
        await phase.play(gate=ClosedTill(), build={"model": model})

    assert model.calls == []
    assert phase.events() == []


async def test_a_refusal_inside_a_subagent_is_not_the_tools_failure(phase: Phase) -> None:
    phase.model = "rehearsal-1:delegate"
    with pytest.raises(PermissionError, match="no money"):
        await phase.play(gate=ClosedTill(after=2))
    recorded = {str(event.kind) for event in phase.events()}

    messages = await phase.play(gate=Till())

    assert "tool.error" not in recorded
    assert messages[-1].content == f"Done: {ARTIFACT} is written."


async def test_a_row_that_refuses_inside_a_subagent_comes_out_as_itself(phase: Phase) -> None:
    phase.model = "rehearsal-1:delegate"
    with pytest.raises(RowRefused):
        await phase.play(gate=RefusingRow(after=2))

    messages = await phase.play(gate=Till())

    assert messages[-1].content == f"Done: {ARTIFACT} is written."


async def test_a_mutating_result_carries_what_the_hook_saw(phase: Phase) -> None:
    trees: list[str] = []

    async def look() -> dict[str, Any]:
        trees.append(f"tree{len(trees)}")
        return {"tree": trees[-1]}

    await phase.play(after_mutation=look)

    results = [event.payload for event in phase.events() if event.kind == "tool.result"]
    with_tree = {str(payload["result"]["tree"]): payload["key"] for payload in results if "tree" in payload["result"]}
    assert sorted(with_tree) == sorted(trees)
    assert sorted(with_tree.values()) == [f"{LANE}/m2.t0", f"{LANE}/m2.t1", f"{LANE}/m2.t2", f"{LANE}/m3.t0"]


class ScriptedLike(ScriptedModel):
    """Looks like the simulated model to the journal, but has nothing to say."""

    script: list[Any] = []  # noqa: RUF012 - pydantic copies it
    model: str = "rehearsal-1"

    @property
    def _llm_type(self) -> str:
        return "holdfast-simulated"


class OtherPrompt(Phase):
    @property
    def persona(self) -> Any:
        return super().persona.model_copy(update={"system_prompt": "Edited since."})


class Till:
    """A gate that writes down what it is told."""

    def __init__(self) -> None:
        self.calls: list[ModelCall] = []
        self.settled: list[Usage | None] = []

    def before(self, call: ModelCall) -> SameCommit:
        self.calls.append(call)
        return SameCommit(events=[create_event(RUN_ID, "budget.reserved", call.lane_id)])

    def after(self, call: ModelCall, usage: Usage | None) -> SameCommit:
        self.settled.append(usage)
        return SameCommit(events=[create_event(RUN_ID, "budget.settled", call.lane_id)])

    def failed(self, call: ModelCall, error: Exception) -> SameCommit:
        return SameCommit(events=[create_event(RUN_ID, "budget.settled", call.lane_id)])


class ClosedTill(Till):
    """Admits so many calls and then no more."""

    def __init__(self, after: int = 0) -> None:
        super().__init__()
        self._after = after

    def before(self, call: ModelCall) -> SameCommit:
        if len(self.calls) >= self._after:
            raise PermissionError("no money")
        return super().before(call)


class RefusingRow(ClosedTill):
    """Lets the store find out that the money is spent."""

    def before(self, call: ModelCall) -> SameCommit:
        if len(self.calls) >= self._after:
            spend = Statement("UPDATE journal_runs SET run_id = run_id WHERE run_id = :nobody", {"nobody": "nobody"})
            return SameCommit(rows=[spend])
        return super().before(call)
