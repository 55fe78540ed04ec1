"""Schedules start each run once: two that fire at once, a crash after the start, missed times, overlaps, no clock's."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import text
from tests.support.progress_limit import waiting_until

from holdfast import Context, Runtime, cancel_flow, flow, list_flows, send_event, start_flow
from holdfast.api.server.engines import Engines
from holdfast.config import Config, load_config
from holdfast.errors import QueueUnknown, ScheduleInvalid
from holdfast.fleet import schedules
from holdfast.fleet.assembly import make_worker
from holdfast.fleet.schedules import (
    ScheduleClock,
    add_schedule,
    explain_skips,
    get_schedule,
    hold_schedule,
    run_id_of,
    start_now,
    start_scheduled,
)
from holdfast.fleet.worker import WorkerOptions
from holdfast.flows.service import flow_registry
from holdfast.persistence.db import Database
from holdfast.persistence.listings import list_due
from holdfast.persistence.schedule_table import Schedule, list_schedules, note_problem
from holdfast.persistence.statements import now_text, to_time_text
from holdfast.runtime.stores import open_journal

PAST = "2026-01-01T00:00:00.000Z"


class Died(BaseException):
    """The process is gone."""


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[tuple[Database, Config, Engines]]:
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "a.txt").write_text("a\n")
    config = load_config(data_dir=tmp_path / "data", database_url=database_url, workspace_root=tmp_path)
    db = Database(database_url)
    await db.init_schema()
    yield db, config, Engines(db, config)
    await db.dispose()


def hourly(tmp_path: Path, **options: Any) -> Schedule:
    values = {"name": "hourly", "target": "spec-and-review", "cron": "0 * * * *", "repo_path": str(tmp_path / "repo")}
    return Schedule(**{**values, "missed": "once", "options": {"simulate": True, "requirements_md": "x"}, **options})


async def add_overdue(world: Any, schedule: Schedule) -> None:
    """Add a schedule that nobody has fired for a while."""
    db, config, _ = world
    await add_schedule(db, config, schedule)
    await change(
        db, "UPDATE schedules SET last_at = :at, next_at = :at WHERE name = :name", at=PAST, name=schedule.name
    )


async def change(db: Database, sql: str, **params: Any) -> None:
    async with db.session() as session:
        await session.execute(text(sql), params)
        await session.commit()


async def read_runs(db: Database) -> list[Any]:
    async with db.session() as session:
        return list(await session.execute(text("SELECT id, schedule, state FROM runs ORDER BY created_at")))


async def test_two_servers_at_once_start_one_run_whose_id_is_known(world: Any, tmp_path: Path) -> None:
    db, _, engines = world
    await add_overdue(world, hourly(tmp_path))
    other = Database(db.address if db.path is None else f"sqlite+aiosqlite:///{db.path}")
    await asyncio.gather(*(ScheduleClock(each, engines).fire_due() for each in (db, other, db)))
    await other.dispose()
    await ScheduleClock(db, engines).fire_due()  # one that found the other busy looks again

    (run,) = await read_runs(db)
    stored = await get_schedule(db, "hourly")
    assert run.id == stored.last_run_id == run_id_of("hourly", stored.last_at)
    assert (run.schedule, run.state, stored.problem) == ("hourly", "pending", None)
    assert [due.run_id for due in await list_due(db)] == [run.id]
    assert await ScheduleClock(db, engines).fire_due() == 0


async def test_a_crash_between_start_and_record_starts_nothing_again(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, _, engines = world
    await add_overdue(world, hourly(tmp_path))

    async def die(*_args: Any, **_kw: Any) -> bool:
        raise Died

    monkeypatch.setattr(schedules, "advance_schedule", die)
    with pytest.raises(Died):
        await ScheduleClock(db, engines).fire_due()
    monkeypatch.undo()
    assert len(await read_runs(db)) == 1

    await ScheduleClock(db, engines).fire_due()
    (run,) = await read_runs(db)
    assert (await get_schedule(db, "hourly")).last_run_id == run.id


async def test_overlaps_are_skipped_or_queued_and_all_missed_times_are_made_up_for(world: Any, tmp_path: Path) -> None:
    db, _, engines = world
    await add_overdue(world, hourly(tmp_path, cron="0 0 1 */3 *", missed="all", overlap="queue"))
    await add_overdue(world, hourly(tmp_path, name="skipper", cron="0 0 1 */3 *", missed="all"))
    await ScheduleClock(db, engines).fire_due()

    runs = await read_runs(db)
    queued = [run.id for run in runs if run.schedule == "hourly"]
    assert len(queued) > 1
    assert len([run for run in runs if run.schedule == "skipper"]) == 1
    assert [due.run_id for due in await list_due(db) if due.run_id in queued] == queued[:1]


async def test_what_cannot_be_started_is_told_and_keeps_no_other_from_starting(world: Any, tmp_path: Path) -> None:
    db, _, engines = world
    await add_overdue(world, hourly(tmp_path, name="a-broken", target="no-such-workflow"))
    await add_overdue(world, hourly(tmp_path))

    assert await ScheduleClock(db, engines).fire_due() == 1
    assert "no-such-workflow" in str((await get_schedule(db, "a-broken")).problem)
    assert (await get_schedule(db, "a-broken")).last_at == PAST  # it is tried again


def two_hours_ago() -> datetime:
    return (datetime.now(UTC) - timedelta(hours=2)).replace(minute=0, second=0, microsecond=0)


async def test_a_time_that_could_not_start_is_tried_until_the_next_one_comes(world: Any, tmp_path: Path) -> None:
    db, config, engines = world
    due_at = two_hours_ago()
    await add_schedule(db, config, hourly(tmp_path, cron=f"0 {due_at.hour} * * *", missed="skip"))
    times = {"last": to_time_text(due_at - timedelta(days=1)), "due": to_time_text(due_at)}
    # A server tried it as it came, and then died; the repository is still out of reach.
    problem = "UPDATE schedules SET last_at = :last, next_at = :due, problem = 'It is gone.', problem_at = :due"
    await change(db, problem, **times)
    (tmp_path / "repo").rename(tmp_path / "away")
    assert await ScheduleClock(db, engines).fire_due() == 0
    failed = await get_schedule(db, "hourly")
    assert (failed.next_at, failed.last_at, failed.is_tried_again) == (times["due"], times["last"], True)
    assert str(failed.problem).startswith(f"Server on {socket.gethostname()}: ")
    assert "repo is no folder" in str(failed.problem)

    (tmp_path / "away").rename(tmp_path / "repo")
    assert await ScheduleClock(db, engines).fire_due() == 1
    stored = await get_schedule(db, "hourly")
    assert (stored.last_at, stored.last_run_id) == (times["due"], run_id_of("hourly", times["due"]))
    assert (stored.problem, stored.problem_at, stored.is_tried_again) == (None, None, False)


async def test_what_was_given_up_stays_to_be_seen_until_a_run_starts(world: Any, tmp_path: Path) -> None:
    db, config, engines = world
    due_at = two_hours_ago()
    await add_schedule(db, config, hourly(tmp_path, cron=f"0 {due_at.hour} * * *", missed="skip"))
    # It was tried at the time of two days ago, nobody was there at the next ones.
    times = [to_time_text(due_at - timedelta(days=days)) for days in (3, 2)]
    problem = "UPDATE schedules SET last_at = :last, next_at = :due, problem = 'It is gone.', problem_at = :due"
    await change(db, problem, last=times[0], due=times[1])

    assert await ScheduleClock(db, engines).fire_due() == 0
    stored = await get_schedule(db, "hourly")
    assert str(stored.next_at) > now_text()
    assert (stored.problem, stored.problem_at, stored.is_tried_again) == ("It is gone.", times[1], False)
    await hold_schedule(db, "hourly", is_paused=True)
    await hold_schedule(db, "hourly", is_paused=False)
    assert (await get_schedule(db, "hourly")).problem == "It is gone."

    await start_now(db, engines, "hourly", by="ann")
    stored = await get_schedule(db, "hourly")
    assert (stored.problem, stored.problem_at) == (None, None)


async def test_the_problem_of_a_process_that_another_has_overtaken_is_not_recorded(world: Any, tmp_path: Path) -> None:
    db, _, engines = world
    await add_overdue(world, hourly(tmp_path))
    before = await get_schedule(db, "hourly")
    await ScheduleClock(db, engines).fire_due()
    await note_problem(db, before, "It is gone.")
    assert (await get_schedule(db, "hourly")).problem is None


async def test_a_server_that_says_nothing_keeps_no_other_schedule_from_its_time(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, _, engines = world
    says_something, began = asyncio.Event(), list[str]()
    check_trust = engines.check_trust

    async def hang_if_remote(repo: Path | None, *args: Any, **options: Any) -> Any:
        if repo is None:
            began.append("hangs")
            await says_something.wait()
        return await check_trust(repo, *args, **options)

    monkeypatch.setattr(engines, "check_trust", hang_if_remote)
    monkeypatch.setattr(schedules, "_MOST_AT_ONCE", 2)
    clock = ScheduleClock(db, engines)
    for name in ("a", "b", "c"):
        await add_overdue(world, hourly(tmp_path, name=name, repo_path="file:///silent/r.git"))
    assert await clock.fire_due(patience_s=0.0) == 0
    for name in ("x", "y", "z"):
        await add_overdue(world, hourly(tmp_path, name=name))
    count = 0
    with waiting_until("those on this machine have started"):
        while count < 3:
            count += await clock.fire_due(patience_s=0.02)
    assert {run.schedule for run in await read_runs(db)} == {"x", "y", "z"}
    assert began == ["hangs"] * 2  # not more at once, and none again

    says_something.set()
    await clock.fire_due()
    assert began == ["hangs"] * 3
    problems = [str((await get_schedule(db, name)).problem) for name in ("a", "b", "c")]
    assert ["not among the allowed" in problem for problem in problems] == [True] * 3


async def test_a_closed_clock_has_nothing_under_way(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, _, engines = world
    began, ended = asyncio.Event(), asyncio.Event()

    async def hang(*_args: Any, **_options: Any) -> Any:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(engines, "check_trust", hang)
    clock = ScheduleClock(db, engines)
    await add_overdue(world, hourly(tmp_path))
    assert await clock.fire_due(patience_s=0.0) == 0
    await began.wait()
    await clock.close()
    assert ended.is_set()


async def test_a_time_that_came_while_another_schedule_was_slow_was_not_missed(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, config, engines = world
    minute = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=5)
    daily = {"cron": f"{minute.minute} {minute.hour} * * *", "missed": "skip"}
    await add_overdue(world, hourly(tmp_path, name="a-slow", target="no-such-workflow"))
    await add_schedule(db, config, hourly(tmp_path, **daily))
    times = {"last": to_time_text(minute - timedelta(days=1)), "due": to_time_text(minute)}
    await change(db, "UPDATE schedules SET last_at = :last, next_at = :due WHERE name = 'hourly'", **times)
    elapsed = [0.0]
    check_trust = engines.check_trust

    async def be_slow(*args: Any, **options: Any) -> Any:
        elapsed[0] += 600.0
        return await check_trust(*args, **options)

    monkeypatch.setattr(engines, "check_trust", be_slow)
    monkeypatch.setattr(schedules, "time", SimpleNamespace(monotonic=lambda: elapsed[0]))
    monkeypatch.setattr(schedules, "_MOST_AT_ONCE", 1)
    assert await ScheduleClock(db, engines).fire_due() == 1
    assert (await get_schedule(db, "hourly")).last_at == times["due"]


async def test_skipped_times_are_counted_and_the_open_run_is_named(world: Any, tmp_path: Path) -> None:
    db, _, engines = world
    await add_overdue(world, hourly(tmp_path, cron="0 0 1 */3 *", missed="all"))
    await ScheduleClock(db, engines).fire_due()
    stored = await get_schedule(db, "hourly")
    (run,) = await read_runs(db)
    assert (stored.skipped_for, stored.last_run_id, stored.skipped > 0) == (run.id, run.id, True)
    skips = f"{stored.skipped} {'time was' if stored.skipped == 1 else 'times were'} skipped"
    last_run = f"ts last run {run.id[:8]}"
    assert await explain_skips(db, stored) == f"I{last_run} is still to be started: {skips}."

    await change(db, "UPDATE runs SET state = 'paused', pause_reason = 'approval'")
    assert await explain_skips(db, stored) == f"I{last_run} still waits for an approval: {skips}."
    await change(db, "UPDATE runs SET state = 'completed', pause_reason = NULL")
    assert await explain_skips(db, stored) == f"{skips} while i{last_run} was not over."

    assert await start_now(db, engines, "hourly", by="ann") != run.id
    stored = await get_schedule(db, "hourly")
    assert (stored.skipped, stored.skipped_for, await explain_skips(db, stored)) == (0, None, None)


async def test_a_run_that_a_time_starts_ends_the_count_of_skipped_ones(world: Any, tmp_path: Path) -> None:
    db, _, engines = world
    await add_overdue(world, hourly(tmp_path))
    await change(db, "UPDATE schedules SET skipped = 4, skipped_for = 'gone'")
    assert "4 times were skipped while its run gone" in str(await explain_skips(db, await get_schedule(db, "hourly")))
    assert await ScheduleClock(db, engines).fire_due() == 1
    stored = await get_schedule(db, "hourly")
    assert (stored.skipped, stored.skipped_for) == (0, None)


async def test_a_schedule_can_start_a_flow(world: Any, tmp_path: Path) -> None:
    db, _, engines = world
    await add_overdue(world, hourly(tmp_path, kind="flow", target="report", options={"arguments": {"day": 1}}))
    await ScheduleClock(db, engines).fire_due()

    stored = await get_schedule(db, "hourly")
    async with open_journal(db.store) as journal:
        (created, *_) = await journal.read(str(stored.last_run_id))
    assert (created.payload["flow"], created.payload["kwargs"]) == ("report", {"day": 1})


async def read_flows(db: Database) -> list[Any]:
    query = "SELECT run_id, status, wake_at, waits_for FROM flow_runs ORDER BY created_at"
    async with db.session() as session:
        return list(await session.execute(text(query)))


async def test_flows_of_a_schedule_wait_for_each_other_and_say_so(world: Any, tmp_path: Path) -> None:
    db, _, engines = world
    quarterly = {"kind": "flow", "target": "report", "cron": "0 0 1 */3 *", "missed": "all", "options": {}}
    await add_overdue(world, hourly(tmp_path, **quarterly, overlap="queue"))
    log: list[str] = []

    @flow("report")
    async def report(ctx: Context) -> None:
        log.append(f"{ctx.run_id} begins")
        await ctx.step("work", asyncio.sleep, 0)
        log.append(f"{ctx.run_id} ends")

    await ScheduleClock(db, engines).fire_due()
    first, *others = await read_flows(db)
    run_ids = [first.run_id, *(row.run_id for row in others)]
    assert (first.wake_at is not None, first.waits_for, len(others) > 1) == (True, None, True)
    assert {(row.wake_at, row.waits_for) for row in others} == {(None, "earlier runs of schedule hourly")}

    # What is sent to one in line, and the end of another one there, let none pass.
    await send_event(run_ids[2], "news", store=db.store)
    await cancel_flow(run_ids[1], store=db.store)
    async with Runtime(db.store, flows=[report], poll_s=0.02):
        await until_over(db, len(run_ids))
    driven = [run_ids[0], *run_ids[2:]]
    assert log == [f"{run_id} {word}" for run_id in driven for word in ("begins", "ends")]


async def until_over(db: Database, count: int) -> None:
    with waiting_until("all flows are over"):
        while sum(row.status in ("completed", "cancelled") for row in await read_flows(db)) < count:
            await asyncio.sleep(0.02)


async def test_a_time_is_skipped_while_any_flow_of_its_schedule_is_open(world: Any, tmp_path: Path) -> None:
    db, _, engines = world
    schedule = hourly(tmp_path, kind="flow", target="report", options={})
    await add_overdue(world, schedule)
    await start_scheduled(db, engines, schedule, "by-hand")  # which is no time's, and so not the last one

    assert await ScheduleClock(db, engines).fire_due() == 0
    assert [row.run_id for row in await read_flows(db)] == ["by-hand"]
    skips = await explain_skips(db, await get_schedule(db, "hourly"))
    assert skips == "Its run by-hand is still to be started: 1 time was skipped."
    await cancel_flow("by-hand", store=db.store)
    await change(db, "UPDATE schedules SET last_at = :at, next_at = :at", at=PAST)
    assert await ScheduleClock(db, engines).fire_due() == 1


async def test_a_schedule_gives_its_flows_queue_and_priority(world: Any, tmp_path: Path) -> None:
    db, _, engines = world
    await add_overdue(world, hourly(tmp_path, kind="flow", target="report", options={"queue": "runs", "priority": 7}))
    await ScheduleClock(db, engines).fire_due()

    async with db.session() as session:
        assert list(await session.execute(text("SELECT queue, priority FROM flow_runs"))) == [("runs", 7)]


async def test_a_paused_schedule_fires_nothing_and_goes_on_from_now(world: Any, tmp_path: Path) -> None:
    db, _, engines = world
    await add_overdue(world, hourly(tmp_path, missed="all"))
    await hold_schedule(db, "hourly", is_paused=True)
    assert await ScheduleClock(db, engines).fire_due() == 0
    await hold_schedule(db, "hourly", is_paused=False)
    assert await ScheduleClock(db, engines).fire_due() == 0
    assert await read_runs(db) == []


async def test_a_wrong_schedule_is_refused_and_nothing_is_written(world: Any, tmp_path: Path) -> None:
    db, config, _ = world
    wrong = ({"cron": "61 * * * *"}, {"zone": "Mars/Olympus"}, {"missed": "never"}, {"overlap": "x"}, {"name": "a b"})
    for values in wrong:
        with pytest.raises(ScheduleInvalid):
            await add_schedule(db, config, replace(hourly(tmp_path), **values))
    with pytest.raises(QueueUnknown):
        await add_schedule(db, config, hourly(tmp_path, options={"queue": "gpu"}))
    assert await list_schedules(db) == []
    await add_schedule(db, config, hourly(tmp_path))
    with pytest.raises(ScheduleInvalid, match="already"):
        await add_schedule(db, config, hourly(tmp_path))


TICKS = """
from holdfast import Context, flow

