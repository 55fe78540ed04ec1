"""Calls side by side: each keeps its own place, and none is lost because of another."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.agents.phase import LANE, Phase, essence, outcomes
from tests.support.agents.scripted_model import ScriptedModel, asks, says, tool

from holdfast.agents.calls.middleware import JournalMiddleware
from holdfast.agents.tools.files import WholeFileBackend
from holdfast.agents.tools.rules import CommandSpool, ToolRule, file_tool_rules
from holdfast.runtime.step import CancelRun, Interrupted, Stopped, Suspended

MakeBench = Callable[[BaseException | None], "Bench"]
EAGER = {"slow": ToolRule("rerun"), "stop": ToolRule("rerun")}


class Bench:
    """Two tools: `slow` is in the middle of its work when `stop` raises, and ends when the agent is drained."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error
        self.done: list[str] = []
        self.is_begun = asyncio.Event()
        self.may_end = asyncio.Event()

    async def slow(self, word: str) -> str:
        self.is_begun.set()
        await self.may_end.wait()
        self.done.append(word)
        return f"did {word}"

    async def stop(self, word: str) -> str:
        await self.is_begun.wait()
        if self.error is not None:
            raise self.error
        self.done.append(word)
        return f"did {word}"

    @property
    def tools(self) -> list[Any]:
        return [tool("slow", self.slow), tool("stop", self.stop)]


@pytest.fixture
def make_bench(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException | None], Bench]:
    drain = JournalMiddleware.drain

    def make(error: BaseException | None) -> Bench:
        bench = Bench(error)

        async def release(journal: JournalMiddleware, timeout_s: float | None = None) -> None:
            bench.may_end.set()  # only now: the framework has cancelled what it wanted to
            await drain(journal, timeout_s)

        monkeypatch.setattr(JournalMiddleware, "drain", release)
        return bench

    return make


def free_bench() -> Bench:
    """One whose tools wait for nothing."""
    bench = Bench(None)
    bench.is_begun.set()
    bench.may_end.set()
    return bench


def script() -> ScriptedModel:
    return ScriptedModel(script=[asks(("slow", {"word": "a"}), ("stop", {"word": "b"})), says("done")])


@pytest.mark.parametrize(
    "error",
    [Suspended("k"), Stopped(OSError("full")), CancelRun("enough", "a person")],
    ids=lambda error: type(error).__name__,
)
async def test_an_interruption_passes_through_and_loses_no_call_in_flight(
    phase: Phase, make_bench: MakeBench, error: Interrupted
) -> None:
    bench = make_bench(error)
    with pytest.raises(type(error)) as raised:
        await phase.play(rules=EAGER, build={"model": script(), "tools": bench.tools})

    after = free_bench()
    messages = await phase.play(rules=EAGER, build={"model": script(), "tools": after.tools})

    assert raised.value is error
    assert bench.done == ["a"]
    assert after.done == ["b"]
    assert [message.content for message in messages[2:]] == ["did a", "did b", "done"]


async def test_a_failure_beside_a_call_in_flight_loses_neither(phase: Phase, make_bench: MakeBench) -> None:
    bench = make_bench(RuntimeError("broken"))
    with pytest.raises(RuntimeError, match="broken"):
        await phase.play(rules=EAGER, build={"model": script(), "tools": bench.tools})

    after = free_bench()
    with pytest.raises(RuntimeError, match="broken"):
        await phase.play(rules=EAGER, build={"model": script(), "tools": after.tools})

    assert bench.done == ["a"]
    assert after.done == []
    assert {str(e.kind): e.payload["key"] for e in phase.events() if e.kind.startswith("tool.")} == {
        "tool.error": f"{LANE}/m0.t1",
        "tool.result": f"{LANE}/m0.t0",
    }


async def test_a_cancelled_agent_loses_no_call_in_flight(phase: Phase, make_bench: MakeBench) -> None:
    bench = make_bench(None)
    playing = asyncio.create_task(phase.play(rules=EAGER, build={"model": script(), "tools": bench.tools}))
    await bench.is_begun.wait()
    playing.cancel()

    with pytest.raises(asyncio.CancelledError):
        await playing

    assert sorted(bench.done) == ["a", "b"]
    assert set(outcomes(phase.events())) == {f"{LANE}/m0", f"{LANE}/m0.t0", f"{LANE}/m0.t1"}


