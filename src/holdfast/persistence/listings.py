"""What people and programs list: pages of runs, what is due to be driven, money by day and by what it was spent on."""

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, bindparam, column, func, literal, or_, select, table, text, true, union_all
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.sql import CompoundSelect, Select

from holdfast.enums import RunStatus
from holdfast.persistence.admission import QueuedRun, clock_of, count_places, note_waits, order_fairly
from holdfast.persistence.db import Database
from holdfast.persistence.due.indexes import due_conditions
from holdfast.persistence.due.still_runs import RUN_FORMAT
from holdfast.persistence.models import LedgerRow, PastSpendingRow, RunBaseRow, RunPhaseRow, RunRow
from holdfast.persistence.run_order import ListOrder, ListPlace, in_order, list_keys, sum_of_run
from holdfast.persistence.runs import Spending, find_interrupted, is_unanswered
from holdfast.runtime.checkpoint import process_owner
from holdfast.runtime.checkpoint.run_lock import find_held, lock_folder

_JOURNAL = table("journal_runs", column("run_id"), column("owner"), column("lease_until"))
# Looked up for each run that may be due, never joined: where a planner takes many for due, it would read all journals.
_OWNER = select(_JOURNAL.c.owner, _JOURNAL.c.lease_until).where(_JOURNAL.c.run_id == RunRow.id).limit(1).lateral("held")
_IS_FREE = or_(_OWNER.c.owner.is_(None), _OWNER.c.lease_until <= func.clock_timestamp())


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
    """A run in a list; `place` are the values that it is ordered by."""

    run: RunRow
    spent: Spending
    place: tuple[str | int, ...]


async def list_page(
    db: Database, run_filter: RunFilter, *, limit: int, place: ListPlace | None = None
) -> list[ListedRun]:
    """List at most `limit` runs from this place on; without one the newest."""
    is_real = LedgerRow.is_simulated == 0
    place = place or ListPlace(ListOrder.NEWEST, "")
    keys = list_keys(db, place)
    async with db.session() as session:
        sums = (
            sum_of_run(is_real),
            sum_of_run(is_real, LedgerRow.state == "reserved"),
            sum_of_run(LedgerRow.is_simulated == 1),
            sum_of_run(is_real, is_unanswered(await find_interrupted(db, session))),
        )
        query = in_order(_filtered(select(RunRow, *sums, *keys), run_filter), place, keys).limit(limit)
        return [_to_listed(*row) for row in await session.execute(query)]


def _to_listed(run: RunRow, *values: Any) -> ListedRun:
    real, held, play, unanswered = (int(value or 0) for value in values[:4])
    place = tuple(value if isinstance(value, str) else int(value) for value in values[4:])
    return ListedRun(run, Spending(real - held, held, play, unanswered), place)


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
                RunRow.title.icontains(run_filter.text, autoescape=True),
                RunRow.requirements_md.icontains(run_filter.text, autoescape=True),
                RunRow.id.startswith(run_filter.text, autoescape=True),
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
    queue: str = "runs"
    priority: int = 0


_DUE_COLUMNS: Sequence[Any] = (
    *(RunRow.id, RunRow.state, RunRow.repo_path, RunRow.wake, RunRow.created_at, RunRow.queue, RunRow.priority),
    *(RunRow.started_by, RunRow.workflow, RunRow.schedule, RunRow.waits_for),
)


async def list_due(
    db: Database,
    *,
    limit: int | None = None,
    but: Collection[str] = (),
    of: Collection[str] | None = None,
    queues: Collection[str] | None = None,
) -> list[DueRun]:
    """List runs that are pending or running, that a person asked to go on, whose every question is answered, or whose
    pause is over; those first that are to be started first.

    Of all, or of these. Left out are those of a newer format, those in `but`, those of other `queues`, those whose time
    has not come, those that a living process owns, as far as is seen from here, and those that have to wait for a
    place: what for is written at them. Who passes no queues must be able to drive all: a run that is listed counts
    against the places of those after.
    """
    async with db.session() as session:
        if db.path is None:
            conditions = [RunRow.id.not_in(list(but)), *([] if of is None else [RunRow.id.in_(list(of))])]
            if queues is not None:
                conditions.append(RunRow.queue.in_(list(queues)))
            found = await read_unowned(db, session, *conditions, limit=limit)
        else:
            query = _select_due_here(clock_of(db).text, is_of=of is not None, is_in_queues=queues is not None)
            params = {"but": list(but), "of": list(of or ()), "queues": list(queues or ())}
            rows = list(await session.execute(query, params))
            owned = find_held(lock_folder(db.path), [row.id for row in rows])
            found = await _admit_in_turn(db, session, [row for row in rows if row.id not in owned])
        await session.commit()
    return found[:limit]


