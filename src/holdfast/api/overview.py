"""What the pages show beside the lists: how many runs are in which state, where each stands, what it was given."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from sqlalchemy import func, select

from holdfast.api.auth import Viewer
from holdfast.api.params import RunIdPath, ServerDep, ShortText
from holdfast.api.responses import READ, READ_ONE
from holdfast.engine.loading import get_run, read_template
from holdfast.enums import RiskLevel, RunPhaseState
from holdfast.persistence.db import Database
from holdfast.persistence.listings import count_by_state
from holdfast.persistence.models import RunPhaseRow, RunRow
from holdfast.persistence.runs import StoredRun

router = APIRouter(tags=["runs"])
_SUMMARY_CHARS = 200


class Overview(BaseModel):
    counts: dict[str, int] = Field(description="How many runs are in each state.")
    workflows: list[str] = Field(description="The workflows that have runs.")


class PhaseStanding(BaseModel):
    key: str
    state: RunPhaseState
    attempts: int
    error: str | None = None


class RunStanding(BaseModel):
    run_id: str
    summary: str = Field(description="The first line of the requirements.")
    phases: list[PhaseStanding]


class StandingList(BaseModel):
    items: list[RunStanding]


class PlannedPhase(BaseModel):
    key: str
    title: str
    risk: RiskLevel
    role: str
    needs: list[str]
    read_only: bool
    requires_approval: bool
    attempts: int
    budget_usd: float | None
    timeout_s: float
    artifact: str
    schema_id: str


class BoundRole(BaseModel):
    role: str
    persona: str
    model: str
    backend: str
    explanation: str


class RunPlan(BaseModel):
    """The workflow as this run has it, and who fills its roles."""

    workflow: str
    version: str
    phases: list[PlannedPhase]
    roles: list[BoundRole]


@router.get("/api/overview", responses=READ, summary="How many runs are in which state")
async def show_overview(server: ServerDep, _identity: Viewer) -> Overview:
    counts = await count_by_state(server.db)
    async with server.db.session() as session:
        workflows = await session.scalars(select(RunRow.workflow).where(RunRow.workflow != "").distinct())
        return Overview(counts=counts, workflows=sorted(workflows))


@router.get("/api/standings", responses=READ, summary="Where runs stand, phase by phase")
async def list_standings(
    server: ServerDep, _identity: Viewer, run_id: Annotated[list[ShortText], Query(min_length=1, max_length=200)]
) -> StandingList:
    return StandingList(items=await _read_standings(server.db, run_id))


async def _read_standings(db: Database, run_ids: list[str]) -> list[RunStanding]:
    summary = func.substr(RunRow.requirements_md, 1, _SUMMARY_CHARS)
    async with db.session() as session:
        runs = (await session.execute(select(RunRow.id, summary).where(RunRow.id.in_(run_ids)))).all()
        rows = await session.scalars(
            select(RunPhaseRow).where(RunPhaseRow.run_id.in_(run_ids)).order_by(RunPhaseRow.position)
        )
        phases: dict[str, list[PhaseStanding]] = {}
        for row in rows:
            phases.setdefault(row.run_id, []).append(_to_standing(row))
    return [
        RunStanding(run_id=run_id, summary=(text or "").strip().split("\n", 1)[0], phases=phases.get(run_id, []))
        for run_id, text in runs
    ]


def _to_standing(row: RunPhaseRow) -> PhaseStanding:
    error = row.error.get("message") if isinstance(row.error, dict) else row.error
    told = None if error is None else str(error)[:_SUMMARY_CHARS]
    return PhaseStanding(key=row.phase_key, state=RunPhaseState(row.state), attempts=row.attempt, error=told)


@router.get("/api/runs/{run_id}/plan", responses=READ_ONE, summary="The workflow and personas of a run")
async def show_plan(run_id: RunIdPath, server: ServerDep, _identity: Viewer) -> RunPlan:
    return _to_plan(await get_run(server.db, run_id))


def _to_plan(stored: StoredRun) -> RunPlan:
    """Raises `TemplateLoadFailed`."""
    template = read_template(stored)
    phases = [
        PlannedPhase(
            key=phase.key,
            title=phase.title,
            risk=phase.risk,
            role=phase.role,
            needs=list(phase.needs or ()),
            read_only=phase.read_only,
            requires_approval=phase.requires_approval,
            attempts=phase.attempts,
            budget_usd=phase.budget_usd,
            timeout_s=phase.timeout_seconds,
            artifact=phase.expected_artifact.path,
            schema_id=phase.expected_artifact.schema_id,
        )
        for phase in template.phases
    ]
    return RunPlan(workflow=template.name, version=str(template.version), phases=phases, roles=_to_roles(stored))


def _to_roles(stored: StoredRun) -> list[BoundRole]:
    roles = []
    for role_id, (binding, persona) in sorted(stored.bindings.items()):
        known = persona.definition if persona is not None and isinstance(persona.definition, dict) else {}
        roles.append(
            BoundRole(
                role=role_id,
                persona=persona.name if persona is not None else "",
                model=str(known.get("model") or ""),
                backend=binding.backend,
                explanation=binding.explanation,
            )
        )
    return roles
