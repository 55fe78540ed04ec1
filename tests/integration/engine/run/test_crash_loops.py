"""Runs that kill whoever drives them wait for a person, however far each process came with them."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.support.engine_world import World, phase, template
from tests.support.progress_limit import until

from holdfast.engine import run_owner
from holdfast.enums import RunStatus
from holdfast.errors import RunBusy
from holdfast.persistence.statements import set_wake
from holdfast.runtime.checkpoint import process_owner
from holdfast.runtime.checkpoint.base import Claim
from holdfast.runtime.events import EventKind, create_event
from holdfast.runtime.outcomes.crashes import find_crash_loop


class Died(BaseException):
    """The process is gone."""


def test_f7_only_deaths_with_nothing_recorded_between_them_count() -> None:
    claim, takeover = Claim("r", 3, 9), Claim("r", 3, 9, is_takeover=True)
    death = create_event("r", EventKind.RUN_RESUMED, taken_over=True)
    resumed, result = create_event("r", EventKind.RUN_RESUMED), create_event("r", EventKind.TOOL_RESULT)

    assert find_crash_loop(takeover, [death, death]) is not None
    assert find_crash_loop(claim, [death, death]) is None
    assert find_crash_loop(takeover, [death]) is None
    assert find_crash_loop(takeover, [death, result, death]) is None
    assert find_crash_loop(takeover, [death, resumed]) is None

    def taken(*heads: int) -> Claim:
        return Claim("r", 3, heads[-1], is_takeover=True, takeovers=heads)

    # What claims have counted does not need the event that the owner came to.
    numbered = [replace(resumed, seq=8), replace(result, seq=9)]
    assert find_crash_loop(taken(9, 9, 9), numbered) is not None
    assert find_crash_loop(taken(9, 10, 12), numbered) is not None
    assert find_crash_loop(taken(8, 9, 9), numbered) is None
    assert find_crash_loop(taken(9, 9), numbered) is None
    # Nor need anybody read the journal if nothing was written since.
    assert find_crash_loop(taken(9, 9, 9)) is not None
    assert find_crash_loop(taken(8, 9, 9)) is None


async def test_f7_a_run_whose_owners_died_three_times_waits_for_a_person(world: World) -> None:
    run_id = await world.run_and_stop(lambda _turn: None)
    for _ in range(2):
        world.db.store.save_event(create_event(run_id, EventKind.RUN_RESUMED, taken_over=True))
    await _leave_claim(world, run_id)

    paused = await world.engine().resume(run_id)
    assert (paused.state, paused.waiting_for) == (RunStatus.PAUSED, "crashing")

    assert (await world.engine().resume(run_id)).state is RunStatus.COMPLETED


@pytest.mark.parametrize("dies_in", ["open_files", "open_carrier", "load_run"])
@pytest.mark.parametrize("database_url", ["sqlite", "postgres"], indirect=True)
async def test_f7_a_run_that_kills_before_it_is_resumed_waits_for_a_person(
    world: World, monkeypatch: pytest.MonkeyPatch, dies_in: str
) -> None:
    run_id = await world.run_and_stop(lambda _turn: None)
    engine = world.engine()

    async def die(*_args: Any, **_options: Any) -> None:
        raise Died

    for deaths in (1, 2):
        await _leave_claim(world, run_id)
        with monkeypatch.context() as deadly:
            deadly.setattr(run_owner, dies_in, die)
            with pytest.raises(Died):
                await engine.drive_due(run_id)
        assert world.events(run_id)[-1].kind != EventKind.RUN_RESUMED, deaths
    await _leave_claim(world, run_id)
    with monkeypatch.context() as deadly:
        deadly.setattr(run_owner, dies_in, die)  # who finds that it is enough does not come there
        await engine.drive_due(run_id)
    row = await world.run_row(run_id)
    assert (row.state, row.pause_reason) == (RunStatus.PAUSED, "crashing")

    assert (await engine.resume(run_id)).state is RunStatus.COMPLETED


async def test_f7_a_retry_that_kills_its_process_waits_for_a_person(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_turn: object) -> None:
        raise ValueError("not this time")

    failed = await world.run(fail, phase("spec"))
    run_id = str(failed.run_id)
    engine = world.engine()

    async def die(*_args: Any) -> None:
        raise Died

    for _ in range(2):
        await _leave_claim(world, run_id)
        with monkeypatch.context() as deadly:
            deadly.setattr(run_owner, "open_files", die)
            with pytest.raises(Died):
                await engine.retry(run_id)
    await _leave_claim(world, run_id)

    paused = await engine.retry(run_id)
    assert (failed.state, paused.state, paused.waiting_for) == (RunStatus.FAILED, RunStatus.PAUSED, "crashing")
    assert (await engine.resume(run_id)).state is RunStatus.COMPLETED


async def test_f7_whoever_only_asks_that_a_run_goes_on_does_not_hide_that_its_owner_died(world: World) -> None:
    run_id = await world.run_and_stop(lambda _turn: None)
    for _ in range(2):
        world.db.store.save_event(create_event(run_id, EventKind.RUN_RESUMED, taken_over=True))
    await _leave_claim(world, run_id)

    request = create_event(run_id, EventKind.RUN_RESUME_REQUESTED, by="you")
    await world.engine().change(run_id, then=[request], beside=[set_wake(run_id)])
    paused = await world.engine().resume(run_id)

    assert (paused.state, paused.waiting_for) == (RunStatus.PAUSED, "crashing")


async def test_nobody_asks_a_run_to_go_on_that_is_being_driven(world: World) -> None:
    claim = world.db.store.claim(run_id := await world.run_and_stop(lambda _turn: None))

    with pytest.raises(RunBusy):
        await world.engine().change(run_id, beside=[set_wake(run_id)])

    world.db.store.release(claim)
    assert (await world.run_row(run_id)).wake is None


async def test_f7_that_a_run_is_set_up_anew_on_each_machine_is_no_progress(worlds: tuple[World, World]) -> None:
    here, there = worlds
    made = template("spec", setup=[["true"]], sandbox=False)
    run_id = await here.run_and_stop(lambda _turn: None, template=made, engine={"carry_files": True})
    there.know(made)
    for world in (there, here):
        await _leave_claim(world, run_id)
        await _resume_and_stop(world, run_id)
        assert world.events(run_id)[-1].kind != EventKind.RUN_PAUSED
    await _leave_claim(there, run_id)

    paused = await there.engine(carry_files=True).resume(run_id)

    assert (paused.state, paused.waiting_for) == (RunStatus.PAUSED, "crashing")
    assert len(there.events(run_id, EventKind.WORKSPACE_PREPARED)) == 3


async def _resume_and_stop(world: World, run_id: str) -> None:
    """Drive the run on until its agent works, and give it up there."""
    reached = asyncio.Event()

    async def wait(_turn: Any) -> None:
        reached.set()
        await asyncio.Event().wait()

    driving = asyncio.create_task(world.engine(wait, carry_files=True).resume(run_id))
    await until(lambda: driving.done() or reached.is_set())
    assert not driving.done(), driving.result()
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)


async def _leave_claim(world: World, run_id: str) -> None:
    """Leave the run as an owner that was killed does."""
    if world.db.path is None:
        dead = process_owner.Owner("gone", "boot", "ns", 1, "1", "token").to_text()
        sql = "UPDATE journal_runs SET owner = :owner, lease_until = now() - interval '1 hour' WHERE run_id = :id"
        await world.sql(sql, owner=dead, id=run_id)
        await until(lambda: _is_server_settled(world))
    else:
        folder = Path(f"{os.path.realpath(world.db.path)}-locks")
        lock = world.db.store.claim(run_id)
        [path] = folder.iterdir()
        world.db.store.release(lock)
        path.touch()


def _is_server_settled(world: World) -> bool:
    """A lease that ended before the server was up for the time of one lease is believed until then."""
    sql = "SELECT clock_timestamp() - pg_postmaster_start_time() > interval '6 s'"
    with psycopg.connect(world.url) as connection:
        return connection.execute(sql.encode()).fetchone() == (True,)
