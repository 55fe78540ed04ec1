"""What one worker does for all: it brings runs to those who take their queue, fires schedules, answers deadlines."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from tests.support.api.server_world import Api
from tests.support.fleet_machines import AHEAD_S, DIES_IN, FLOWS, machines
from tests.support.progress_limit import until, waiting_until

from holdfast.api.routes.workers import describe_worker
from holdfast.config import load_config
from holdfast.fleet.limits import Limit, set_limit
from holdfast.fleet.schedules import add_schedule, get_schedule, run_id_of
from holdfast.flows.service.start import start_flow
from holdfast.persistence.db import Database
from holdfast.persistence.fleet import list_workers
from holdfast.persistence.schedule_table import Schedule

PAST = "2026-01-01T00:00:00.000Z"


async def read(db: Database, sql: str, **params: Any) -> list[tuple[Any, ...]]:
    async with db.session() as session:
        rows = [tuple(row) for row in await session.execute(text(sql), params)]
        await session.commit()
    return rows


@pytest.fixture
async def db(fleet_url: str) -> AsyncIterator[Database]:
    """The rows of a fleet without a server."""
    db = Database(fleet_url)
    await db.init_schema()
    yield db
    await db.dispose()


IN_HALF_AN_HOUR = """
UPDATE schedules SET next_at = to_char((clock_timestamp() + interval '30 minutes') AT TIME ZONE 'UTC',
                                       'YYYY-MM-DD"T"HH24\\:MI\\:SS.MS"Z"') RETURNING next_at