async def test_missing_and_repeated_ids_are_made_unique_before_anything_is_recorded(phase: Phase) -> None:
    same = ("ls", {"path": "/"})
    model = ScriptedModel(
        script=[
            asks(same, ("read_file", {"file_path": "/README.md"}), same, ids=["call_0", "call_0", None]),
            asks(same, ids=["call_0"]),
            says("done"),
        ]
    )

    messages = await phase.play(build={"model": model})
    again = await phase.play(build={"model": ScriptedModel(script=[])})

    ids = [call["id"] for message in messages if message.type == "ai" for call in message.tool_calls]
    assert len(set(ids)) == 4
    assert ids[0] == "call_0"
    assert [message.tool_call_id for message in messages if message.type == "tool"] == ids
    assert set(outcomes(phase.events())) >= {f"{LANE}/m0.t{n}" for n in range(3)} | {f"{LANE}/m1.t0"}
    assert essence(again) == essence(messages)


async def test_subagents_side_by_side_keep_their_own_lanes(phase: Phase) -> None:
    phase.model = "rehearsal-1:delegate"

    messages = await phase.play()
    again = await phase.play()

    lanes = {event.lane_id for event in phase.events()}
    assert lanes == {LANE, f"{LANE}/m1.t0", f"{LANE}/m1.t1"}
    assert {f"{LANE}/m1.t0/m0.t0", f"{LANE}/m1.t1/m0.t0"} <= set(outcomes(phase.events()))
    assert essence(again) == essence(messages)


async def test_a_suspended_subagent_stops_the_other_before_its_next_step(phase: Phase, make_bench: MakeBench) -> None:
    bench = make_bench(Suspended("k"))
    ask = asks(
        ("task", {"description": "use slow", "subagent_type": "general-purpose"}),
        ("task", {"description": "use stop", "subagent_type": "general-purpose"}),
    )

    class Split(ScriptedModel):
        def _generate(self, messages: list[Any], *args: Any, **kwargs: Any) -> Any:
            helper = next((word for word in ("slow", "stop") if f"use {word}" in str(messages[-1].content)), None)
            if helper is not None:
                self.script = [asks((helper, {"word": helper}))]
                return super()._generate([])
            self.script = [ask, says("done"), says("never")]
            return super()._generate(messages)

    model = Split(script=[])
    with pytest.raises(Suspended):
        await phase.play(rules=EAGER, build={"model": model, "tools": bench.tools})

    assert bench.done == ["slow"]
    assert f"{LANE}/m0.t0/m0.t0" in outcomes(phase.events())
    assert f"{LANE}/m0.t0/m1" not in {event.payload["key"] for event in phase.events()}


async def test_no_file_tool_works_while_a_command_runs(phase: Phase, tmp_path: Path) -> None:
    """The file tools open paths as the user: a command that swaps a folder and a link would lead them out."""
    is_begun, may_end = asyncio.Event(), asyncio.Event()

    async def run(word: str) -> str:
        is_begun.set()
        await may_end.wait()
        (phase.root / "f.txt").write_text(word)
        return "ran"

    async def look(word: str) -> str:
        await is_begun.wait()
        may_end.set()
        return word

    rules = {**file_tool_rules(phase.root), "run": ToolRule("rerun", spool=CommandSpool(tmp_path / "spool"))}
    calls = [("run", {"word": "written"}), ("read_file", {"file_path": "/f.txt"}), ("look", {"word": "beside"})]
    model = ScriptedModel(script=[asks(*calls), says("done")])

    messages = await phase.play(rules=rules, build={"model": model, "tools": [tool("run", run), tool("look", look)]})

    assert "written" in str(messages[3].content)
    assert messages[4].content == "beside"


async def test_a_command_beside_a_file_tool_is_recorded_with_the_files_that_it_finds(
    phase: Phase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever restores the files before the command would lose what the file tool has written before it."""
    write = WholeFileBackend.awrite

    async def write_late(files: WholeFileBackend, *args: str) -> Any:
        for _ in range(100):  # the command has come as far as it can without its turn
            await asyncio.sleep(0)
        return await write(files, *args)

    async def run(word: str) -> str:
        return word

    async def look() -> str:
        return "after" if (phase.root / "f.txt").exists() else "before"

    monkeypatch.setattr(WholeFileBackend, "awrite", write_late)
    command = ToolRule("reattach", spool=CommandSpool(tmp_path / "spool"))
    calls = [("write_file", {"file_path": "/f.txt", "content": "x"}), ("run", {"word": "ran"})]
    model = ScriptedModel(script=[asks(*calls), says("done")])

    await phase.play(
        rules={**file_tool_rules(phase.root), "run": command},
        before_command=look,
        build={"model": model, "tools": [tool("run", run)]},
    )

    (begun,) = [event.payload for event in phase.events() if event.kind == "tool.started"]
    assert (begun["tool"], begun["tree_before"]) == ("run", "after")
