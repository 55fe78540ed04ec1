"""A person's pause: durable, by whoever drives the run, and taken back by resuming it."""

import asyncio
import uuid
from typing import Any

import pytest
from tests.support.engine_processes import Zygote
from tests.support.engine_world import Turn, World, hand_in, phase, template
from tests.support.progress_limit import waiting_until

from holdfast.agents.calls.provider_errors import ProviderPause
from holdfast.agents.calls.stall_detector import Stalled
from holdfast.engine.run.carrier import FilesTooLarge
from holdfast.engine.run.create import RunOrder
from holdfast.enums import RunStatus
from holdfast.errors import ProviderKeyRefused, WorkspaceTooLarge
from holdfast.fleet.run_drive import WorkflowDrive
from holdfast.persistence.listings import list_due
from holdfast.persistence.statements import ask_resume, set_wake
from holdfast.runtime.events import EventKind, create_event
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


@pytest.mark.parametrize("ends_with", ["pause", "completed", "failed"])
async def test_a_request_to_go_on_with_a_run_that_is_driven_ends_with_the_drive(world: World, ends_with: str) -> None:
    async def play(turn: Turn) -> None:
        async with open_journal(world.open_database().store) as journal:
            await journal.append(turn.run_id, [], rows=[set_wake(turn.run_id)])
        if ends_with == "pause":
            async with open_journal(world.open_database().store) as journal:
                await journal.append(turn.run_id, [create_event(turn.run_id, EventKind.RUN_PAUSE_REQUESTED, by="ann")])
            await asyncio.Event().wait()  # the pause ends it
        if ends_with == "completed":
            turn.hand_in()

    end = await world.run(play, phase("spec", attempts=1))

    assert end.waiting_for == "person" if ends_with == "pause" else end.state == ends_with
    assert ((await world.run_row(end.run_id)).wake, await list_due(world.db)) == (None, [])


async def test_an_answer_that_comes_while_another_phase_runs_lets_the_run_go_on_though_it_waits(world: World) -> None:
    async def play(turn: Turn) -> None:
        turn.hand_in()
        if turn.phase_key == "slow":
            [question] = await until_question(world, turn.run_id)
            answer = {"beside": [set_wake(turn.run_id)]}  # as over HTTP
            await answering.decide(turn.run_id, question.id, "approve", **answer)

    answering = world.engine()
    risky = {"risk": "high", "read_only": True}
    waits = await world.run(
        play, phase("quick", **risky), phase("slow", needs=[], **risky), phase("end", needs=["quick"])
    )

    assert waits.waiting_for == "approval"
    assert len(await world.approvals(waits.run_id)) == 1
    assert [due.run_id for due in await list_due(world.db)] == [str(waits.run_id)]


async def until_question(world: World, run_id: str) -> list[Any]:
    with waiting_until("the other phase asks"):
        while not (found := await world.approvals(run_id)):
            await asyncio.sleep(0.01)
    return found


@pytest.mark.parametrize(
    ("state", "asks"),
    [("running", ask_resume), ("completed", ask_resume), ("completed", set_wake), ("failed", set_wake)],
)
async def test_a_request_that_comes_too_late_changes_nothing(world: World, state: str, asks: Any) -> None:
    run_id = await world.run_and_stop(lambda _turn: None)
    await world.sql("UPDATE runs SET state = :state WHERE id = :id", state=state, id=run_id)

    async with open_journal(world.db.store) as journal:
        await journal.append(run_id, [], rows=[asks(run_id)])

    assert (await world.run_row(run_id)).wake is None
    world.is_damaged = True


async def test_whoever_resumes_a_run_for_later_has_it_go_on_now(world: World) -> None:
    order = RunOrder(due_at="2030-01-01T00:00:00.000Z")
    made = world.know(template("spec"))
    run_id = await world.engine().create(made, repo_path=world.repo, order=order)
    assert await list_due(world.db) == []

    await world.engine().change(run_id, beside=[ask_resume(run_id)])

    assert [due.run_id for due in await list_due(world.db)] == [run_id]
    assert (await world.run_row(run_id)).wake is None


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
