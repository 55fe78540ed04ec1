"""What one worker does for all: it brings runs to those who take their queue, fires schedules, answers deadlines."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from tests.support.api.server_world import Api
from tests.support.fleet_machines import DIES_IN, machines
from tests.support.progress_limit import until, waiting_until

from holdfast.config import load_config
from holdfast.fleet.limits import Limit, set_limit
from holdfast.fleet.schedules import add_schedule, get_schedule, run_id_of
from holdfast.persistence.db import Database
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


async def add_overdue(db: Database, folder: Path, **values: Any) -> None:
    schedule = Schedule(**{"name": "hourly", "target": "notes", "cron": "0 * * * *", "missed": "once", **values})
    config = load_config(data_dir=folder / "data", workspace_root=folder / "work")
    await add_schedule(db, config, schedule)
    await read(db, "UPDATE schedules SET last_at = :at, next_at = :at RETURNING name", at=PAST)


async def test_a_run_waits_in_its_queue_with_its_priority_and_takes_no_place_from_others(
    office: Api, folder: Path, fleet_url: str
) -> None:
    server = await office.app.state.holder.get()
    await set_limit(server.db, Limit("workflow", "notes", 1), by="test")
    lost = await office.start(queue="gpu")  # before there are tables of the queue: its job is lost
    other = await office.start()
    with machines(folder, fleet_url, "alpha"):
        # Nobody takes gpu: the run that waits there has no place of the workflow's.
        assert (await office.wait_for(other))["state"] == "completed"
        waiting = await office.start(queue="gpu", priority=7)
        forked = (await office.operator.post(f"/api/runs/{other}/fork", json={"phase_key": "second"})).json()["run_id"]
        assert (await office.wait_for(forked))["state"] == "completed"
        detail = (await office.viewer.get(f"/api/runs/{waiting}")).json()
        assert detail["waiting_for"] == "No worker takes queue gpu."
    jobs = await read(server.db, "SELECT queueing_lock, queue_name, priority FROM procrastinate_jobs")
    assert jobs == [(waiting, "gpu", 7)]
    with machines(folder, fleet_url, "beta", arguments=("--queues", "gpu")):
        for run_id in (lost, waiting):
            assert (await office.wait_for(run_id))["state"] == "completed"


async def test_a_fleet_without_a_server_fires_a_schedule_once_also_when_who_fires_it_dies(
    db: Database, folder: Path, fleet_url: str
) -> None:
    options = {"simulate": True, "requirements_md": "x"}
    await add_overdue(db, folder, repo_path=str(folder / "work" / "repo"), options=options)
    dies = {DIES_IN: "holdfast.fleet.schedules:advance_schedule"}
    with machines(folder, fleet_url, "alpha", **dies) as (alpha,):
        await until(lambda: not alpha.is_running, "the worker dies after the start and before the record")
    ((started,),) = await read(db, "SELECT id FROM runs")
    assert (await get_schedule(db, "hourly")).last_at == PAST

    with machines(folder, fleet_url, "beta", "gamma"), waiting_until("the run is over and the schedule goes on"):
        while await read(db, "SELECT id FROM runs WHERE state <> 'completed'") or (
            (await get_schedule(db, "hourly")).last_at == PAST
        ):
            await asyncio.sleep(0.05)
    ((run_id, schedule),) = await read(db, "SELECT id, schedule FROM runs")
    stored = await get_schedule(db, "hourly")
    assert (run_id, schedule) == (started, "hourly")
    assert run_id == stored.last_run_id == run_id_of("hourly", stored.last_at)