@functools.cache  # to put it together costs more than SQLite takes to answer it
def _select_due_here(now: str, *, is_of: bool, is_in_queues: bool) -> CompoundSelect[Any]:
    conditions = [RunRow.id.not_in(bindparam("but", expanding=True))]
    if is_of:
        conditions.append(RunRow.id.in_(bindparam("of", expanding=True)))
    if is_in_queues:
        conditions.append(RunRow.queue.in_(bindparam("queues", expanding=True)))
    return union_all(*_select_due(text(now), *conditions, is_sqlite=True))


def _select_due(now: Any, *more: Any, is_sqlite: bool = False) -> list[Any]:
    # Each part has an index of its own, so that what waits or is over is not looked at; the first has two.
    named = {name: text(f"({condition})") for name, condition in due_conditions(is_sqlite=is_sqlite).items()}
    is_begun, is_later = named["runs_open"], and_(named["runs_later"], RunRow.due_at <= now)
    conditions = (
        *((is_begun, is_later) if is_sqlite else (or_(is_begun, is_later),)),
        named["runs_requested"],
        and_(named["runs_answered"], RunRow.wake.is_(None)),
        and_(named["runs_timed"], RunRow.due_at <= now, RunRow.wake.is_(None)),
    )
    known = RunRow.format <= RUN_FORMAT
    return [select(*_DUE_COLUMNS).where(condition, known, *more) for condition in conditions]


async def read_unowned(db: Database, session: AsyncSession, *conditions: Any, limit: int | None = None) -> list[DueRun]:
    """Read the due runs on Postgres whose lease is over, and those of which this machine sees that the owner died.

    With a limit it is one for each user: nobody is crowded out by what another has queued. What others wait for is
    written in this session; it lasts if the session commits.
    """
    found: list[Any] = []
    parts = _select_due(_read_clock_once(db), *conditions)
    for part in parts:
        free = part.outerjoin(_OWNER, true()).where(_IS_FREE)
        turn = func.row_number().over(
            partition_by=RunRow.started_by, order_by=(RunRow.priority.desc(), RunRow.created_at, RunRow.id)
        )
        numbered = free.add_columns(turn.label("turn")).subquery()
        chosen = select(numbered).order_by(numbered.c.turn, numbered.c.created_at, numbered.c.id).limit(limit)
        found += await session.execute(chosen)
    here = parts[0].join(_OWNER, true()).add_columns(_OWNER.c.owner)
    leased = _OWNER.c.lease_until > func.clock_timestamp()
    of_machine = _OWNER.c.owner.contains(process_owner.machine_mark(), autoescape=True)
    found += [
        row for row in await session.execute(here.where(leased, of_machine)) if process_owner.is_dead_text(row.owner)
    ]
    return await _admit_in_turn(db, session, found)


def _read_clock_once(db: Database) -> Any:
    """Return the time in SQL so that it is read once for a query: compared with a clock, no index would be used."""
    return select(clock_of(db)).scalar_subquery()


def select_due_times(db: Database) -> CompoundSelect[Any]:
    """Select on Postgres the queue of each due run that nobody drives and no limit holds, and its `due_since`."""
    due_since = func.greatest(RunRow.updated_at, RunRow.due_at).label("due_since")
    parts = _select_due(_read_clock_once(db), RunRow.waits_for.is_(None), _IS_FREE)
    return union_all(*(part.outerjoin(_OWNER, true()).with_only_columns(RunRow.queue, due_since) for part in parts))


async def _admit_in_turn(db: Database, session: AsyncSession, rows: Sequence[Any]) -> list[DueRun]:
    """Return the runs that have a place, in the order of their turns; what the others wait for is written at them."""
    by_id = {row.id: row for row in rows}
    candidates = [
        QueuedRun(row.id, row.started_by, row.workflow, row.repo_path, row.priority, row.created_at)
        for row in by_id.values()
    ]
    places = await count_places(db, session)
    waits = await _find_overlaps(session, rows)
    startable = []
    for candidate in order_fairly(candidates, await _read_last_served(session, {row.started_by for row in rows})):
        if candidate.run_id in waits:
            continue
        if (full := places.describe_full(candidate)) is not None:
            waits[candidate.run_id] = full
            continue
        places.take(candidate)
        startable.append(by_id[candidate.run_id])
    found: dict[str, str | None] = {row.id: None for row in startable} | waits
    await note_waits(session, {key: wait for key, wait in found.items() if by_id[key].waits_for != wait})
    return [DueRun(row.id, row.state, row.repo_path, row.wake, row.queue, row.priority) for row in startable]


