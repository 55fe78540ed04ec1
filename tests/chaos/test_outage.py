"""A database that is away for longer than a lease: no run changes its owner, and no model is asked twice."""

import asyncio
import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.api.server_world import make_repository
from tests.support.chaos.audit import WATCH_SQL
from tests.support.chaos.client import People
from tests.support.chaos.jobs import make_workshop, run_of, script
from tests.support.chaos.machines import running_fleet
from tests.support.chaos.servers import SingleServer
from tests.support.model_server import ModelServer
from tests.support.postgres_server import fresh_schema
from tests.support.progress_limit import until

from holdfast.persistence.db import Database
from holdfast.runtime.events import EventKind

OUTAGE_S = 20.0 if "HOLDFAST_TEST_CHAOS_MINUTES" in os.environ else 8.0
"""Longer than a lease, which is 6 s."""
RUNS = 4
_OWNERS = "SELECT run_id, owner, epoch FROM journal_runs WHERE owner IS NOT NULL"
_ANSWERS = "SELECT run_id, machine, epoch FROM chaos_writes WHERE kind = 'model.response' ORDER BY run_id, seq"


@pytest.fixture
def outage_url(postgres_url: str) -> Iterator[str]:
    with fresh_schema(postgres_url) as url:
        yield url


async def test_an_outage_costs_no_model_call_and_no_run_its_owner(
    tmp_path: Path, postgres_url: str, outage_url: str
) -> None:
    servers = SingleServer(postgres_url)
    db = Database(outage_url)
    await db.init_schema()
    async with db.session() as session:
        await (await (await session.connection()).get_raw_connection()).driver_connection.execute(WATCH_SQL)  # type: ignore[union-attr]
        await session.commit()
    repo, may_answer = make_repository(tmp_path / "work" / "repo"), threading.Event()
    with ModelServer(script(may_answer)) as models:
        make_workshop(tmp_path, models.address)
        with running_fleet(tmp_path, outage_url, ["--slots", "2"], host=servers.primary) as fleet:
            people, done = People(fleet, db.store, repo), asyncio.Event()
            for number in range(RUNS):
                await people.start(number, is_flow=False)
            await until(lambda: len(models.received) == RUNS, "each run has asked its model")
            owners = {run_id: (json.loads(owner)["host"], epoch) for run_id, owner, epoch in await people.read(_OWNERS)}

            await asyncio.to_thread(servers.stop)
            await asyncio.sleep(OUTAGE_S / 2)
            may_answer.set()  # the answers come while nobody can record them
            await asyncio.sleep(OUTAGE_S / 2)
            await asyncio.to_thread(servers.start)

            answering = asyncio.create_task(people.answer_all(done))
            await people.wait_for_all()
            done.set()
            await answering
            answers = await people.read(_ANSWERS)
        calls = Counter(run_of(models, number) for number in range(len(models.received)))
    first = {run_id: (machine, epoch) for run_id, machine, epoch in reversed(answers)}
    journals = {run_id: [event.kind for event in db.store.list_events(run_id)] for run_id in people.runs}
    await db.dispose()
    assert len(owners) == RUNS
    assert {run_id: first[run_id] for run_id in owners} == owners
    for run_id, kinds in journals.items():
        assert kinds[-1] == EventKind.RUN_COMPLETED
        counts = kinds.count(EventKind.MODEL_REQUEST), kinds.count(EventKind.MODEL_RESPONSE), calls[run_id]
        assert counts == (6, 6, 6)
