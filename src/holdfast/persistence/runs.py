"""Reading what the engine needs of a run, in as few queries as there are questions."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select

from holdfast.persistence.db import Database
from holdfast.persistence.models import (
    AgentPersonaRow,
    ApprovalRow,
    ArtifactRow,
    LedgerRow,
    PastSpendingRow,
    RunBindingRow,
    RunPhaseRow,
    RunRow,
    WorkflowTemplateRow,
)


@dataclass(frozen=True)
class StoredRun:
    """A run with everything that was decided when it was made."""

    run: RunRow
    template: WorkflowTemplateRow | None
    phases: dict[str, RunPhaseRow]
    bindings: dict[str, tuple[RunBindingRow, AgentPersonaRow | None]]


async def find_run(db: Database, run_id: str) -> StoredRun | None:
    async with db.session() as session:
        run = await session.get(RunRow, run_id)
        if run is None:
            return None
        template = await session.get(WorkflowTemplateRow, run.template_id)
        phases = await session.scalars(
            select(RunPhaseRow).where(RunPhaseRow.run_id == run_id).order_by(RunPhaseRow.position)
        )
        bound = await session.execute(
            select(RunBindingRow, AgentPersonaRow)
            .outerjoin(AgentPersonaRow, AgentPersonaRow.id == RunBindingRow.persona_id)
            .where(RunBindingRow.run_id == run_id)
        )
        return StoredRun(
            run,
            template,
            {phase.phase_key: phase for phase in phases},
            {binding.role_id: (binding, persona) for binding, persona in bound},
        )


async def read_phases(db: Database, run_id: str) -> dict[str, RunPhaseRow]:
    async with db.session() as session:
        rows = await session.scalars(
            select(RunPhaseRow).where(RunPhaseRow.run_id == run_id).order_by(RunPhaseRow.position)
        )
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


_UNFINISHED = ("pending", "running", "paused")


async def list_waiting(db: Database) -> list[ApprovalRow]:
    """The open questions of runs that are not over, the oldest first; what a run that is over had asked is moot."""
    query = select(ApprovalRow).join(RunRow, RunRow.id == ApprovalRow.run_id).where(ApprovalRow.state == "pending")
    query = query.where(RunRow.state.in_(_UNFINISHED)).order_by(ApprovalRow.requested_at)
    async with db.session() as session:
        return list(await session.scalars(query))


async def find_approval(db: Database, approval_id: str) -> ApprovalRow | None:
    async with db.session() as session:
        return await session.get(ApprovalRow, approval_id)


@dataclass(frozen=True)
class Spent:
    """Money in micro-dollars: settled by responses, and reserved for calls that have none (yet, or for ever)."""

    settled_micros: int
    reserved_micros: int

    @property
    def total_micros(self) -> int:
        return self.settled_micros + self.reserved_micros


async def read_spent(db: Database, run_id: str) -> Spent:
    query = (
        select(LedgerRow.state, func.sum(LedgerRow.amount_micros))
        .where(LedgerRow.run_id == run_id)
        .group_by(LedgerRow.state)
    )
    async with db.session() as session:
        by_state = {state: int(total or 0) for state, total in await session.execute(query)}
    return Spent(by_state.get("settled", 0), by_state.get("reserved", 0))


async def read_spent_by_phase(db: Database, run_id: str) -> dict[str, int]:
    query = (
        select(LedgerRow.phase_key, func.sum(LedgerRow.amount_micros))
        .where(LedgerRow.run_id == run_id)
        .group_by(LedgerRow.phase_key)
    )
    async with db.session() as session:
        return {phase_key: int(total or 0) for phase_key, total in await session.execute(query)}


async def list_overdue(db: Database, now: str, *, run_id: str | None = None) -> Sequence[ApprovalRow]:
    """The open questions of runs that are not over whose deadline has passed, the earliest first."""
    is_overdue = (ApprovalRow.state == "pending", ApprovalRow.deadline_at <= now)
    query = select(ApprovalRow).join(RunRow, RunRow.id == ApprovalRow.run_id).where(*is_overdue)
    query = query.where(RunRow.state.in_(_UNFINISHED)).order_by(ApprovalRow.deadline_at)
    if run_id is not None:
        query = query.where(ApprovalRow.run_id == run_id)
    async with db.session() as session:
        return list(await session.scalars(query))


async def read_spent_in_scopes(db: Database, run_id: str, phase_key: str, day: str) -> dict[str, int]:
    """What counts against each limit by now: the run's, the phase's and the day's, in micro-dollars."""
    amount = func.coalesce(func.sum(LedgerRow.amount_micros), 0)
    of_run, of_phase = LedgerRow.run_id == run_id, LedgerRow.phase_key == phase_key
    async with db.session() as session:
        run = await session.scalar(select(amount).where(of_run))
        phase = await session.scalar(select(amount).where(of_run, of_phase))
        today = await session.scalar(select(amount).where(LedgerRow.day == day))
        of_deleted = select(func.coalesce(func.sum(PastSpendingRow.amount_micros), 0)).where(PastSpendingRow.day == day)
        today = int(today or 0) + int(await session.scalar(of_deleted) or 0)
    return {"run": int(run or 0), "phase": int(phase or 0), "day": today}


async def read_budget(db: Database, run_id: str) -> int | None:
    async with db.session() as session:
        return await session.scalar(select(RunRow.budget_micros).where(RunRow.id == run_id))
