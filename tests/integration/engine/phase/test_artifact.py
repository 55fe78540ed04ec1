"""What a phase must hand in, how it is asked once more, and how it fails."""

import asyncio
import json
from typing import Any

import pytest
from tests.support.engine_world import Turn, World, artifact, hand_in, phase

from holdfast.engine import RunResult
from holdfast.enums import RunStatus


def failure(result: RunResult) -> str | None:
    assert result.state is RunStatus.FAILED
    assert result.error is not None
    return result.error.code


async def test_a_repair_turn_keeps_the_envelope_and_names_every_finding(world: World) -> None:
    def script(turn: Turn) -> None:
        turn.hand_in() if turn.is_repair else turn.hand_in(risks="none", approach="short")

    result = await world.run(script)

    first, second = world.turns
    assert result.state is RunStatus.COMPLETED
    assert second.envelope == first.envelope
    assert "risks" in second.messages[1]["content"]
    assert "approach" in second.messages[1]["content"]


@pytest.mark.parametrize(
    ("handed_in", "code"),
    [
        (None, "artifact_missing"),
        ("{}", "artifact_invalid"),
        ("not JSON", "artifact_invalid"),
        ('{"runId": 1, "runId": 2}', "artifact_invalid"),
        ("[" * 100_000, "artifact_invalid"),
        ('"\\ud800"', "artifact_invalid"),
    ],
)
async def test_after_one_repair_turn_the_phase_and_the_run_fail(world: World, handed_in: Any, code: str) -> None:
    result = await world.run(lambda turn: None if handed_in is None else turn.hand_in(handed_in), "spec", "plan")

    assert failure(result) == code
    assert world.phases_done() == ["spec", "spec"]
    assert await world.phase_states(result.run_id) == {"spec": "failed", "plan": "pending"}
    assert (await world.kinds(result.run_id))[-2:] == ["phase.failed", "run.failed"]


async def test_a_missing_artifact_is_asked_for_by_its_path(world: World) -> None:
    await world.run(lambda _turn: None)

    assert "out/spec.json" in world.turns[1].messages[1]["content"]


async def test_a_file_that_was_there_before_is_not_the_result(world: World) -> None:
    (world.repo / "out").mkdir()
    (world.repo / "out/spec.json").write_text(json.dumps(artifact("00000000-0000-4000-8000-000000000000", "spec")))
    world.git("add", ".")
    world.git("commit", "-q", "-m", "stale")

    result = await world.run(lambda _turn: None)

    assert failure(result) == "artifact_missing"
    assert (world.repo / "out/spec.json").exists()
    assert [path.name for path in (world.worktree(result.run_id) / "out").iterdir()] == ["spec.json.before-spec-1"]


async def test_a_file_behind_a_link_out_of_the_workspace_is_neither_moved_nor_taken(world: World) -> None:
    outside = world.folder / "outside"
    outside.mkdir()
    (outside / "spec.json").write_text(json.dumps(artifact("00000000-0000-4000-8000-000000000000", "spec")))
    (world.repo / "out").symlink_to(outside)
    world.git("add", ".")
    world.git("commit", "-q", "-m", "a link")

    result = await world.run(lambda _turn: None)

    assert failure(result) == "artifact_missing"
    assert [path.name for path in outside.iterdir()] == ["spec.json"]


async def test_ids_of_another_run_or_phase_only_warn(world: World) -> None:
    other = "11111111-1111-4111-8111-111111111111"

    result = await world.run(lambda turn: turn.hand_in(runId=other, phaseKey="elsewhere"))

    assert result.state is RunStatus.COMPLETED
    [written] = world.events(result.run_id, "artifact.written")
    assert len(written.payload["result"]["warnings"]) == 2
    assert len(world.turns) == 1


async def test_an_agent_that_takes_too_long_is_stopped(world: World) -> None:
    stopped = asyncio.Event()

    async def script(_turn: Turn) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    result = await world.run(script, phase("spec", timeout_seconds=0.2))

    assert failure(result) == "phase_timeout"
    assert stopped.is_set()


async def test_nothing_waits_for_the_time_out_when_the_agent_has_returned(world: World) -> None:
    result = await world.run(hand_in, phase("spec", timeout_seconds=604_800))

    assert result.state is RunStatus.COMPLETED


async def test_a_time_out_of_the_agents_own_is_its_failure_and_not_the_phases(world: World) -> None:
    async def script(_turn: Turn) -> None:
        raise TimeoutError("the server did not answer")

    result = await world.run(script)

    assert failure(result) == "agent_failed"
    assert "the server did not answer" in str(result.error)


@pytest.mark.parametrize(
    "error",
    [ValueError("bad\0 luck \ud800"), asyncio.CancelledError("by itself"), ExceptionGroup("two", [KeyError("a")])],
    ids=["odd text", "cancelled", "group"],
)
async def test_an_agent_that_raises_fails_its_phase(world: World, error: BaseException) -> None:
    async def script(_turn: Turn) -> None:
        raise error

    result = await world.run(script, "spec", "plan")

    assert failure(result) == "agent_failed"
    assert world.phases_done() == ["spec"]
    assert len(world.events(result.run_id, "agent.error")) == 1


async def test_a_phase_is_tried_as_often_as_it_may_and_told_why(world: World) -> None:
    async def script(turn: Turn) -> None:
        if len(world.turns) < 3:
            raise RuntimeError(f"no luck {len(world.turns)}")
        turn.hand_in()

    result = await world.run(script, phase("spec", attempts=3))

    assert result.state is RunStatus.COMPLETED
    assert [item.attempts for item in result.phases] == [3]
    assert "no luck 2" in world.turns[2].envelope
    assert "no luck 1" not in world.turns[2].envelope


async def test_a_phase_is_not_tried_more_often_than_it_may(world: World) -> None:
    result = await world.run(lambda _turn: None, phase("spec", attempts=2))

    assert failure(result) == "artifact_missing"
    assert len(world.turns) == 4
    assert [item.attempts for item in result.phases] == [2]


async def test_a_result_of_any_shape_will_do(world: World) -> None:
    def script(turn: Turn) -> Any:
        turn.hand_in()
        return {"spec": {"messages": [object()]}, "plan": ["no", "dict"], "code": {}}[turn.phase_key]

    result = await world.run(script, "spec", "plan", "code")

    assert result.state is RunStatus.COMPLETED


async def test_a_tools_result_that_cannot_be_kept_is_given_to_the_agent_as_it_is(world: World) -> None:
    results: list[Any] = []

    async def script(turn: Turn) -> None:
        results.append(await turn.use_tool("deploy", lambda: world, where="here"))
        turn.hand_in()

    result = await world.run(script)

    assert result.state is RunStatus.COMPLETED
    assert results == [world]
    [started] = world.events(result.run_id, "tool.started")
    assert started.payload["tool"] == "deploy"
    assert len(world.events(result.run_id, "tool.result")) == 1
