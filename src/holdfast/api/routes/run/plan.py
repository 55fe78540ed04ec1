"""The workflow of a run as it has it, and who fills its roles."""

from fastapi import APIRouter
from pydantic import BaseModel

from holdfast.api.http.auth import Viewer
from holdfast.api.http.openapi import READ_ONE
from holdfast.api.schemas import RunIdPath
from holdfast.api.server.server import ServerDep
from holdfast.engine.run.load import get_run, read_template
from holdfast.enums import RiskLevel
from holdfast.persistence.runs import StoredRun

router = APIRouter(prefix="/api/runs", tags=["runs"])


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


@router.get("/{run_id}/plan", responses=READ_ONE, summary="The workflow and personas of a run")
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
