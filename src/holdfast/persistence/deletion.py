"""Deleting runs as rows: which are over, what goes with one, and what is remembered of it.

Rule: a run's rows, its journal and the note of what is still to be removed are one transaction. Before it the run is
there, after it it is gone; the note stays until its files and refs are gone as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import func, select, text

from holdfast.enums import TERMINAL_STATES, RunPhaseState, RunStatus
from holdfast.persistence.db import Database
from holdfast.persistence.models import DeletedRunRow, RunEventRow, RunPhaseRow, RunRow
from holdfast.persistence.statements import (
    delete_run,
    drop_unused_bases,
    forget_positions,
    insert,
    lock_run,
    now_text,
    to_time_text,
)
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.events import EventKind
from holdfast.runtime.journal import Journal

OVER = TERMINAL_STATES
CLEANUP_JOURNAL = "holdfast-cleanup"  # it has no events
_CHILD_TABLES = (
    *("approvals", "artifacts", "ledger", "run_bindings", "run_phases", "idempotency_keys"),
    *("run_schemas", "run_reports", "run_bases", "tree_packs", "run_looks", "run_images"),
)
_BEGUN = timedelta(days=1)  # a base pack that is being written is not any run's yet


@dataclass(frozen=True)
class OverRun:
    """A run that is over, as far as cleaning up needs to know it."""

    run_id: str
    state: str
    ended_at: str
    repo_path: str
    forked_from: str | None
    has_open_request: bool
    """Somebody wants it to go on: a retry that no driver has taken yet."""


async def list_over(db: Database) -> list[OverRun]:
    """List every run that is over, the one that ended first at the beginning."""
    ended = func.coalesce(RunRow.ended_at, func.nullif(RunRow.updated_at, ""), RunRow.created_at)
    query = select(RunRow, ended).where(RunRow.state.in_(OVER)).order_by(ended, RunRow.id)
    async with db.session() as session:
        return [_to_over(row, ended_at) for row, ended_at in await session.execute(query)]


async def find_over(db: Database, run_id: str) -> OverRun | None:
    """Find the run, if it is there and over."""
    async with db.session() as session:
        row = await session.get(RunRow, run_id)
    if row is None or row.state not in OVER:
        return None
    ended_at = row.ended_at or row.updated_at or row.created_at
    return _to_over(row, ended_at)


def _to_over(row: RunRow, ended_at: str) -> OverRun:
    is_to_be_retried = row.state == RunStatus.FAILED and row.wake is not None
    return OverRun(row.id, row.state, ended_at, row.repo_path, row.forked_from, is_to_be_retried)


async def read_merges(db: Database, run_id: str) -> list[dict[str, Any]]:
    """Read each merge of a run since its last phase ended, as journaled: `commit` and `branch`, or `folder`."""
    of_run = RunEventRow.run_id == run_id
    completed = (
        select(func.max(RunEventRow.seq))
        .where(of_run, RunEventRow.type == EventKind.PHASE_COMPLETED.value)
        .scalar_subquery()
    )
    since = func.coalesce(completed, 0)
    query = select(RunEventRow).where(of_run, RunEventRow.type == EventKind.RUN_MERGED.value, RunEventRow.seq > since)
    async with db.session() as session:
        return [row.payload for row in await session.scalars(query.order_by(RunEventRow.seq))]


async def list_run_ids(db: Database) -> set[str]:
    async with db.session() as session:
        return set(await session.scalars(select(RunRow.id)))


async def count_open(db: Database) -> dict[str, int]:
    """Count the runs that are not over, by state."""
    query = select(RunRow.state, func.count()).where(RunRow.state.not_in(OVER)).group_by(RunRow.state)
    async with db.session() as session:
        return {state: int(count) for state, count in await session.execute(query)}


async def list_forks(db: Database) -> dict[str, list[str]]:
    """List the forks of each run."""
    found: dict[str, list[str]] = {}
    async with db.session() as session:
        rows = await session.execute(select(RunRow.forked_from, RunRow.id).where(RunRow.forked_from.is_not(None)))
        for origin, run_id in rows:
            found.setdefault(str(origin), []).append(run_id)
    return found


async def read_last_tree(db: Database, run_id: str) -> str | None:
    """Read the tree that the phase completed last has left: what a merge brings."""
    query = select(RunPhaseRow.tree).where(
        RunPhaseRow.run_id == run_id, RunPhaseRow.state == RunPhaseState.COMPLETED, RunPhaseRow.tree.is_not(None)
    )
    async with db.session() as session:
        return await session.scalar(query.order_by(RunPhaseRow.ended_at.desc()).limit(1))


async def measure_journal(db: Database, run_id: str) -> int:
    """Measure roughly how many bytes a run has in rows: its events, big values that only it has, its artifacts."""
    async with db.session() as session:
        sizes = [(await session.execute(text(query), {"id": run_id})).scalar() for query in _SIZES]
    return sum(int(size or 0) for size in sizes)


_SIZES = (
    "SELECT SUM(LENGTH(body) + 100) FROM events WHERE run_id = :id",
    "SELECT SUM(LENGTH(b.body)) FROM blobs AS b JOIN blob_refs AS r ON r.digest = b.digest WHERE r.run_id = :id "
    "AND NOT EXISTS (SELECT 1 FROM blob_refs AS o WHERE o.digest = r.digest AND o.run_id <> :id)",
    "SELECT SUM(LENGTH(content)) FROM artifacts WHERE run_id = :id",
    "SELECT SUM(LENGTH(pack)) FROM tree_packs WHERE run_id = :id",
    "SELECT SUM(LENGTH(data)) FROM run_images WHERE run_id = :id",
)


def deletion_rows(run_id: str, *, data_dir: str, repo: str, has_positions: bool) -> list[Statement]:
    """Return the statements that delete all rows of a run; refused if it is not over, or has a fork.

    Its money moves to the sums of its days. `has_positions` says that the order over all runs is a table of its own.
    """
    noted = {"run_id": run_id, "data_dir": data_dir, "repo": repo, "deleted_at": now_text()}
    rows = [
        # Locks the row before anything is looked at: a fork that is just being made locks it too.
        lock_run(run_id),
        # The sums come before the rows they are made of go; both are one transaction, so no cost is counted twice or
        # lost.
        Statement(_SUM_UP, {"id": run_id}, expect=None),
        *(
            Statement(f"DELETE FROM {table} WHERE run_id = :id", {"id": run_id}, expect=None)  # noqa: S608 - ours
            for table in _CHILD_TABLES
        ),
        drop_unused_bases(to_time_text(datetime.now(UTC) - _BEGUN)),
        delete_run(run_id),
        insert("deleted_runs", noted),
    ]
    return [*rows, forget_positions(run_id)] if has_positions else rows


_SUM_UP = """
INSERT INTO past_spending (day, workflow, persona, model, is_simulated, amount_micros)
SELECT l.day, r.workflow, l.persona, l.model, l.is_simulated, SUM(l.amount_micros)
FROM ledger AS l JOIN runs AS r ON r.id = l.run_id WHERE l.run_id = :id
GROUP BY l.day, r.workflow, l.persona, l.model, l.is_simulated
ON CONFLICT (day, workflow, persona, model, is_simulated)
DO UPDATE SET amount_micros = past_spending.amount_micros + excluded.amount_micros
"""


async def find_deleted(db: Database, run_id: str) -> DeletedRunRow | None:
    async with db.session() as session:
        return await session.get(DeletedRunRow, run_id)


async def list_deleted(db: Database, data_dir: str) -> Sequence[DeletedRunRow]:
    """List the deleted runs that may have left something in this data directory."""
    query = select(DeletedRunRow).where(DeletedRunRow.data_dir == data_dir).order_by(DeletedRunRow.deleted_at)
    async with db.session() as session:
        return list(await session.scalars(query))


async def forget_deleted(journal: Journal, run_id: str) -> None:
    """Forget a deleted run of which nothing is left; may happen twice."""
    gone = Statement("DELETE FROM deleted_runs WHERE run_id = :id", {"id": run_id}, expect=None)
    await journal.append(CLEANUP_JOURNAL, [], rows=[gone])