@flow("tick", cron="0 * * * *", missed="once")
async def tick(ctx: Context) -> str:
    return await ctx.step("tick", lambda: ctx.run_id)
"""


async def test_a_worker_starts_flows_that_have_a_schedule_in_code(
    folder: Path, fleet_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_registry, "_flows", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "ticking", None)  # what it imports goes with the test
    monkeypatch.delitem(sys.modules, "ticking")
    (folder / "ticking.py").write_text(TICKS)
    config = load_config(data_dir=folder / "data", database_url=fleet_url, flows=[str(folder / "ticking.py")])
    db = Database(fleet_url)
    await db.init_schema()
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    before = await start_flow("tick", run_id=f"tick@{hour - timedelta(hours=2):%Y-%m-%dT%H%MZ}", store=db.store)
    async with open_journal(db.store) as journal:
        worker = make_worker(db, journal, config, Engines(db, config), WorkerOptions(poll_s=0.05, grace_s=1.0))
        await worker.start()
        try:
            assert await before.result() == before.run_id
            while len(runs := await list_flows(store=db.store, flow="tick", status="completed")) < 2:
                await asyncio.sleep(0.02)
        finally:
            await worker.stop()
    await db.dispose()

    last = datetime.strptime(runs[0].run_id, "tick@%Y-%m-%dT%H%MZ").replace(tzinfo=UTC)
    assert last - hour in (timedelta(0), timedelta(hours=1))  # the clock may strike meanwhile


IN_LINE = """
from pathlib import Path
from holdfast import Context, flow

