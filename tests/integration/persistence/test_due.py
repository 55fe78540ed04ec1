"""F5: what is due is found by indexes, a limited number at a time, without the runs that a living process has."""

import contextlib
import os
import re
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, text
from tests.support.postgres_server import fresh_schema
from tests.support.stores import start_python

from holdfast.fleet.assembly import make_queue
from holdfast.persistence.db import Database
from holdfast.persistence.due.beat import beat, count_due
from holdfast.persistence.fleet import WorkerFacts, register
from holdfast.persistence.listings import list_due
from holdfast.runtime.checkpoint import process_owner

ELSEWHERE = process_owner.Owner("other-host", "boot", "ns", os.getpid(), "1", "token").to_text()
LARGE = ("runs", "approvals", "flow_runs", "journal_runs")
OWNER = """
import sys
from holdfast.runtime.stores import open_store
store = open_store(sys.argv[1])
claim = store.claim("owned")
print("owns", flush=True)
sys.stdin.read()
"""


@contextlib.asynccontextmanager
async def open_database(url: str) -> AsyncIterator[Database]:
    db = Database(url)
    await db.init_schema()
    await run_sql(db, "INSERT INTO workflow_templates (id, hash) VALUES ('t', 'h')")
    yield db
    await db.dispose()


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[Database]:
    async with open_database(database_url) as db:
        yield db


async def run_sql(db: Database, sql: str, **params: Any) -> None:
    async with db.session() as session:
        await session.execute(text(sql), params)
        await session.commit()


async def insert(db: Database, run_id: str, state: str, *, at: int = 0, reason: str = "", wake: str = "") -> None:
    await run_sql(
        db,
        "INSERT INTO runs (id, template_id, state, created_at, pause_reason, wake) "
        "VALUES (:id, 't', :state, :at, nullif(:reason, ''), nullif(:wake, ''))",
        id=run_id,
        state=state,
        at=f"{at:05}",
        reason=reason,
        wake=wake,
    )


async def ids(db: Database, **options: Any) -> list[str]:
    return [run.run_id for run in await list_due(db, **options)]


async def test_f5_runs_are_due_in_the_order_of_their_creation_and_at_most_so_many(db: Database) -> None:
    await insert(db, "running", "running", at=3)
    await insert(db, "pending", "pending", at=1)
    await insert(db, "requested", "paused", at=2, reason="person", wake="w")
    await insert(db, "retried", "failed", at=4, wake="w")
    await insert(db, "answered", "paused", at=5, reason="approval")
    await insert(db, "waiting", "paused", at=0, reason="approval")
    await insert(db, "paused", "paused", at=0, reason="person")
    await insert(db, "over", "completed", at=0, wake="w")
    await run_sql(db, "INSERT INTO approvals (id, run_id) VALUES ('a', 'waiting'), ('b', 'waiting')")

    assert await ids(db) == ["pending", "requested", "running", "retried", "answered"]
    assert await ids(db, limit=2) == ["pending", "requested"]
    assert await ids(db, limit=2, but=["pending"]) == ["requested", "running"]

    await run_sql(db, "UPDATE approvals SET state = 'decided' WHERE id = 'a'")
    assert "waiting" not in await ids(db)
    await run_sql(db, "UPDATE approvals SET state = 'superseded' WHERE id = 'b'")
    assert (await ids(db))[0] == "waiting"


async def test_f5_a_run_with_a_living_owner_is_not_due_until_that_dies(db: Database) -> None:
    await insert(db, "owned", "running")
    await insert(db, "free", "running", at=1)
    process = start_python(OWNER, db.address)
    assert process.stdout is not None
    assert process.stdout.readline() == "owns\n", process.communicate()[1]
    assert await ids(db) == ["free"]

    process.kill()
    process.communicate()

    assert await ids(db) == ["owned", "free"]
    if db.path is None:  # elsewhere nobody sees it: its lease tells
        await run_sql(db, "UPDATE journal_runs SET owner = :owner", owner=ELSEWHERE)
        assert await ids(db) == ["free"]
        await run_sql(db, "UPDATE journal_runs SET lease_until = now() - interval '1 s'")
        assert await ids(db) == ["owned", "free"]


