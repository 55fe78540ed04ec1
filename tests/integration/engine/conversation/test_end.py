"""The end of a conversation that is no longer needed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.engine_world import World, hand_in, phase

import holdfast.engine
from holdfast.engine import WorkflowEngine
from holdfast.engine.conversation.journal import conversation_template, send_message
from holdfast.enums import RunStatus
from holdfast.errors import RunAlreadyTerminal, RunBusy
from holdfast.runtime.stores import open_journal


def open_engine(world: World, *, writes: str = "", fails: bool = False) -> Any:
    """An engine whose agent writes a file, or fails, and else says nothing."""
    engine = world.engine()

    def build(_persona: Any, _config: Any, *, root_dir: Path, **_: Any) -> Any:
        async def ainvoke(_state: Any, **_: Any) -> dict[str, Any]:
            if fails:
                raise RuntimeError("no answer today")
            if writes:
                (root_dir / writes).write_text("new\n")
            return {"messages": []}

        return SimpleNamespace(ainvoke=ainvoke)

    # `world` puts it back; `monkeypatch`, which ends after it, would put back the agents of `world.engine()`.
    holdfast.engine.build_agent = build
    return engine


async def converse(world: World, engine: WorkflowEngine, *, answers: bool = True) -> str:
    begun = await engine.run(conversation_template(), repo_path=world.repo)
    run_id = str(begun.run_id)
    await send_message(world.db, run_id, "What does it do?")
    if answers:
        await engine.resume(run_id)
    return run_id


async def test_one_that_changed_nothing_is_completed_and_its_worktree_is_gone(world: World) -> None:
    engine = open_engine(world)
    run_id = await converse(world, engine)
    assert world.worktree(run_id).is_dir()

    ended = await engine.end_conversation(run_id)

    assert ended.state is RunStatus.COMPLETED
    assert world.events(run_id)[-1].kind == "run.completed"
    assert not world.worktree(run_id).exists()
    assert world.git("branch", "--list", "holdfast/*") == ""
    with pytest.raises(RunAlreadyTerminal):
        await engine.end_conversation(run_id)


@pytest.mark.parametrize("why", ["changed", "failed", "unanswered"])
async def test_one_with_something_in_it_stays(world: World, why: str) -> None:
    writes = "new.txt" if why == "changed" else ""
    engine = open_engine(world, writes=writes, fails=why == "failed")
    run_id = await converse(world, engine, answers=why != "unanswered")
    before = await world.kinds(run_id)

    stayed = await engine.end_conversation(run_id)

    assert (stayed.state, stayed.waiting_for) == (RunStatus.PAUSED, "message")
    assert await world.kinds(run_id) == before
    assert world.worktree(run_id).is_dir()


async def test_one_that_somebody_holds_is_left_to_them(world: World) -> None:
    engine = open_engine(world)
    run_id = await converse(world, engine)
    async with open_journal(world.open_database().store) as journal:
        claim = await journal.claim(run_id)
        with pytest.raises(RunBusy):
            await engine.end_conversation(run_id)
        await journal.release(claim)

    assert (await engine.end_conversation(run_id)).state is RunStatus.COMPLETED


async def test_a_run_that_is_no_conversation_is_not_ended(world: World) -> None:
    result = await world.run(hand_in, phase("spec", approval="always"))
    assert result.state is RunStatus.PAUSED

    stayed = await world.engine().end_conversation(result.run_id)

    assert (stayed.state, stayed.waiting_for) == (RunStatus.PAUSED, "approval")
