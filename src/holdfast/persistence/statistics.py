"""What past runs tell about the next one: how long, how dear, on which repositories.

Rule: only the newest runs are looked at, by the index on their time, so that an old and large database answers as
quickly as a new one.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Select, func, select

from holdfast.enums import RunPhaseState
from holdfast.persistence.db import Database
from holdfast.persistence.models import ApprovalRow, LedgerRow, RunPhaseRow, RunRow

RECENT_RUNS = 500
_SORTS = (LedgerRow.run_id, LedgerRow.phase_key, LedgerRow.is_simulated)


@dataclass(frozen=True)
class PastPhase:
    phase_key: str
    seconds: float
    cost_micros: int
    simulated_micros: int = 0


@dataclass(frozen=True)
class PastRun:
    """One run as far as it can be compared with others; `seconds` only of one that has ended."""

    run_id: str
    workflow: str
    state: str
    is_simulated: bool
    created_at: str
    cost_micros: int
    seconds: float | None
    waited_s: float
    phases: list[PastPhase] = field(default_factory=list)
    simulated_micros: int = 0
    """What the simulated model made up; `cost_micros` is real money alone."""


async def read_past_runs(db: Database, *, limit: int = RECENT_RUNS) -> list[PastRun]:
    """Read the newest runs of all workflows, newest first, with what their phases took and cost."""
    newest = select(RunRow).order_by(RunRow.created_at.desc(), RunRow.id.desc()).limit(limit)
    recent: Select[tuple[str]] = select(newest.subquery().c.id)
    async with db.session() as session:
        runs = list(await session.scalars(newest))
        costs = await session.execute(
            select(*_SORTS, func.sum(LedgerRow.amount_micros)).where(LedgerRow.run_id.in_(recent)).group_by(*_SORTS)
        )
        spent: dict[tuple[str, str, bool], int] = defaultdict(int)
        for run_id, phase_key, is_simulated, total in costs:
            spent[run_id, phase_key, bool(is_simulated)] += int(total or 0)
        approvals = await session.execute(
            select(ApprovalRow.run_id, ApprovalRow.requested_at, ApprovalRow.decided_at).where(
                ApprovalRow.run_id.in_(recent)
            )
        )
        waits: dict[str, float] = defaultdict(float)
        for run_id, requested_at, decided_at in approvals:
            waits[run_id] += seconds_between(requested_at, decided_at) or 0.0
        phases: dict[str, list[PastPhase]] = defaultdict(list)
        for row in await session.scalars(select(RunPhaseRow).where(RunPhaseRow.run_id.in_(recent))):
            took = seconds_between(row.started_at, row.ended_at)
            if row.state == RunPhaseState.COMPLETED and took is not None:
                amounts = (spent.get((row.run_id, row.phase_key, is_simulated), 0) for is_simulated in (False, True))
                phases[row.run_id].append(PastPhase(row.phase_key, took, *amounts))
    totals: dict[tuple[str, bool], int] = defaultdict(int)
    for (run_id, _phase_key, is_simulated), micros in spent.items():
        totals[run_id, is_simulated] += micros
    return [_to_past(run, totals[run.id, False], totals[run.id, True], waits[run.id], phases[run.id]) for run in runs]


def _to_past(run: RunRow, cost_micros: int, simulated_micros: int, waited_s: float, phases: list[PastPhase]) -> PastRun:
    return PastRun(
        run_id=run.id,
        workflow=run.workflow,
        state=run.state,
        is_simulated=bool(run.is_simulated),
        created_at=run.created_at,
        cost_micros=cost_micros,
        seconds=seconds_between(run.started_at, run.ended_at),
        waited_s=waited_s,
        phases=phases,
        simulated_micros=simulated_micros,
    )


def seconds_between(start: str | None, end: str | None) -> float | None:
    """Return the time between two of the rows' times; `None` if one is missing or is no time."""
    if not start or not end:
        return None
    try:
        return max(0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds())
    except (ValueError, TypeError):
        return None


@dataclass(frozen=True)
class UsedRepository:
    repo_path: str
    base_branch: str
    runs: int
    last_used_at: str


async def read_used_repositories(db: Database, *, limit: int = RECENT_RUNS) -> list[UsedRepository]:
    """Read the repositories of the newest runs, the one used last first, with the branch of its last run."""
    newest = (
        select(RunRow.repo_path, RunRow.base_branch, RunRow.created_at)
        .order_by(RunRow.created_at.desc(), RunRow.id.desc())
        .limit(limit)
    )
    async with db.session() as session:
        rows = [(str(path), str(branch), str(at)) for path, branch, at in await session.execute(newest)]
    found: dict[str, UsedRepository] = {}
    for path, branch, created_at in rows:
        before = found.get(path)
        found[path] = UsedRepository(
            path,
            before.base_branch if before else branch,
            before.runs + 1 if before else 1,
            before.last_used_at if before else created_at,
        )
    return list(found.values())