"""


async def add_monthly(db: Database, folder: Path, **values: Any) -> None:
    schedule = Schedule(**{"name": "monthly", "target": "notes", "cron": "0 0 1 * *", "missed": "once", **values})
    config = load_config(data_dir=folder / "data", workspace_root=folder / "work")
    await add_schedule(db, config, schedule)


async def add_overdue(db: Database, folder: Path, **values: Any) -> None:
    await add_monthly(db, folder, **values)
    await read(db, "UPDATE schedules SET last_at = :at, next_at = :at RETURNING name", at=PAST)


async def test_a_run_waits_in_its_queue_with_its_priority_and_takes_no_place_from_others(
    office: Api, folder: Path, fleet_url: str
) -> None:
    server = await office.app.state.holder.get()
    await set_limit(server.db, Limit("workflow", "notes", 1), by="test")
    lost = await office.start(queue="gpu")  # before there are tables of the queue: its job is lost
    other = await office.start()
    with machines(folder, fleet_url, "alpha", arguments=("--queues", "runs")):
        # Nobody takes gpu: the run that waits there has no place of the workflow's.
        assert (await office.wait_for(other))["state"] == "completed"
        waiting = await office.start(queue="gpu", priority=7)
        forked = (await office.operator.post(f"/api/runs/{other}/fork", json={"phase_key": "second"})).json()["run_id"]
        assert (await office.wait_for(forked))["state"] == "completed"
        detail = (await office.viewer.get(f"/api/runs/{waiting}")).json()
        assert detail["waiting_for"] == "No worker takes queue gpu."
    jobs = await read(server.db, "SELECT queueing_lock, queue_name, priority FROM procrastinate_jobs")
    assert jobs == [(waiting, "gpu", 7)]
    with machines(folder, fleet_url, "beta", arguments=("--queues", "gpu"), HOLDFAST_QUEUES="runs,gpu"):
        assert (await office.wait_for(waiting))["state"] == "completed"
    with machines(folder, fleet_url, "gamma"):  # which takes from all
        last = await office.start(queue="gpu")
        for run_id in (lost, last):
            assert (await office.wait_for(run_id))["state"] == "completed"


async def test_a_deadline_is_answered_by_a_worker_when_the_database_says_it_is_over(
    office: Api, folder: Path, fleet_url: str
) -> None:
    server = await office.app.state.holder.get()
    with machines(folder, fleet_url, "alpha"):
        run_id = await office.start(workflow="asking-notes")
        await office.wait_for(run_id, "paused")
        overdue = "UPDATE approvals SET deadline_at = :at WHERE run_id = :id AND state = 'pending' RETURNING id"
        ((approval_id,),) = await read(server.db, overdue, at=PAST, id=run_id)
        detail = await office.wait_for(run_id, "failed", "cancelled", "completed")
    ((action, by),) = await read(server.db, "SELECT action, decided_by FROM approvals WHERE id = :id", id=approval_id)
    assert (action, detail["state"]) == ("reject", "failed")
    assert "deadline" in by


async def test_a_fleet_without_a_server_fires_a_schedule_once_also_when_who_fires_it_dies(
    db: Database, folder: Path, fleet_url: str
) -> None:
    options = {"simulate": True, "requirements_md": "x"}
    await add_overdue(db, folder, repo_path=str(folder / "work" / "repo"), options=options)
    dies = {DIES_IN: "holdfast.fleet.schedules:advance_schedule"}
    with machines(folder, fleet_url, "alpha", **dies) as (alpha,):
        await until(lambda: not alpha.is_running, "the worker dies after the start and before the record")
    ((started,),) = await read(db, "SELECT id FROM runs")
    assert (await get_schedule(db, "monthly")).last_at == PAST

    with machines(folder, fleet_url, "beta", "gamma"), waiting_until("the run is over and the schedule goes on"):
        while await read(db, "SELECT id FROM runs WHERE state <> 'completed'") or (
            (await get_schedule(db, "monthly")).last_at == PAST
        ):
            await asyncio.sleep(0.05)
    ((run_id, schedule),) = await read(db, "SELECT id, schedule FROM runs")
    stored = await get_schedule(db, "monthly")
    assert (run_id, schedule) == (started, "monthly")
    assert run_id == stored.last_run_id == run_id_of("monthly", stored.last_at)


def add_deadline(folder: Path, deadline: str) -> None:
    """Let people have so long to answer what a workflow of the repository asks."""
    path = folder / "work" / "repo" / ".holdfast" / "workflows" / "asking-notes.yaml"
    asking = path.read_text()
    assert "risk: high" in asking
    path.write_text(asking.replace("risk: high", f"risk: high\n    approval_deadline: {deadline}"))


async def test_a_worker_whose_clock_is_an_hour_ahead_says_so_and_goes_by_the_databases(
    office: Api, db: Database, folder: Path, fleet_url: str
) -> None:
    add_deadline(folder, "30m")
    (folder / "counting.py").write_text(FLOWS)
    repo = str(folder / "work" / "repo")
    await add_monthly(db, folder, name="later", repo_path=repo, options={"simulate": True})
    ((in_an_hour,),) = await read(db, IN_HALF_AN_HOUR)
    flows = ("--flows", str(folder / "counting.py"))
    with machines(folder, fleet_url, "early", arguments=flows, **{AHEAD_S: "3600"}):
        with waiting_until("the worker has told of its clock"):
            while not [worker for worker in await list_workers(db) if worker.clock_off_s]:
                await asyncio.sleep(0.05)
        (early,) = await list_workers(db)
        await start_flow("nap", run_id="nap", store=db.store)
        with waiting_until("the flow sleeps"):
            while not await read(db, "SELECT wake_at FROM flow_runs WHERE waits_for IS NOT NULL"):
                await asyncio.sleep(0.05)
        ((left_s, count),) = await read(
            db,
            "SELECT wake_at - extract(epoch FROM clock_timestamp()), (SELECT count(*) FROM runs) FROM flow_runs",
        )
        asking = await office.start(workflow="asking-notes")
        await office.wait_for(asking, "paused")
        looked = "SELECT seen_at FROM workers"
        for _ in range(2):  # a look that had begun before may not have seen the question
            before = await read(db, looked)
            with waiting_until("the worker has looked for what is overdue"):
                while await read(db, looked) == before:
                    await asyncio.sleep(0.05)
        ((state, to_answer_s),) = await read(
            db,
            "SELECT state, extract(epoch FROM deadline_at::timestamptz - clock_timestamp())::float8 FROM approvals",
        )
    assert 3590 < early.clock_off_s < 3610
    assert f"{early.clock_off_s:.0f} s ahead of the database's" in describe_worker(early).text
    assert 0 < left_s < 3610  # not an hour more
    assert state == "pending"
    assert 0 < to_answer_s <= 1800
    assert (count, (await get_schedule(db, "later")).next_at) == (0, in_an_hour)


async def test_an_idle_worker_has_five_connections_at_most_and_makes_one_transaction_a_second(
    folder: Path, postgres_url: str, fleet_url: str, db: Database
) -> None:
    watcher = await psycopg.AsyncConnection.connect(postgres_url, dbname="template1", autocommit=True)
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'idle'"
    commits = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'postgres'"

    async def ask(sql: str) -> int:
        (value,) = await (await watcher.execute(sql)).fetchone() or (0,)
        return int(value)

    await start_flow("count", "a", 1, run_id="once", store=db.store)
    (folder / "counting.py").write_text(FLOWS)
    flows = ("--flows", str(folder / "counting.py"))
    try:
        with machines(folder, f"{fleet_url}&application_name=idle", "idle", arguments=flows):
            with waiting_until("the flow is over and the worker idle"):  # after it had all its connections in use
                while await read(db, "SELECT 1 FROM flow_runs WHERE status <> 'completed'"):
                    await asyncio.sleep(0.05)
            await db.dispose()
            with waiting_until("it has given back what it does not need"):
                while await ask(count) > 5:
                    await asyncio.sleep(0.1)
            for _ in range(6):  # on a busy machine the server tells late of what was done before
                first, began = await ask(commits), time.monotonic()
                with waiting_until("it has made six transactions"):
                    while (made := await ask(commits) - first) < 6:
                        await asyncio.sleep(0.1)
                rate = made / (time.monotonic() - began + 2)  # and always up to a second late, several at once
                if rate <= 1:
                    break
            assert rate <= 1
            assert await ask(count) <= 5
    finally:
        await watcher.close()


async def test_a_run_that_kills_its_workers_is_paused_and_harms_no_other(
    office: Api, folder: Path, fleet_url: str
) -> None:
    """One among twenty: six runs of workflows, and flows, which cost less."""
    (folder / "counting.py").write_text(FLOWS)
    server = await office.app.state.holder.get()
    poison = await office.start()
    (office.gates / f"{poison}.kills").touch()
    others = [await office.start() for _ in range(5)]
    flows = [f"flow {number}" for number in range(14)]
    for name in flows:
        await start_flow("count", name, 2, run_id=name, store=server.journal.store)
    is_open = (
        "SELECT 1 FROM runs WHERE state NOT IN ('completed', 'paused') "
        "UNION ALL SELECT 1 FROM flow_runs WHERE status NOT IN ('completed', 'paused')"
    )
    arguments = ("--slots", "6", "--flows", str(folder / "counting.py"))
    deaths = 0
    # Restarted on the same machine, as a service is: that its owner is dead is seen at once there.
    for _ in range(20):
        with machines(folder, fleet_url, "alpha", arguments=arguments) as (alpha,):
            with waiting_until("the worker dies, or everything is done"):
                while alpha.is_running and await read(server.db, is_open):
                    await asyncio.sleep(0.05)
            if alpha.is_running:
                break
            deaths += 1
    states = dict(await read(server.db, "SELECT id, state FROM runs"))
    assert (states.pop(poison), deaths) == ("paused", 3)
    assert states == dict.fromkeys(others, "completed")
    ended = dict(await read(server.db, "SELECT run_id, status FROM flow_runs"))
    assert ended == dict.fromkeys(flows, "completed")
    ((reason,),) = await read(server.db, "SELECT pause_reason FROM runs WHERE id = :id", id=poison)
    assert reason == "crashing"
    # Nothing that was recorded was done again.
    for run_id in others:
        kinds = [event.kind for event in await server.journal.read(run_id)]
        assert kinds.count("phase.completed") == 2


async def test_a_flow_that_kills_its_workers_is_paused_too_until_a_person_resumes_it(
    office: Api, folder: Path, fleet_url: str
) -> None:
    db = (await office.app.state.holder.get()).db
    (folder / "counting.py").write_text(FLOWS)
    await start_flow("poison", run_id="poison", store=db.store)
    await start_flow("count", "a", 2, run_id="count", store=db.store)
    deaths, open_runs = 0, "SELECT 1 FROM flow_runs WHERE status NOT IN ('completed', 'paused')"
    # A machine sees that its own process is dead, and does not wait for a lease, however long.
    long_leases = "UPDATE journal_runs SET lease_until = lease_until + interval '1 hour' RETURNING run_id"
    for _ in range(6):
        with machines(folder, fleet_url, "alpha", arguments=("--flows", str(folder / "counting.py"))) as (alpha,):
            with waiting_until("the worker dies, or everything is done"):
                while alpha.is_running and await read(db, open_runs):
                    await asyncio.sleep(0.05)
            if alpha.is_running:
                break
            deaths += 1
            await read(db, long_leases)
    found = await read(db, "SELECT run_id, status, waits_for FROM flow_runs ORDER BY run_id")
    assert (found, deaths) == ([("count", "completed", None), ("poison", "paused", "crashing")], 3)
    effects = (folder / "effects").read_text().splitlines()  # what was not recorded may be there twice
    assert (set(effects), effects.count("poison before")) == ({"a 0", "a 1", "poison before"}, 1)

    (folder / "cured").touch()
    answer = await office.operator.post("/api/runs/poison/resume")
    assert answer.status_code == 202
    with (
        machines(folder, fleet_url, "beta", arguments=("--flows", str(folder / "counting.py"))),
        waiting_until("the flow goes on and ends"),
    ):
        while await read(db, "SELECT 1 FROM flow_runs WHERE status <> 'completed'"):
            await asyncio.sleep(0.05)
    effects = (folder / "effects").read_text().splitlines()
    assert effects.count("poison before") == 1


async def test_what_one_user_has_queued_keeps_no_other_waiting(office: Api, folder: Path, fleet_url: str) -> None:
    server = await office.app.state.holder.get()
    (office.gates / "first.closed").touch()
    with machines(folder, fleet_url, "alpha", arguments=("--slots", "1")):
        runs = [await office.start() for _ in range(4)]
        await office.wait_until_reached(runs[0], "first")
        answer = await office.admin.post("/api/runs", json=office.body())
        other = answer.json()["run_id"]
        (office.gates / "first.closed").unlink()
        for run_id in (*runs, other):
            assert (await office.wait_for(run_id))["state"] == "completed"
    begun = [run_id for (run_id,) in await read(server.db, "SELECT id FROM runs ORDER BY driven_at")]
    assert begun[0] == runs[0]
    assert other in begun[1:3]


async def test_a_flow_has_as_many_runs_at_a_time_as_it_says_and_the_next_comes_at_once(
    office: Api, folder: Path, fleet_url: str
) -> None:
    (folder / "counting.py").write_text(FLOWS)
    server = await office.app.state.holder.get()
    for name in ("a", "b"):
        (folder / f"{name}.closed").touch()
    without = await start_flow("one", "a", run_id="a", store=server.journal.store)
    detail = (await office.viewer.get(f"/api/flows/{without.run_id}")).json()
    assert detail["reason"] == "No worker is taking runs. Start one with `holdfast worker`."
    effects = folder / "effects"
    with machines(folder, fleet_url, "alpha", arguments=("--flows", str(folder / "counting.py"))):
        await until(lambda: effects.exists() and "a begins" in effects.read_text(), "the first begins")
        await start_flow("one", "b", run_id="b", store=server.journal.store)
        reason = None
        with waiting_until("the second waits for its place"):
            while reason is None:
                reason = (await office.viewer.get("/api/flows/b")).json()["reason"]
                await asyncio.sleep(0.05)
        assert reason == "Worker alpha: Waits for a place of flow one, 1 of 1 are taken."
        assert effects.read_text().splitlines() == ["a begins"]
        (folder / "a.closed").unlink()
        await until(lambda: "b begins" in effects.read_text(), "the second begins")
        (folder / "b.closed").unlink()
        await until(lambda: "b ends" in effects.read_text(), "the second ends")
    assert effects.read_text().splitlines() == ["a begins", "a ends", "b begins", "b ends"]