LOG = Path(__file__).with_name("log")

@flow("report")
async def report(ctx: Context) -> None:
    for word in ("begins", "works", "ends"):
        with LOG.open("a") as file:
            await ctx.step(word, file.write, f"{ctx.run_id} {word}\\n")
"""


async def test_a_worker_drives_flows_of_a_schedule_one_after_the_other(
    folder: Path, fleet_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_registry, "_flows", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "in_line", None)
    monkeypatch.delitem(sys.modules, "in_line")
    (folder / "in_line.py").write_text(IN_LINE)
    config = load_config(data_dir=folder / "data", database_url=fleet_url, flows=[str(folder / "in_line.py")])
    db = Database(fleet_url)
    await db.init_schema()
    engines = Engines(db, config)
    quarterly = {"kind": "flow", "target": "report", "cron": "0 0 1 */3 *", "missed": "all", "options": {}}
    await add_overdue((db, config, engines), hourly(folder, **quarterly, overlap="queue"))
    async with open_journal(db.store) as journal:
        worker = make_worker(db, journal, config, engines, WorkerOptions(poll_s=0.05, grace_s=1.0))
        await worker.start()
        try:
            with waiting_until("the schedule has fired for all times"):
                while str((await get_schedule(db, "hourly")).next_at) <= now_text():
                    await asyncio.sleep(0.02)
            await until_over(db, len(await read_flows(db)))
        finally:
            await worker.stop()
    run_ids = [row.run_id for row in await read_flows(db)]
    await db.dispose()

    lines = (folder / "log").read_text().splitlines()
    assert lines == [f"{run_id} {word}" for run_id in run_ids for word in ("begins", "works", "ends")]
