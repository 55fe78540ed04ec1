"""A person's pause: durable, by whoever drives the run, and taken back by resuming it."""

import asyncio
import uuid

import pytest
from tests.support.engine_processes import Zygote
from tests.support.engine_world import Turn, World, hand_in, phase

from holdfast.agents.calls.provider_errors import ProviderPause
from holdfast.agents.calls.stall_detector import Stalled
from holdfast.engine.run.carrier import FilesTooLarge
from holdfast.enums import RunStatus
from holdfast.errors import ProviderKeyRefused, WorkspaceTooLarge
from holdfast.fleet.run_drive import WorkflowDrive
from holdfast.persistence.listings import list_due
from holdfast.persistence.statements import set_wake
from holdfast.runtime.step import Suspended
from holdfast.runtime.stores import open_journal


async def test_a_live_owner_pauses_in_the_middle_of_a_turn_and_a_resume_goes_on(world: World) -> None:
    started = asyncio.Event()

    async def hang(_turn: Turn) -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(world.run(hang, "spec", "plan"))
    await started.wait()
    [run_id] = world.db.store.list_runs()
    paused = await world.engine(db=world.open_database()).pause(run_id, by="ann")
    driven = await task

    assert (paused.state, paused.waiting_for, driven.state) == (RunStatus.PAUSED, "person", RunStatus.PAUSED)
    [event] = world.events(run_id, "run.paused")
    assert (event.payload["reason"], event.payload["by"]) == ("person", "ann")
    done = await world.engine(hand_in).resume(run_id)
    assert done.state is RunStatus.COMPLETED
    assert [item.attempts for item in done.phases] == [1, 1]


async def test_a_dead_owners_run_is_paused_here_and_nobody_recovers_it(world: World, zygote: Zygote) -> None:
    run_id = str(uuid.uuid4())
    owner = zygote.start(world, "run_and_hang", run_id, "nothing")
    owner.wait_for(world.folder / "is-hanging")
    owner.kill()

    assert (await world.engine().pause(run_id)).state is RunStatus.PAUSED
    assert await world.engine().recover() == []


async def test_a_pause_after_a_run_was_found_due_and_before_it_was_taken_counts(world: World) -> None:
    run_id = await world.run_and_stop(lambda _turn: None)
    engine = world.engine(hand_in)
    [due] = await list_due(world.db)

    await engine.pause(run_id, by="ann")
    async with open_journal(world.db.store) as journal:
        await WorkflowDrive(journal, engine, due).run()

    assert (await world.run_row(run_id)).state == RunStatus.PAUSED
    assert world.events(run_id, "run.resumed") == []
    assert (await engine.resume(run_id)).state is RunStatus.COMPLETED


async def test_a_pause_takes_back_a_request_to_go_on_that_nobody_has_served(world: World) -> None:
    run_id = await world.run_and_stop(lambda _turn: None)
    engine = world.engine(hand_in)
    await engine.pause(run_id, by="ann")
    await engine.change(run_id, beside=[set_wake(run_id)])
    assert await list_due(world.db)

    paused = await engine.pause(run_id, by="bob")

    assert (paused.state, await list_due(world.db)) == (RunStatus.PAUSED, [])
    assert [event.payload["by"] for event in world.events(run_id, "run.paused")] == ["ann", "bob"]
    assert (await engine.resume(run_id)).state is RunStatus.COMPLETED


async def test_a_request_that_nobody_acted_on_does_not_stop_a_later_resume(world: World) -> None:
    waiting = await world.run(hand_in, phase("spec", risk="high"), "plan")
    assert (await world.engine().pause(waiting.run_id)).waiting_for == "approval"
    [approval_id] = [event.payload["approval_id"] for event in world.events(waiting.run_id, "human.approval.requested")]
    await world.engine().decide(waiting.run_id, approval_id, "approve")

    assert (await world.engine(hand_in).resume(waiting.run_id)).state is RunStatus.COMPLETED


@pytest.mark.parametrize(
    ("urgent", "reason", "code"),
    [
        (ProviderPause(ProviderKeyRefused("The key is refused.")), "provider", "provider_key_refused"),
        (Stalled("It gets nowhere."), "stalled", None),
    ],
)
async def test_of_several_reasons_to_wait_the_error_is_that_of_the_most_urgent_one(
    world: World, urgent: Suspended, reason: str, code: str | None
) -> None:
    def wait(turn: Turn) -> None:
        raise FilesTooLarge(WorkspaceTooLarge("Too big.")) if turn.phase_key == "first" else urgent

    paused = await world.run(wait, *(phase(key, needs=[], read_only=True) for key in ("first", "second")))

    assert (paused.waiting_for, paused.error and paused.error.code) == (reason, code)
    [event] = world.events(paused.run_id, "run.paused")
    assert event.payload.get("error", {}).get("code") == code