_RUNS = "INSERT INTO runs (id, template_id, state, pause_reason, due_at, created_at, updated_at) "
_FLOWS = "INSERT INTO flow_runs (run_id, flow, status, wake_at, waits_for) "
FILL = (
    _RUNS + "SELECT 'over-' || n, 't', 'completed', NULL, NULL, n::text, '2026' FROM generate_series(1, 3000) AS n",
    _RUNS + "SELECT 'waits-' || n, 't', 'paused', 'approval', NULL, n::text, '2026' FROM generate_series(1, 3000) AS n",
    "INSERT INTO approvals (id, run_id, deadline_at) SELECT id, id, '2999' FROM runs WHERE state = 'paused'",
    _RUNS + "SELECT 'later-' || n, 't', 'pending', NULL, '2999', n::text, '2026' FROM generate_series(1, 3000) AS n",
    _RUNS + "SELECT 'day-' || n, 't', 'paused', 'budget', '2999', n::text, '2026' FROM generate_series(1, 3000) AS n",
    _FLOWS + "SELECT 'flow-over-' || n, 'nap', 'completed', NULL, NULL FROM generate_series(1, 3000) AS n",
    _FLOWS + "SELECT 'sleeps-' || n, 'nap', 'running', 1e11, 'timer' FROM generate_series(1, 3000) AS n",
    "INSERT INTO journal_runs (run_id) SELECT id FROM runs UNION ALL SELECT run_id FROM flow_runs",
    _FLOWS + "VALUES ('woken', 'nap', 'running', 1, 'timer'), ('left', 'nap', 'running', NULL, NULL)",
    _RUNS + "VALUES ('begun', 't', 'pending', NULL, NULL, '0', '2026-01-01'), "
    "('at', 't', 'pending', NULL, '2026', '1', '2026-01-01'), "
    "('midnight', 't', 'paused', 'budget', '2026', '2', '2026-01-01')",
    *(f"ANALYZE {table}" for table in LARGE),
)
DUE = ["begun", "at", "midnight"]


async def test_f5_what_waits_or_is_over_is_not_looked_at(postgres_url: str) -> None:
    """Whole tables are read neither by the look of a worker for all, nor by who counts what is due."""
    facts = WorkerFacts("alpha", "process", "machine", "1", 8, ("runs", "default"), ("nap",))
    with fresh_schema(postgres_url) as url:
        async with open_database(url) as db:
            for sql in FILL:
                await run_sql(db, sql)
            await register(db, facts)
            queue = make_queue(db)
            await queue.repair()
            await run_sql(db, "SELECT pg_stat_force_next_flush()")  # of what the filling has read
            for table in LARGE:
                await run_sql(db, f"SELECT pg_stat_reset_single_table_counters('{table}'::regclass)")
            assert await ids(db, limit=100) == DUE
            found = await beat(db, facts, driven=0, queue_parts=queue.describe().parts)
            assert ({job.run_id for job in found.due}, found.overdue_at) == ({*DUE, "left", "woken"}, None)
            assert sum((await count_due(db))[0].values()) == 5
            async with db.session() as session:
                await session.execute(text("SELECT pg_stat_force_next_flush()"))
            async with db.session() as session:
                scans = "SELECT relname, seq_scan FROM pg_stat_user_tables WHERE schemaname = current_schema()"
                counts = {row.relname: row.seq_scan for row in await session.execute(text(scans))}
            assert {table: counts[table] for table in LARGE} == dict.fromkeys(LARGE, 0)


