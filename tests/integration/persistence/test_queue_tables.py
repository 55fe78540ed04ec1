"""A flow comes into the queue with the events that make it due, wherever somebody is there to take it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import procrastinate
import pytest
from sqlalchemy import Engine, event, text
from tests.support.postgres_server import fresh_schema

from holdfast import Context, flow
from holdfast.config import load_config
from holdfast.errors import StoreUnavailable, StoreUnreadable
from holdfast.fleet.job_rows import to_queue_name
from holdfast.fleet.procrastinate_queue import ProcrastinateQueue
from holdfast.fleet.run_drive import RunDrives
from holdfast.flows.answers import decide
from holdfast.flows.service.flow_registry import FlowDefinition, find_flow
from holdfast.flows.service.start import start_flow
from holdfast.persistence.db import Database
from holdfast.persistence.due.beat import Beat, DueJob, beat
from holdfast.persistence.fleet import WorkerFacts, drain_worker, register
from holdfast.persistence.queue_tables import (
    MAX_NAME_BYTES,
    QueueSchema,
    has_parts,
    make_queue_tables,
)
from holdfast.runtime import flow_rows
from holdfast.runtime.events import EventKind, create_event
from holdfast.runtime.flow_rows import DEFAULT_QUEUE, FlowOptions
from holdfast.runtime.journal import Journal
from holdfast.runtime.stores import open_journal

LONG = "l" * (MAX_NAME_BYTES - len(DEFAULT_QUEUE))
FACTS = WorkerFacts("alpha", "process", "machine", "1", 8, (DEFAULT_QUEUE,), ("known", "queue_tables_ask", LONG))


@flow("queue_tables_ask")
async def ask(ctx: Context) -> None:
    await ctx.approval("go")


def find_ask() -> FlowDefinition:
    definition = find_flow("queue_tables_ask")
    assert definition is not None
    return definition


@pytest.fixture
async def db(postgres_url: str) -> AsyncIterator[Database]:
    with fresh_schema(postgres_url) as url:
        db = Database(url)
        await db.init_schema()
        yield db
        await db.dispose()


@pytest.fixture
async def queue(db: Database) -> ProcrastinateQueue:
    queue = ProcrastinateQueue(db, queues=(DEFAULT_QUEUE,), flows=FACTS.flows)
    for _ in range(2):  # the second time everything is there
        await queue.repair()
    return queue


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """What is asked of the rows from here on."""
    heard: list[str] = []

    def hear(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        heard.append(statement)

    event.listen(Engine, "before_cursor_execute", hear)
    yield heard
    event.remove(Engine, "before_cursor_execute", hear)


async def change(db: Database, sql: str) -> None:
    async with db.session() as session:
        await session.execute(text(sql))
        await session.commit()


async def list_jobs(db: Database) -> list[tuple[str, str]]:
    async with db.session() as session:
        rows = await session.execute(text("SELECT queueing_lock, queue_name FROM procrastinate_jobs ORDER BY id"))
        return [(row[0], row[1]) for row in rows]


async def drive(db: Database, journal: Journal, tmp_path: Any, run_id: str) -> None:
    drives = RunDrives(db, journal, load_config(data_dir=tmp_path), _make_none, flows=_FLOWS, is_choosy=True)
    found = await drives.find_flow(run_id)
    assert found is not None
    await found.run()


async def _make_none(_folder: Any) -> Any:
    raise AssertionError("no workflow is driven here")


_FLOWS = {"queue_tables_ask": find_ask()}


async def test_a_flow_that_is_started_waits_in_the_queue_if_a_living_worker_takes_it(
    db: Database, queue: ProcrastinateQueue
) -> None:
    await start_flow("known", run_id="nobody", store=db.store)
    await register(db, FACTS)
    await start_flow("known", run_id="first", store=db.store)
    await start_flow("known", run_id="first", store=db.store)
    await start_flow("unknown", run_id="unknown", store=db.store)
    await start_flow(LONG, run_id="long", store=db.store)  # under a name that only the worker makes
    await change(db, "UPDATE workers SET seen_at = seen_at - 7")
    await start_flow("known", run_id="silent", store=db.store)
    await register(db, FACTS)
    await drain_worker(db, FACTS.name)
    await start_flow("known", run_id="draining", store=db.store)

    assert await list_jobs(db) == [("first", to_queue_name(DEFAULT_QUEUE, "known"))]


async def test_what_is_due_later_or_driven_by_another_run_is_left_to_them(
    db: Database, queue: ProcrastinateQueue
) -> None:
    await register(db, FACTS)
    async with open_journal(db.store) as journal:
        child = flow_rows.created("child", "known", FlowOptions(parent_run_id="above"))
        await journal.append("child", [], rows=[child])
        driven = flow_rows.started("later", "known", FlowOptions())
        await journal.append("later", [], rows=[driven])
    await change(db, "UPDATE flow_runs SET wake_at = extract(epoch FROM now()) + 60 WHERE run_id = 'later'")

    assert await list_jobs(db) == []


async def test_an_answer_enqueues_the_flow_that_waits_for_it_unless_its_owner_still_has_it(
    db: Database, queue: ProcrastinateQueue, tmp_path: Any
) -> None:
    async with open_journal(db.store) as journal:
        for run_id in ("free", "held"):
            await start_flow(ask, run_id=run_id, store=db.store)
            await drive(db, journal, tmp_path, run_id)
        await register(db, FACTS)
        claim = await journal.claim("held")
        for run_id in ("free", "held"):
            await decide(run_id, "go", "approve", store=db.store)
        assert await list_jobs(db) == [("free", to_queue_name(DEFAULT_QUEUE, "queue_tables_ask"))]
        await journal.release(claim)


LOST = (
    *(f"TABLE procrastinate_{name}" for name in ("jobs", "events", "workers", "periodic_defers")),
    *(f"TYPE procrastinate_job_{name}" for name in ("status", "event_type", "to_defer_v1")),
    *(f"FUNCTION procrastinate_{name}_v1" for name in ("finish_job", "trigger_function_status_events_insert")),
    "INDEX procrastinate_jobs_queueing_lock_idx_v1",
    "FUNCTION holdfast_enqueue",
    "FUNCTION holdfast_enqueue_flow",
)


@pytest.mark.parametrize("lost", [*LOST, "TABLE workers"])
async def test_a_flow_is_started_whatever_is_lost_of_the_queue(
    db: Database, queue: ProcrastinateQueue, lost: str
) -> None:
    await register(db, FACTS)
    await change(db, f"DROP {lost} CASCADE")
    handle = await start_flow("known", run_id="first", store=db.store)
    assert await handle.status() == "pending"


@pytest.mark.parametrize("lost", LOST)
async def test_whatever_is_lost_of_the_queue_is_seen_by_the_next_look_and_made_anew(
    db: Database, queue: ProcrastinateQueue, lost: str
) -> None:
    async def look() -> Beat:
        return await beat(db, FACTS, driven=0, queue_parts=queue.describe().parts)

    await register(db, FACTS)
    assert (await look()).has_queue
    await change(db, f"DROP {lost} CASCADE")
    if lost != "FUNCTION holdfast_enqueue":  # without it the sweep alone brings a run into the queue
        async with open_journal(db.store) as journal:
            await journal.append("begun", [], rows=queue.beside("begun", queue=DEFAULT_QUEUE))
    await start_flow("known", run_id="first", store=db.store)
    await change(db, "UPDATE flow_runs SET updated_at = updated_at - 2")  # it is no longer left to the job beside it
    found = await look()
    assert not found.has_queue
    assert [job.run_id for job in found.due] == ["first"]

    others = [Database(db.address) for _ in range(3)]
    await asyncio.gather(*(ProcrastinateQueue(each, queues=(DEFAULT_QUEUE,)).repair() for each in (db, *others)))
    for other in others:
        await other.dispose()
    assert (await look()).has_queue
    await queue.enqueue(found.due)
    assert await list_jobs(db) == [("first", to_queue_name(DEFAULT_QUEUE, "known"))]


async def test_a_worker_that_dies_while_it_makes_the_queue_anew_leaves_it_to_the_next(
    db: Database, queue: ProcrastinateQueue
) -> None:
    parts = queue.describe().parts
    await change(db, "DROP TABLE procrastinate_events CASCADE")
    dies = "CREATE TABLE procrastinate_half (id bigint); SELECT pg_terminate_backend(pg_backend_pid())"
    with pytest.raises(StoreUnavailable):
        await make_queue_tables(db, QueueSchema("9", dies, parts))
    assert await has_parts(db, ["procrastinate_jobs"])
    assert not await has_parts(db, ["procrastinate_half"])
    await queue.repair()
    assert await has_parts(db, parts)


async def test_jobs_of_another_program_are_never_removed(db: Database, queue: ProcrastinateQueue) -> None:
    await change(db, "INSERT INTO procrastinate_jobs (queue_name, task_name) VALUES ('theirs', 'send')")
    await change(db, "DROP TABLE procrastinate_events CASCADE")
    with pytest.raises(StoreUnreadable, match="belong to another program"):
        await queue.repair()
    assert await list_jobs(db) == [(None, "theirs")]


async def test_tables_of_another_program_are_never_removed_though_no_job_waits_there(db: Database) -> None:
    async with db.session() as session:
        raw = (await (await session.connection()).get_raw_connection()).driver_connection
        assert raw is not None
        await raw.execute(procrastinate.schema.SchemaManager.get_schema())
        await session.commit()
    with pytest.raises(StoreUnreadable, match="belong to another program"):
        await ProcrastinateQueue(db, queues=(DEFAULT_QUEUE,)).repair()
    await change(db, "INSERT INTO procrastinate_jobs (queue_name, task_name) VALUES ('theirs', 'send')")


async def test_of_two_versions_the_older_one_leaves_the_queue_to_the_newer(
    db: Database, queue: ProcrastinateQueue
) -> None:
    """In an upgrade machine by machine each would otherwise remove what the other needs, with every look."""
    parts = queue.describe().parts
    sql = procrastinate.schema.SchemaManager.get_schema().replace("procrastinate_finish_job_v1", "finish_job_v2")
    newer = QueueSchema(
        "99.00.00", sql, [part.replace("procrastinate_finish_job_v1", "finish_job_v2") for part in parts]
    )
    await make_queue_tables(db, newer)
    with pytest.raises(StoreUnreadable, match="newer version"):
        await queue.repair()
    assert await has_parts(db, newer.parts)
    await change(db, "DROP TABLE procrastinate_events CASCADE")
    with pytest.raises(StoreUnreadable, match="newer version"):
        await queue.repair()
    await make_queue_tables(db, newer)
    assert await has_parts(db, newer.parts)


async def test_a_look_at_a_flow_that_nobody_has_begun_asks_nothing_about_workflows(
    db: Database, tmp_path: Any, statements: list[str]
) -> None:
    await start_flow(ask, run_id="first", store=db.store)
    async with open_journal(db.store) as journal:
        await drive(db, journal, tmp_path, "first")
    assert statements == []


async def test_a_job_of_a_queue_worker_that_is_gone_stays_while_somebody_has_its_run(
    db: Database, queue: ProcrastinateQueue
) -> None:
    """Who ends its job finds it; what a dead one has left is cleared with its lease."""
    for run_id in ("held", "left"):
        db.store.save_event(create_event(run_id, EventKind.AGENT_PROGRESS))
        await queue.enqueue([DueJob(run_id, DEFAULT_QUEUE)])
    await change(db, "UPDATE procrastinate_jobs SET status = 'doing'")
    claim = db.store.claim("held")
    await register(db, FACTS)

    assert (await beat(db, FACTS, driven=0, queue_parts=queue.describe().parts)).is_sweeper
    assert [run_id for run_id, _ in await list_jobs(db)] == ["held"]
    db.store.release(claim)
    await beat(db, FACTS, driven=0, queue_parts=queue.describe().parts)
    assert await list_jobs(db) == []
