"""What the pages show beside the lists: how many runs are in which state, what waits, what each was given."""

from fastapi import APIRouter
from pydantic import BaseModel, Field
from sqlalchemy import select

from holdfast.api.http.auth import Viewer
from holdfast.api.http.openapi import READ, READ_ONE
from holdfast.api.schemas import RunIdPath, ServerDep
from holdfast.api.serialize import to_heading, to_question
from holdfast.engine.run.load import get_run, read_template
from holdfast.enums import RiskLevel
from holdfast.persistence.listings import RunFilter, count_by_state, list_page
from holdfast.persistence.models import RunRow
from holdfast.persistence.runs import StoredRun, list_waiting
from holdfast.presentation.status import find_pause, tell_question

router = APIRouter(tags=["runs"])
_MOST_PAUSED = 200


class Overview(BaseModel):
    counts: dict[str, int] = Field(description="How many runs are in each state.")
    workflows: list[str] = Field(description="The workflows that have runs.")


class WaitingItem(BaseModel):
    """Something that a person must decide or look at."""

    run_id: str
    heading: str = Field(description="What the run is called.", examples=["Add a --verbose flag"])
    question: str = Field(examples=["Approve “plan”?"])
    requested_at: str
    is_decision: bool = Field(description="An approval that is answered; else the run needs money or a look.")


class Inbox(BaseModel):
    items: list[WaitingItem] = Field(description="The oldest first.")


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


@router.get("/api/inbox", responses=READ, summary="What waits for a person, decisions and stopped runs")
async def show_inbox(server: ServerDep, _identity: Viewer) -> Inbox:
    paused = await list_page(server.db, RunFilter(state="paused"), limit=_MOST_PAUSED)
    headings = {item.run.id: to_heading(item.run) for item in paused}
    decisions = [
        WaitingItem(
            run_id=row.run_id,
            heading=headings.get(row.run_id) or str(question.shown.get("workflow") or ""),
            question=tell_question(question),
            requested_at=row.requested_at,
            is_decision=True,
        )
        for row in await list_waiting(server.db)
        for question in (to_question(row),)
    ]
    stopped = [
        WaitingItem(
            run_id=item.run.id,
            heading=headings[item.run.id],
            question=question,
            requested_at=item.run.updated_at,
            is_decision=False,
        )
        for item in paused
        if (question := find_pause(item.run.pause_reason).question)
    ]
    return Inbox(items=sorted([*decisions, *stopped], key=lambda item: item.requested_at))


@router.get("/api/runs/{run_id}/plan", responses=READ_ONE, summary="The workflow and personas of a run")
async def show_plan(run_id: RunIdPath, server: ServerDep, _identity: Viewer) -> RunPlan:
    return _to_plan(await get_run(server.db, run_id))


def _to_plan(stored: StoredRun) -> RunPlan:
    """Describe a run's own workflow. Raises `TemplateLoadFailed`."""
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
