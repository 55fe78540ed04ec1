"""A person puts the files of a run back as they were before a call, whatever the call did to them."""

import asyncio
from typing import Any

import pytest
from tests.integration.engine.run.test_sandbox_choice import commanding
from tests.support.engine_world import Turn, World

from holdfast.enums import RunStatus
from holdfast.errors import ConfigInvalid, RunBusy, RunNotInState, StoreUnavailable
from holdfast.runtime.journal import Journal

EMPTY = "find . -name '*.py' -delete; echo made > made.txt"
UNSANDBOXED = {"is_unsandboxed": True, "started_by": "ann"}


def emptying(turn: Turn) -> Any:
    """An agent that empties the workspace and then wants to push, about which a person is asked."""
    turn.write("draft.txt", "written before, by no tool")
    return commanding(EMPTY, "git push")(turn)


def find_call(world: World, run_id: Any, command: str) -> Any:
    events = world.events(run_id, "tool.started")
    (event,) = [event for event in events if event.payload["args"].get("command") == command]
    return event


async def test_what_a_command_deleted_is_there_again(world: World) -> None:
    waiting = await world.run(emptying, **UNSANDBOXED)
    root, call = world.worktree(waiting.run_id), find_call(world, waiting.run_id, EMPTY)
    assert not (root / "app.py").exists()

    done = await world.engine().restore_files(waiting.run_id, before=call.seq, by="ben")

    assert (root / "app.py").read_text() == "print('hello')\n"
    assert (root / "draft.txt").exists(), "the files are those that the command found, not those of the last record"
    assert not (root / "made.txt").exists()
    assert (done.tree, done.reopened) == (call.payload["tree_before"], ("spec",))
    assert done.rescue_ref is not None
    assert "made.txt" in world.git("ls-tree", "--name-only", done.rescue_ref).split()
    (changed,) = world.events(waiting.run_id, "run.changed")
    assert (changed.payload["by"], changed.payload["restored"]["before"]) == ("ben", call.seq)


async def test_the_phase_under_way_starts_anew_and_hears_of_it(world: World) -> None:
    waiting = await world.run(emptying, **UNSANDBOXED)
    [approval] = await world.approvals(waiting.run_id)
    call = find_call(world, waiting.run_id, EMPTY)
    await world.engine().restore_files(waiting.run_id, before=call.seq, by="ben")

    done = await world.engine().resume(waiting.run_id)

    assert done.state is RunStatus.COMPLETED
    assert (world.worktree(waiting.run_id) / "app.py").exists()
    assert (done.phases[0].attempts, [row.id for row in await world.approvals(waiting.run_id, "superseded")]) == (
        2,
        [approval.id],
    )
    assert "A person put the files back as they were before this" in world.turns[-1].envelope
    assert "find . -name" in world.turns[-1].envelope


async def test_it_may_be_repeated(world: World) -> None:
    waiting = await world.run(emptying, **UNSANDBOXED)
    call = find_call(world, waiting.run_id, EMPTY)

    trees = [(await world.engine().restore_files(waiting.run_id, before=call.seq)).tree for _ in range(2)]

    assert trees == [call.payload["tree_before"]] * 2
    assert (await world.engine().resume(waiting.run_id)).state is RunStatus.COMPLETED


async def test_what_later_phases_build_on_is_not_taken_away(world: World) -> None:
    def script(turn: Turn) -> Any:
        return commanding(EMPTY)(turn) if turn.phase_key == "spec" else emptying(turn)

    waiting = await world.run(script, "spec", "plan", **UNSANDBOXED)
    first = world.events(waiting.run_id, "tool.started")[0]

    with pytest.raises(RunNotInState, match="Phase spec was completed"):
        await world.engine().restore_files(waiting.run_id, before=first.seq)
    with pytest.raises(ConfigInvalid):
        await world.engine().restore_files(waiting.run_id, before=99_999)


async def test_nothing_is_restored_under_someone_who_works(world: World) -> None:
    reached, let_on = asyncio.Event(), asyncio.Event()

    async def script(turn: Turn) -> None:
        reached.set()
        await let_on.wait()
        turn.hand_in()

    running = asyncio.create_task(world.run(script))
    await reached.wait()
    [run_id] = world.db.store.list_runs()

    with pytest.raises(RunBusy):
        await world.engine(script, db=world.open_database()).restore_files(run_id, before=1)
    let_on.set()
    await running


async def test_one_that_was_cut_off_before_it_was_recorded_is_done_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = await world.run(emptying, **UNSANDBOXED)
    call = find_call(world, waiting.run_id, EMPTY)
    append = Journal.append

    async def die_at_the_change(self: Journal, run_id: str, events: Any, **options: Any) -> Any:
        if any(event.kind == "run.changed" for event in events):
            raise StoreUnavailable("the power is gone")
        return await append(self, run_id, events, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", die_at_the_change)
        with pytest.raises(StoreUnavailable):
            await world.engine().restore_files(waiting.run_id, before=call.seq)
    assert world.events(waiting.run_id, "run.changed") == []
    assert (world.worktree(waiting.run_id) / "app.py").exists(), "the files are back, and nothing says so yet"

    done = await world.engine().restore_files(waiting.run_id, before=call.seq, by="ben")

    assert (done.tree, done.reopened) == (call.payload["tree_before"], ("spec",))
    assert (await world.engine().resume(waiting.run_id)).state is RunStatus.COMPLETED