async def test_f5_on_sqlite_each_part_of_the_question_has_its_index(tmp_path: Path) -> None:
    """Without statistics, as they are where nobody has asked SQLite to make them."""
    statements: list[tuple[str, Any]] = []

    def hear(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        statements.append((statement, parameters))

    async with open_database(f"sqlite:///{tmp_path / 'due.db'}") as db:
        scheduled = "INSERT INTO runs (id, template_id, state, schedule, created_at) VALUES "
        await run_sql(db, scheduled + "('a', 't', 'pending', 'nightly', '1'), ('b', 't', 'pending', 'nightly', '2')")
        event.listen(Engine, "before_cursor_execute", hear)
        try:
            assert [run.run_id for run in await list_due(db)] == ["a"]
        finally:
            event.remove(Engine, "before_cursor_execute", hear)
        queries = [(statement, values) for statement, values in statements if "FROM runs" in statement]
        with contextlib.closing(sqlite3.connect(tmp_path / "due.db")) as connection:
            plans = [
                [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
                for statement, values in queries
            ]
    found = [re.findall(r"(?:SCAN|SEARCH) runs(?: USING INDEX (\w+))?", " ".join(plan)) for plan in plans]
    due = ["runs_open", "runs_later", "runs_requested", "runs_answered", "runs_timed"]
    assert due in found
    assert ["runs_scheduled"] in found
    assert not any("" in names for names in found), plans


async def test_an_overdue_approval_of_a_run_that_is_over_is_nobodys_work(postgres_url: str) -> None:
    facts = WorkerFacts("alpha", "process", "machine", "1", 8, ("runs", "default"), ())
    found = []
    with fresh_schema(postgres_url) as url:
        async with open_database(url) as db:
            await register(db, facts)
            queue = make_queue(db)
            await queue.repair()
            for run_id, state in (("aborted", "cancelled"), ("broken", "failed"), ("waits", "paused")):
                await insert(db, run_id, state)
                await run_sql(
                    db, f"INSERT INTO approvals (id, run_id, deadline_at) VALUES ('{run_id}', '{run_id}', '20')"
                )
                found.append(
                    (await beat(db, facts, driven=0, queue_parts=queue.describe().parts)).overdue_at is not None
                )
    assert found == [False, False, True]


async def test_what_is_counted_as_due_is_what_another_worker_could_take(postgres_url: str) -> None:
    with fresh_schema(postgres_url) as url:
        async with open_database(url) as db:
            assert await count_due(db) == ({}, 0.0)
            states = {"begun": "pending", "left": "running", "asked": "paused", "later": "pending", "full": "pending"}
            for run_id, state in states.items():
                await insert(db, run_id, state, wake="w" if state == "paused" else "")
            ago = "to_char(now() AT TIME ZONE 'UTC' - interval '{} s', 'YYYY-MM-DD\"T\"HH24\\:MI\\:SS.MS\"Z\"')"
            await run_sql(db, f"UPDATE runs SET updated_at = {ago.format(90)}")
            await run_sql(db, f"UPDATE runs SET due_at = {ago.format(30)} WHERE id = 'begun'")
            await run_sql(db, f"UPDATE runs SET due_at = {ago.format(-600)} WHERE id = 'later'")
            await run_sql(db, "UPDATE runs SET waits_for = 'Waits for a place.' WHERE id = 'full'")
            owned = (
                "INSERT INTO journal_runs (run_id, owner, lease_until) VALUES (:id, :owner, now() + interval '{} s')"
            )
            await run_sql(db, owned.format(-1), id="left", owner=ELSEWHERE)
            await run_sql(db, "UPDATE runs SET queue = 'gpu' WHERE id = 'begun'")
            counts, oldest_s = await count_due(db)
            assert (counts, 90 <= oldest_s < 600) == ({"gpu": 1, "runs": 2}, True)

            await run_sql(db, "UPDATE journal_runs SET lease_until = now() + interval '600 s'")
            await run_sql(db, "UPDATE runs SET wake = NULL WHERE id = 'asked'")
            counts, oldest_s = await count_due(db)
            assert (counts, 30 <= oldest_s < 90) == ({"gpu": 1}, True)
