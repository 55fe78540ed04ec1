"""What past runs tell, on both databases: the newest ones, what they took, cost and waited, and where they worked."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import text

from holdfast.persistence.db import Database
from holdfast.persistence.models import ApprovalRow, LedgerRow, RunPhaseRow, RunRow, WorkflowTemplateRow
from holdfast.persistence.statistics import read_past_runs, read_used_repositories, seconds_between


@asynccontextmanager
async def database(url: str) -> AsyncIterator[Database]:
    db = Database(url)
    try:
        await db.init_schema()
        yield db
    finally:
        await db.dispose()


def at(minute: int, second: int = 0) -> str:
    return f"2026-03-01T10:{minute:02}:{second:02}.000Z"


def run(number: int, **fields: Any) -> RunRow:
    values = {"workflow": "w", "state": "completed", "repo_path": "/code/a", "base_branch": "main", **fields}
    times = {"created_at": at(number), "started_at": at(number), "ended_at": at(number, 30)}
    return RunRow(id=f"r{number}", template_id="t", **{**times, **values})


async def add(db: Database, *rows: Any) -> None:
    async with db.session() as session, session.begin():
        session.add(WorkflowTemplateRow(id="t", hash="h"))
        await session.flush()
        session.add_all([row for row in rows if isinstance(row, RunRow)])
        await session.flush()
        session.add_all([row for row in rows if not isinstance(row, RunRow)])


async def test_the_newest_runs_come_with_time_cost_and_waiting(database_url: str) -> None:
    async with database(database_url) as db:
        await add(
            db,
            run(1),
            run(2),
            run(3, state="running", ended_at=None),
            LedgerRow(id="l1", run_id="r2", phase_key="plan", amount_micros=700),
            LedgerRow(id="l2", run_id="r2", phase_key="plan", amount_micros=300),
            LedgerRow(id="l3", run_id="r2", phase_key="code", amount_micros=1),
            RunPhaseRow(run_id="r2", phase_key="plan", state="completed", started_at=at(2), ended_at=at(2, 20)),
            RunPhaseRow(run_id="r2", phase_key="code", state="failed", started_at=at(2, 20), ended_at=at(2, 30)),
            ApprovalRow(id="a1", run_id="r2", requested_at=at(2, 10), decided_at=at(2, 15)),
            ApprovalRow(id="a2", run_id="r2", requested_at=at(2, 20), decided_at=None),
        )

        newest, second = await read_past_runs(db, limit=2)

    assert (newest.run_id, newest.seconds, newest.cost_micros) == ("r3", None, 0)
    assert (second.run_id, second.seconds, second.cost_micros, second.waited_s) == ("r2", 30.0, 1001, 5.0)
    assert [(phase.phase_key, phase.seconds, phase.cost_micros) for phase in second.phases] == [("plan", 20.0, 1000)]


async def test_repositories_come_with_their_last_branch_the_latest_first(database_url: str) -> None:
    async with database(database_url) as db:
        await add(db, run(1, base_branch="old"), run(2, repo_path="/code/b"), run(3, base_branch="new"))

        used = await read_used_repositories(db)

    assert [(one.repo_path, one.base_branch, one.runs, one.last_used_at) for one in used] == [
        ("/code/a", "new", 2, at(3)),
        ("/code/b", "main", 1, at(2)),
    ]


async def test_the_newest_runs_are_found_by_an_index(database_url: str) -> None:
    """Asked of SQLite only: with a handful of rows Postgres rightly prefers to read them all."""
    async with database(database_url) as db:
        if not database_url.startswith("sqlite"):
            return
        async with db.session() as session:
            plan = await session.execute(
                text("EXPLAIN QUERY PLAN SELECT * FROM runs ORDER BY created_at DESC, id DESC LIMIT 500")
            )
            plan_text = " ".join(str(row[-1]) for row in plan)

    assert "runs_by_time" in plan_text


def test_times_that_are_none_are_no_seconds() -> None:
    assert seconds_between("yesterday", at(1)) is None
    assert seconds_between(None, at(1)) is None
    assert seconds_between(at(2), at(1)) == 0.0
