"""Flows in batches: what a worker takes, begins and ends together is begun and ended once, whoever dies in between."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from tests.support.fleet_machines import DIES_IN, FLOWS, machines
from tests.support.progress_limit import until, waiting_until

from holdfast.fleet import procrastinate_queue
from holdfast.fleet.procrastinate_queue import ProcrastinateQueue
from holdfast.flows.service.start import start_flow
from holdfast.persistence.db import Database
from holdfast.persistence.due.beat import DueJob, beat
from holdfast.persistence.fleet import WorkerFacts, register
from holdfast.runtime.flow_rows import DEFAULT_QUEUE

FLOW_COUNT = 20
WAITING = "SELECT queueing_lock, priority FROM procrastinate_jobs WHERE status = 'todo' ORDER BY priority DESC, id"


@pytest.fixture
async def db(fleet_url: str) -> AsyncIterator[Database]:
    """The rows of a fleet without a server."""
    db = Database(fleet_url)
    await db.init_schema()
    yield db
    await db.dispose()


async def read(db: Database, sql: str) -> list[tuple[Any, ...]]:
    async with db.session() as session:
        return [tuple(row) for row in await session.execute(text(sql))]


async def test_flows_taken_or_begun_by_workers_that_die_are_all_done_once(
    db: Database, folder: Path, fleet_url: str
) -> None:
    (folder / "counting.py").write_text(FLOWS)
    flows = ("--flows", str(folder / "counting.py"))
    before_begin = {DIES_IN: "holdfast.flows.service.flow_look:create_event"}
    after_begin = {DIES_IN: "holdfast.flows.service.flow_drive:Records"}
    with machines(folder, fleet_url, "alpha", arguments=flows, **before_begin) as (alpha,):
        await asyncio.gather(*(start_flow("count", f"flow{n}", 1, store=db.store) for n in range(FLOW_COUNT)))
        await until(lambda: not alpha.is_running, "the worker dies with what it has taken")
    assert len(await read(db, WAITING)) < FLOW_COUNT  # their jobs are gone, and nothing else is
    assert await read(db, "SELECT DISTINCT status FROM flow_runs") == [("pending",)]
    with machines(folder, fleet_url, "beta", arguments=flows, **after_begin) as (beta,):
        await until(lambda: not beta.is_running, "the worker dies with what it has begun")
    begun = await read(db, "SELECT run_id FROM flow_runs WHERE status = 'running'")
    assert 1 <= len(begun) <= 8

    with machines(folder, fleet_url, "gamma", arguments=flows), waiting_until("all flows are over"):
        while await read(db, "SELECT run_id FROM flow_runs WHERE status <> 'completed'"):
            await asyncio.sleep(0.05)
    effects = (folder / "effects").read_text().splitlines()
    assert sorted(effects) == sorted(f"flow{n} 0" for n in range(FLOW_COUNT))
    taken_over = await read(
        db, "SELECT run_id FROM events WHERE type = 'run.resumed' AND body LIKE '%taken_over%' ORDER BY run_id"
    )
    assert taken_over == sorted(begun)
    assert await read(db, "SELECT run_id FROM journal_runs WHERE owner IS NOT NULL") == []


class Taker:
    """Has so many places; its drives end when they are let."""

    def __init__(self, places: int) -> None:
        self.places = places
        self.taken: list[str] = []
        self._drives: dict[str, asyncio.Task[None]] = {}
        self._may_end = asyncio.Semaphore(0)
        self._changed = asyncio.Event()

    def take(self, run_id: str) -> "asyncio.Task[None]":
        assert len(self._drives) < self.places
        self.taken.append(run_id)
        self._drives[run_id] = task = asyncio.create_task(self._drive(run_id))
        return task

    async def _drive(self, run_id: str) -> None:
        await self._may_end.acquire()
        del self._drives[run_id]
        self._changed.set()

    def end(self, count: int) -> None:
        for _ in range(count):
            self._may_end.release()

    async def wait_for_place(self) -> int:
        while len(self._drives) >= self.places:
            self._changed.clear()
            await self._changed.wait()
        return self.places - len(self._drives)

    def list_passed_over(self) -> set[str]:
        return set()


async def test_as_many_are_taken_as_there_are_places_and_what_is_put_back_waits_as_before(db: Database) -> None:
    queue = ProcrastinateQueue(db, queues=(DEFAULT_QUEUE,), flows=("count",))
    await queue.repair()
    names = [f"run{n}" for n in range(6)]
    await queue.enqueue([DueJob(name, DEFAULT_QUEUE, n, "count") for n, name in enumerate(names)])
    await queue.enqueue([DueJob("other", DEFAULT_QUEUE, 9, "unknown")])
    taker = Taker(2)
    serving = asyncio.create_task(queue.serve(taker))
    await until(lambda: len(taker.taken) == 2, "both places are taken")
    assert taker.taken == ["run5", "run4"]
    taker.end(1)
    await until(lambda: len(taker.taken) == 3, "the next has the place of the one that ended")
    assert await read(db, WAITING) == [("other", 9), ("run2", 2), ("run1", 1), ("run0", 0)]

    await queue.stop()
    await serving
    await queue.put_back([*taker.taken[-2:], "never"])
    taker.end(2)
    waiting = await read(db, WAITING)
    assert waiting == [("other", 9), ("run4", 4), ("run3", 3), ("run2", 2), ("run1", 1), ("run0", 0)]
    assert await read(db, "SELECT id FROM procrastinate_jobs WHERE status <> 'todo'") == []


async def test_a_job_whose_notice_was_lost_is_taken_after_the_next_look(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procrastinate_queue, "_POLL_S", 3600.0)
    queue = ProcrastinateQueue(db, queues=(DEFAULT_QUEUE,), flows=("count",))
    await queue.repair()
    taker = Taker(2)
    serving = asyncio.create_task(queue.serve(taker))
    await queue.enqueue([DueJob("heard", DEFAULT_QUEUE, 0, "count")])
    await until(lambda: taker.taken == ["heard"], "the first one is taken")
    with waiting_until("its job is over"):
        while await read(db, "SELECT id FROM procrastinate_jobs"):
            await asyncio.sleep(0.01)
    async with db.session() as session:
        await session.execute(text("ALTER TABLE procrastinate_jobs DISABLE TRIGGER USER"))
        await session.commit()
    await queue.enqueue([DueJob("unheard", DEFAULT_QUEUE, 0, "count")])
    facts = WorkerFacts("alpha", "process", "machine", "1", 2, (DEFAULT_QUEUE,), ("count",))
    await register(db, facts)
    assert (await beat(db, facts, driven=0, queue_parts=queue.describe().parts)).is_sweeper
    await until(lambda: taker.taken == ["heard", "unheard"], "the second one is taken")
    taker.end(2)
    await queue.stop()
    await serving
