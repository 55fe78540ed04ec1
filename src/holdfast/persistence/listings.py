"""What people and programs list: pages of runs, what is due to be driven, money by day and by what it was spent on."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, and_, column, func, or_, select, table, text, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from holdfast.enums import RunStatus
from holdfast.persistence.db import Database
from holdfast.persistence.models import DUE_INDEXES, LedgerRow, PastSpendingRow, RunPhaseRow, RunRow
from holdfast.persistence.runs import Spending, is_unanswered
from holdfast.runtime.checkpoint import process_owner
from holdfast.runtime.checkpoint.run_lock import find_held, lock_folder

_JOURNAL = table("journal_runs", column("run_id"), column("owner"), column("lease_until"))


@dataclass(frozen=True)
class RunFilter:
    """Which runs: every field that is given must fit."""

    state: str | None = None
    workflow: str | None = None
    text: str | None = None
    repo: str | None = None
    person: str | None = None
    """Who started it."""
    since: str | None = None
    """Created at this time or later, as the rows have it; the next one: before that time."""
    until: str | None = None


@dataclass(frozen=True)
class ListedRun:
    run: RunRow
    spent: Spending


async def list_page(
    db: Database,
    run_filter: RunFilter,
    *,
    limit: int,
    after: tuple[str, str] | None = None,
    is_oldest_first: bool = False,
) -> list[ListedRun]:
    """List at most `limit` runs, newest first, that come after the run with this time of creation and id."""
    is_real = LedgerRow.is_simulated == 0
    sums = (
        _sum_of_run(is_real),
        _sum_of_run(is_real, LedgerRow.state == "reserved"),
        _sum_of_run(LedgerRow.is_simulated == 1),
        _sum_of_run(is_real, is_unanswered()),
    )
    query = _filtered(select(RunRow, *sums), run_filter)
    place, last = tuple_(RunRow.created_at, RunRow.id), tuple_(*after) if after is not None else None
    if last is not None:
        query = query.where(place > last if is_oldest_first else place < last)
    order = (RunRow.created_at, RunRow.id)
    query = query.order_by(*(order if is_oldest_first else (each.desc() for each in order))).limit(limit)
    async with db.session() as session:
        return [
            ListedRun(
                run, Spending(int(real or 0) - int(held or 0), int(held or 0), int(play or 0), int(unanswered or 0))
            )
            for run, real, held, play, unanswered in await session.execute(query)
        ]


def _sum_of_run(*conditions: Any) -> Any:
    return (
        select(func.coalesce(func.sum(LedgerRow.amount_micros), 0))
        .where(LedgerRow.run_id == RunRow.id, *conditions)
        .correlate(RunRow)
        .scalar_subquery()
    )


async def list_phases(db: Database, run_ids: Sequence[str]) -> dict[str, list[RunPhaseRow]]:
    """List the phases of each of these runs, in their order."""
    query = select(RunPhaseRow).where(RunPhaseRow.run_id.in_(run_ids)).order_by(RunPhaseRow.position)
    found: dict[str, list[RunPhaseRow]] = {}
    async with db.session() as session:
        for row in await session.scalars(query):
            found.setdefault(row.run_id, []).append(row)
    return found


def _filtered(query: Select[Any], run_filter: RunFilter) -> Select[Any]:
    if run_filter.state is not None:
        query = query.where(RunRow.state == run_filter.state)
    if run_filter.workflow is not None:
        query = query.where(RunRow.workflow == run_filter.workflow)
    if run_filter.text is not None:
        query = query.where(
            or_(
                RunRow.title.contains(run_filter.text, autoescape=True),
                RunRow.requirements_md.contains(run_filter.text, autoescape=True),
            )
        )
    if run_filter.repo is not None:
        query = query.where(RunRow.repo_path.contains(run_filter.repo, autoescape=True))
    if run_filter.person is not None:
        query = query.where(RunRow.started_by == run_filter.person)
    if run_filter.since is not None:
        query = query.where(RunRow.created_at >= run_filter.since)
    if run_filter.until is not None:
        query = query.where(RunRow.created_at < run_filter.until)
    return query


@dataclass(frozen=True)
class DueRun:
    """A run that somebody should be driving; whether somebody does, its claim tells."""

    run_id: str
    state: str
    repo_path: str
    wake: str | None


async def list_due(
    db: Database, *, limit: int | None = None, but: Collection[str] = (), of: Collection[str] | None = None
) -> list[DueRun]:
    """List runs that are pending or running, that a person asked to go on, or whose every question is answered.

    The oldest first, of all or of these. Left out are those in `but`, and those that a living process owns, as far as
    is seen from here.
    """
    conditions = [RunRow.id.not_in(list(but)), *([] if of is None else [RunRow.id.in_(list(of))])]
    async with db.session() as session:
        if db.path is None:
            return await read_unowned(session, *conditions, limit=limit)
        rows = [row for part in _select_due(*conditions) for row in await session.execute(part)]
    owned = find_held(lock_folder(db.path), [row.id for row in rows])
    return _to_due([row for row in rows if row.id not in owned], limit)


def _select_due(*more: Any) -> list[Any]:
    # Three parts, each with an index of its own: what waits or is over is not looked at.
    columns = (RunRow.id, RunRow.state, RunRow.repo_path, RunRow.wake, RunRow.created_at)
    conditions = (
        RunRow.state.in_((RunStatus.RUNNING.value, RunStatus.PENDING.value)),
        text(DUE_INDEXES["runs_requested"]),
        and_(text(DUE_INDEXES["runs_answered"]), RunRow.wake.is_(None)),
    )
    return [select(*columns).where(condition, *more) for condition in conditions]


async def read_unowned(session: AsyncSession, *conditions: Any, limit: int | None = None) -> list[DueRun]:
    """Read the due runs on Postgres whose lease is over, and those of which this machine sees that the owner died."""
    found: list[Any] = []
    parts = _select_due(*conditions)
    for part in parts:
        query = part.outerjoin(_JOURNAL, _JOURNAL.c.run_id == RunRow.id)
        free = query.where(or_(_JOURNAL.c.owner.is_(None), _JOURNAL.c.lease_until <= func.clock_timestamp()))
        found += await session.execute(free.order_by(RunRow.created_at, RunRow.id).limit(limit))
    here = parts[0].join(_JOURNAL, _JOURNAL.c.run_id == RunRow.id).add_columns(_JOURNAL.c.owner)
    leased = _JOURNAL.c.lease_until > func.clock_timestamp()
    of_machine = _JOURNAL.c.owner.contains(process_owner.machine_mark(), autoescape=True)
    found += [
        row for row in await session.execute(here.where(leased, of_machine)) if process_owner.is_dead_text(row.owner)
    ]
    return _to_due(found, limit)


async def list_owned_elsewhere(db: Database, run_ids: Collection[str]) -> set[str]:
    """List those of the runs that a process of another machine owns, as its lease says."""
    if db.path is not None:
        return set()
    leased = and_(_JOURNAL.c.run_id.in_(list(run_ids)), _JOURNAL.c.lease_until > func.clock_timestamp())
    of_machine = _JOURNAL.c.owner.contains(process_owner.machine_mark(), autoescape=True)
    async with db.session() as session:
        return set(await session.scalars(select(_JOURNAL.c.run_id).where(leased, ~of_machine)))


def _to_due(rows: Sequence[Any], limit: int | None) -> list[DueRun]:
    rows = sorted(rows, key=lambda row: (row.created_at, row.id))[:limit]
    return [DueRun(row.id, row.state, row.repo_path, row.wake) for row in rows]


async def read_state(db: Database, run_id: str) -> str | None:
    async with db.session() as session:
        return await session.scalar(select(RunRow.state).where(RunRow.id == run_id))


_FLOWS = table("flow_runs", column("run_id"), column("status"))  # the runtime's, and so in no migration


async def read_states(db: Database, run_ids: Sequence[str]) -> list[str | None]:
    """Read the state of each of these runs, of workflows and of flows; `None` where there is no such run."""
    async with db.session() as session:
        rows = await session.execute(select(RunRow.id, RunRow.state).where(RunRow.id.in_(set(run_ids))))
        found = {row.id: row.state for row in rows}
        if missing := set(run_ids) - found.keys():
            flows = await session.execute(select(_FLOWS.c.run_id, _FLOWS.c.status).where(_FLOWS.c.run_id.in_(missing)))
            found |= {row.run_id: row.status for row in flows}
    return [found.get(run_id) for run_id in run_ids]


async def count_by_state(db: Database) -> dict[str, int]:
    async with db.session() as session:
        rows = await session.execute(select(RunRow.state, func.count()).group_by(RunRow.state))
        return {state: int(count) for state, count in rows}


async def list_workflow_names(db: Database) -> list[str]:
    """List the workflows that have runs, in alphabetical order."""
    async with db.session() as session:
        return sorted(await session.scalars(select(RunRow.workflow).where(RunRow.workflow != "").distinct()))


async def read_phase_times(db: Database, run_id: str) -> Sequence[RunPhaseRow]:
    async with db.session() as session:
        return list(await session.scalars(select(RunPhaseRow).where(RunPhaseRow.run_id == run_id)))


@dataclass(frozen=True)
class Money:
    """Real micro-dollars per day, and since the first of those days per workflow, persona and model.

    Those that rehearsals made up are apart, by day.
    """

    by_day: dict[str, int]
    by_workflow: dict[str, int]
    by_persona: dict[str, int]
    by_model: dict[str, int]
    simulated_by_day: dict[str, int]


async def read_money(db: Database, *, since_day: str) -> Money:
    amount = func.sum(LedgerRow.amount_micros)
    async with db.session() as session:

        async def read(column: Any, of_deleted: Any, *, is_simulated: int = 0) -> dict[str, int]:
            query = select(column, amount).join(RunRow, RunRow.id == LedgerRow.run_id)
            query = query.where(LedgerRow.day >= since_day, LedgerRow.is_simulated == is_simulated)
            rows = list(await session.execute(query.group_by(column)))
            past = select(of_deleted, func.sum(PastSpendingRow.amount_micros)).group_by(of_deleted)
            past = past.where(PastSpendingRow.day >= since_day, PastSpendingRow.is_simulated == is_simulated)
            rows += await session.execute(past)
            totals: dict[str, int] = {}
            for name, total in rows:
                totals[name] = totals.get(name, 0) + int(total or 0)
            return dict(sorted(totals.items()))

        return Money(
            await read(LedgerRow.day, PastSpendingRow.day),
            await read(RunRow.workflow, PastSpendingRow.workflow),
            await read(LedgerRow.persona, PastSpendingRow.persona),
            await read(LedgerRow.model, PastSpendingRow.model),
            await read(LedgerRow.day, PastSpendingRow.day, is_simulated=1),
        )


async def read_total_micros(db: Database) -> tuple[int, int]:
    """Read all real money ever spent, and all that rehearsals made up; what deleted runs spent is in it."""
    totals = {False: 0, True: 0}
    async with db.session() as session:
        for row in (LedgerRow, PastSpendingRow):
            query = select(row.is_simulated, func.sum(row.amount_micros)).group_by(row.is_simulated)
            for is_simulated, total in await session.execute(query):
                totals[bool(is_simulated)] += int(total or 0)
    return totals[False], totals[True]