async def _read_last_served(session: AsyncSession, users: Collection[str]) -> dict[str, str]:
    """Read when a run of each of these users was last begun."""
    if len(users) < 2:
        return {}
    # One look at the end of the index for each: a GROUP BY would read every run that they ever had.
    reads = [
        select(
            literal(user).label("user"),
            select(func.max(RunRow.driven_at)).where(RunRow.started_by == user).scalar_subquery().label("at"),
        )
        for user in sorted(users)
    ]
    return {row.user: row.at or "" for row in await session.execute(union_all(*reads))}


async def _find_overlaps(session: AsyncSession, rows: Sequence[Any]) -> dict[str, str]:
    """Find the runs of schedules that wait for an earlier one of the same schedule to end."""
    waiting = [row for row in rows if row.schedule is not None and row.state == RunStatus.PENDING]
    if not waiting:
        return {}
    is_open = due_conditions(is_sqlite=session.get_bind().dialect.name == "sqlite")["runs_scheduled"]
    is_ahead = and_(text(is_open), RunRow.schedule.in_({row.schedule for row in waiting}))
    query = select(RunRow.id, RunRow.schedule, RunRow.created_at).where(is_ahead)
    first: dict[str, Any] = {}
    for row in await session.execute(query.order_by(RunRow.created_at, RunRow.id)):
        first.setdefault(row.schedule, row)
    return {
        row.id: f"Waits for run {first[row.schedule].id[:8]} of schedule {row.schedule} to end."
        for row in waiting
        if first[row.schedule].id != row.id
    }


async def list_elsewhere(db: Database, run_ids: Collection[str], place: str) -> set[str]:
    """List those of the runs that have left this place: a process of another machine owns them, as its lease says, or
    their files were last in another data directory, or they are over."""
    if db.path is not None:
        return set()
    leased = and_(_JOURNAL.c.run_id.in_(list(run_ids)), _JOURNAL.c.lease_until > func.clock_timestamp())
    of_machine = _JOURNAL.c.owner.contains(process_owner.machine_mark(), autoescape=True)
    is_moved = and_(RunBaseRow.run_id.in_(list(run_ids)), RunBaseRow.place.not_in(("", place)))
    is_over = and_(RunRow.id.in_(list(run_ids)), RunRow.ended_at.is_not(None))
    async with db.session() as session:
        return {
            *await session.scalars(select(_JOURNAL.c.run_id).where(leased, ~of_machine)),
            *await session.scalars(select(RunBaseRow.run_id).where(is_moved)),
            *await session.scalars(select(RunRow.id).where(is_over)),
        }


async def find_newer_format(db: Database, run_id: str) -> int | None:
    """Return the format of a run that is not over and that this version cannot drive; `None` of any other."""
    async with db.session() as session:
        query = select(RunRow.format).where(RunRow.id == run_id, RunRow.format > RUN_FORMAT)
        return await session.scalar(query.where(RunRow.ended_at.is_(None)))


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

    Those that rehearsals made up are apart, by day, and so is the part that was perhaps paid.
    """

    by_day: dict[str, int]
    by_workflow: dict[str, int]
    by_persona: dict[str, int]
    by_model: dict[str, int]
    simulated_by_day: dict[str, int]
    unanswered_by_day: dict[str, int]


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

        unanswered = select(LedgerRow.day, amount).group_by(LedgerRow.day)
        is_over = is_unanswered(await find_interrupted(db, session))
        unanswered = unanswered.where(LedgerRow.day >= since_day, LedgerRow.is_simulated == 0, is_over)
        return Money(
            await read(LedgerRow.day, PastSpendingRow.day),
            await read(RunRow.workflow, PastSpendingRow.workflow),
            await read(LedgerRow.persona, PastSpendingRow.persona),
            await read(LedgerRow.model, PastSpendingRow.model),
            await read(LedgerRow.day, PastSpendingRow.day, is_simulated=1),
            {day: int(total) for day, total in await session.execute(unanswered)},
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
