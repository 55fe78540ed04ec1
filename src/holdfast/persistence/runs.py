"""Reading what the engine needs of a run, in as few queries as there are questions."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from sqlalchemy import and_, bindparam, case, func, not_, or_, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from holdfast.enums import OPEN_STATES, RunStatus
from holdfast.persistence.db import Database
from holdfast.persistence.models import (
    AgentPersonaRow,
    ApprovalRow,
    ArtifactRow,
    BudgetDayRow,
    LedgerRow,
    RunBindingRow,
    RunEventRow,
    RunPhaseRow,
    RunRow,
    WorkflowTemplateRow,
)
from holdfast.persistence.raw_sql import LIVING
from holdfast.runtime.checkpoint import process_owner
from holdfast.runtime.checkpoint.run_lock import find_held, lock_folder
from holdfast.runtime.events import EventKind


@dataclass(frozen=True)
class StoredRun:
    """A run with everything that was decided when it was made."""

    run: RunRow
    template: WorkflowTemplateRow | None
    phases: dict[str, RunPhaseRow]
    bindings: dict[str, tuple[RunBindingRow, AgentPersonaRow | None]]


_OF_RUN: Any = bindparam("run_id")
# Made once: to put a statement together and find its compiled form costs more than SQLite takes to answer it.
_PHASES = select(RunPhaseRow).where(RunPhaseRow.run_id == _OF_RUN).order_by(RunPhaseRow.position)
_BOUND = (
    select(RunBindingRow, AgentPersonaRow)
    .outerjoin(AgentPersonaRow, AgentPersonaRow.id == RunBindingRow.persona_id)
    .where(RunBindingRow.run_id == _OF_RUN)
)
_OVERDUE = (
    select(ApprovalRow)
    .join(RunRow, RunRow.id == ApprovalRow.run_id)
    .where(ApprovalRow.state == "pending", ApprovalRow.deadline_at <= bindparam("now"), RunRow.state.in_(OPEN_STATES))
    .order_by(ApprovalRow.deadline_at)
)
_OVERDUE_OF_RUN = _OVERDUE.where(ApprovalRow.run_id == _OF_RUN)


async def find_run(db: Database, run_id: str) -> StoredRun | None:
    async with db.session() as session:
        run = await session.get(RunRow, run_id)
        if run is None:
            return None
        template = await session.get(WorkflowTemplateRow, run.template_id)
        phases = await session.scalars(_PHASES, {"run_id": run_id})
        bound = await session.execute(_BOUND, {"run_id": run_id})
        return StoredRun(
            run,
            template,
            {phase.phase_key: phase for phase in phases},
            {binding.role_id: (binding, persona) for binding, persona in bound},
        )


async def read_phases(db: Database, run_id: str) -> dict[str, RunPhaseRow]:
    async with db.session() as session:
        rows = await session.scalars(_PHASES, {"run_id": run_id})
        return {row.phase_key: row for row in rows}


async def read_artifacts(db: Database, run_id: str) -> list[ArtifactRow]:
    async with db.session() as session:
        rows = await session.scalars(
            select(ArtifactRow)
            .where(ArtifactRow.run_id == run_id)
            .order_by(ArtifactRow.created_at, ArtifactRow.attempt, ArtifactRow.turn)
        )
        return list(rows)


async def read_approvals(db: Database, *, run_id: str | None = None, state: str | None = None) -> list[ApprovalRow]:
    query = select(ApprovalRow).order_by(ApprovalRow.requested_at)
    if run_id is not None:
        query = query.where(ApprovalRow.run_id == run_id)
    if state is not None:
        query = query.where(ApprovalRow.state == state)
    async with db.session() as session:
        return list(await session.scalars(query))


async def list_waiting(
    db: Database, *, limit: int | None = None, after: tuple[str, str] | None = None
) -> list[ApprovalRow]:
    """List the open approvals of runs that are not over, the oldest first; those of a run that is over are moot.

    With `limit` at most so many, that come after the one with this time and id.
    """
    place = (ApprovalRow.requested_at, ApprovalRow.id)
    query = select(ApprovalRow).join(RunRow, RunRow.id == ApprovalRow.run_id).where(ApprovalRow.state == "pending")
    query = query.where(RunRow.state.in_(OPEN_STATES)).order_by(*place).limit(limit)
    if after is not None:
        query = query.where(tuple_(*place) > tuple_(*after))
    async with db.session() as session:
        return list(await session.scalars(query))


async def list_approvals_page(
    db: Database, *, state: str | None, limit: int, after: tuple[str, str] | None = None
) -> list[ApprovalRow]:
    """List at most `limit` approvals of all runs, newest first, that come after the one with this time and id."""
    place = (ApprovalRow.requested_at, ApprovalRow.id)
    query = select(ApprovalRow).order_by(*(column.desc() for column in place)).limit(limit)
    if state is not None:
        query = query.where(ApprovalRow.state == state)
    if after is not None:
        query = query.where(tuple_(*place) < tuple_(*after))
    async with db.session() as session:
        return list(await session.scalars(query))


async def find_approval(db: Database, approval_id: str) -> ApprovalRow | None:
    async with db.session() as session:
        return await session.get(ApprovalRow, approval_id)


async def list_runs_in_order(db: Database) -> list[str]:
    """Return the ids of all runs, the one made first at the beginning."""
    async with db.session() as session:
        return list(await session.scalars(select(RunRow.id).order_by(RunRow.created_at)))


async def read_ledger(db: Database, run_id: str) -> list[LedgerRow]:
    async with db.session() as session:
        return list(await session.scalars(select(LedgerRow).where(LedgerRow.run_id == run_id)))


@dataclass(frozen=True)
class Spending:
    """Money in micro-dollars: settled by responses, and reserved for calls that have none (yet, or for ever).

    What the simulated model made up is apart, and in none of the others.
    """

    settled_micros: int = 0
    reserved_micros: int = 0
    simulated_micros: int = 0
    unanswered_micros: int = 0
    """The part of what is reserved whose call is over without an answer: perhaps paid."""

    @property
    def total_micros(self) -> int:
        return self.settled_micros + self.reserved_micros


async def read_spent(db: Database, run_id: str) -> Spending:
    return sum_spending((await read_spent_by_phase(db, run_id)).values())


def sum_spending(parts: Iterable[Spending]) -> Spending:
    return Spending(*(sum(amounts) for amounts in zip(*map(astuple, parts), strict=True)))


async def read_spent_by_phase(db: Database, run_id: str) -> dict[str, Spending]:
    kinds = (LedgerRow.phase_key, LedgerRow.is_simulated, LedgerRow.state)
    found: dict[str, Spending] = {}
    async with db.session() as session:
        is_over = is_unanswered(await find_interrupted(db, session, RunRow.id == run_id))
        sums = (func.sum(LedgerRow.amount_micros), func.sum(case((is_over, LedgerRow.amount_micros), else_=0)))
        query = select(*kinds, *sums).where(LedgerRow.run_id == run_id).group_by(*kinds)
        for phase_key, is_simulated, state, total, unanswered in await session.execute(query):
            name = "simulated_micros" if is_simulated else f"{'reserved' if state == 'reserved' else 'settled'}_micros"
            before = found.get(phase_key, Spending())
            found[phase_key] = replace(before, **{name: getattr(before, name) + int(total or 0)})
            if name == "reserved_micros":
                found[phase_key] = replace(found[phase_key], unanswered_micros=int(unanswered or 0))
    return found


async def find_interrupted(db: Database, session: AsyncSession, *conditions: Any) -> set[str]:
    """Find the runs with open reservations whose row says that they run, though nobody drives them: their owner is
    known to be dead, or its lease is over."""
    is_held = select(LedgerRow.id).where(LedgerRow.run_id == RunRow.id, LedgerRow.state == "reserved").exists()
    running = RunRow.state == RunStatus.RUNNING.value
    run_ids = set(await session.scalars(select(RunRow.id).where(running, is_held, *conditions)))
    if not run_ids:
        return run_ids
    if db.path is not None:
        return run_ids - find_held(lock_folder(db.path), run_ids)
    leased = await session.execute(text(LIVING))
    return run_ids - {row.run_id for row in leased if not process_owner.is_dead_text(row.owner)}


# Made once: to make an alias and its columns takes longer than the query.
_LEDGER_RUN = aliased(RunRow)
_LATER = aliased(LedgerRow)
_IS_FOLLOWED = (
    select(_LATER.id)
    .where(_LATER.run_id == LedgerRow.run_id, _LATER.step_key == LedgerRow.step_key)
    .where(_LATER.created_at > LedgerRow.created_at)
    .correlate(LedgerRow)
    .exists()
)


def is_unanswered(interrupted: Collection[str]) -> Any:
    """Return the condition that the call of a ledger row is over without an answer, so that it is perhaps paid.

    Its run does not work or is one of the `interrupted`, or another attempt at the same call came after it.
    """
    is_driven = and_(_LEDGER_RUN.state == RunStatus.RUNNING.value, _LEDGER_RUN.id.not_in(interrupted))
    is_still = select(_LEDGER_RUN.id).where(_LEDGER_RUN.id == LedgerRow.run_id, not_(is_driven))
    return and_(LedgerRow.state == "reserved", or_(_IS_FOLLOWED, is_still.correlate(LedgerRow).exists()))


async def list_unanswered(db: Database, run_id: str, *, limit: int) -> Sequence[LedgerRow]:
    """List the calls of a run that are over without an answer, the newest first."""
    query = select(LedgerRow).where(LedgerRow.run_id == run_id, LedgerRow.is_simulated == 0)
    query = query.where(LedgerRow.amount_micros > 0).order_by(LedgerRow.created_at.desc()).limit(limit)
    async with db.session() as session:
        query = query.where(is_unanswered(await find_interrupted(db, session, RunRow.id == run_id)))
        return list(await session.scalars(query))


async def list_overdue(db: Database, now: str, *, run_id: str | None = None) -> Sequence[ApprovalRow]:
    """List the open approvals whose deadline has passed, of runs that are not over, the earliest first."""
    query, params = (_OVERDUE, {}) if run_id is None else (_OVERDUE_OF_RUN, {"run_id": run_id})
    async with db.session() as session:
        return list(await session.scalars(query, {"now": now, **params}))


async def read_spent_in_scopes(
    db: Database, run_id: str, phase_key: str, day: str, *, is_simulated: bool
) -> dict[str, int]:
    """Read what counts against each limit by now: the run's, the phase's and the day's, in micro-dollars.

    A rehearsal counts its play money against the limits of its own run, and nothing against the day's.
    """
    amount = func.coalesce(func.sum(LedgerRow.amount_micros), 0)
    of_run = and_(LedgerRow.run_id == run_id, LedgerRow.is_simulated == int(is_simulated))
    of_phase = LedgerRow.phase_key == phase_key
    async with db.session() as session:
        run = await session.scalar(select(amount).where(of_run))
        phase = await session.scalar(select(amount).where(of_run, of_phase))
        today = await session.scalar(select(BudgetDayRow.spent_micros).where(BudgetDayRow.day == day))
    return {"run": int(run or 0), "phase": int(phase or 0), "day": int(today or 0)}


async def read_exhausted(db: Database, run_id: str) -> dict[str, Any]:
    """Read the payload of the run's last `budget.exhausted` event; empty if no limit was ever reached."""
    query = (
        select(RunEventRow)
        .where(RunEventRow.run_id == run_id, RunEventRow.type == EventKind.BUDGET_EXHAUSTED.value)
        .order_by(RunEventRow.seq.desc())
        .limit(1)
    )
    async with db.session() as session:
        event = await session.scalar(query)
    return event.payload if event is not None else {}


async def read_budget(db: Database, run_id: str) -> int | None:
    async with db.session() as session:
        return await session.scalar(select(RunRow.budget_micros).where(RunRow.id == run_id))
