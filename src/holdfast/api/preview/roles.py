"""Who would fill the roles of a workflow, why, and who else could; each role by itself."""

import re
from collections.abc import Iterator, Mapping, Sequence

from pydantic import BaseModel, Field

from holdfast.binding import BackendAvailability, Candidate, PersonaConsentStore, bind_personas, rank_candidates
from holdfast.errors import HoldfastError
from holdfast.persona import AgentPersona
from holdfast.presentation.format import sentence_case
from holdfast.workflow import WorkflowRole, WorkflowTemplate


class FieldProblem(BaseModel):
    """What would keep the run from being started, and which field of the request to change."""

    field: str = Field(examples=["repo_path"])
    code: str = Field(examples=["repository_not_allowed"])
    message: str
    hint: str = ""


class CandidatePreview(BaseModel):
    name: str
    version: str
    backend: str
    model: str
    is_eligible: bool
    reasons: list[str]
    label: str = Field(description="As it stands in a list to choose from.", examples=["writer (gpt-5)"])


class RolePreview(BaseModel):
    role_id: str
    required_capabilities: list[str]
    persona: str | None
    backend: str | None
    model: str | None
    explanation: str = Field(description="Why this one.")
    reason: str = Field(description="The first part of it, as a sentence.", examples=["It covers spec_write."])
    does: str = Field(description="The phases of the role.", examples=["plan, review"])
    problem: FieldProblem | None
    candidates: list[CandidatePreview]


def to_problem(field: str, error: HoldfastError) -> FieldProblem:
    return FieldProblem(field=field, code=error.code, message=error.message, hint=error.hint)


def preview_roles(
    template: WorkflowTemplate,
    pool: Sequence[AgentPersona],
    overrides: Mapping[str, str],
    *,
    consents: PersonaConsentStore,
    available: BackendAvailability,
) -> tuple[list[RolePreview], dict[str, AgentPersona]]:
    """Preview each role in the template's order, and return the personas of those that are filled."""
    previews = [
        _preview_role(role, template, pool, available, consents, overrides.get(role.id)) for role in template.roles
    ]
    personas = {preview.role_id: persona for preview, persona in previews if persona is not None}
    return [preview for preview, _ in previews], personas


def find_role_problems(
    template: WorkflowTemplate, roles: Sequence[RolePreview], overrides: Mapping[str, str]
) -> Iterator[FieldProblem]:
    """Yield what is wrong with the roles, also with those of `overrides` that the workflow does not have."""
    known = {role.id for role in template.roles}
    for role_id in overrides:
        if role_id not in known:
            message = f"Workflow {template.name} has no role {role_id}."
            yield FieldProblem(field=_field(role_id), code="persona_ineligible", message=message)
    for role in roles:
        if role.problem is not None:
            yield role.problem


def _field(role_id: str) -> str:
    return f"persona_overrides.{role_id}"


def _preview_role(
    role: WorkflowRole,
    template: WorkflowTemplate,
    pool: Sequence[AgentPersona],
    available: BackendAvailability,
    consents: PersonaConsentStore,
    override: str | None,
) -> tuple[RolePreview, AgentPersona | None]:
    """Preview one role by itself, so that what is wrong with one does not hide the others."""
    candidates = rank_candidates(role, pool, available)
    chosen = next((one.persona for one in candidates if one.is_eligible and override in (None, one.persona.name)), None)
    explanation, problem = "", None
    try:
        bound = bind_personas(
            template.model_copy(update={"roles": (role,)}),
            pool,
            available,
            overrides={} if override is None else {role.id: override},
            consent_store=consents,
        )
        explanation = bound[role.id].explanation
    except HoldfastError as error:
        problem = to_problem(_field(role.id), error)
    preview = RolePreview(
        role_id=role.id,
        required_capabilities=[capability.value for capability in role.required_capabilities],
        persona=chosen.name if chosen else None,
        backend=chosen.backend.value if chosen else None,
        model=chosen.model if chosen else None,
        explanation=explanation,
        reason=shorten_reason(explanation),
        does=", ".join(phase.key for phase in template.phases if phase.role == role.id),
        problem=problem,
        candidates=[_to_candidate(candidate) for candidate in candidates],
    )
    return preview, chosen


def _to_candidate(candidate: Candidate) -> CandidatePreview:
    persona = candidate.persona
    return CandidatePreview(
        name=persona.name,
        version=str(persona.version),
        backend=persona.backend.value,
        model=persona.model,
        is_eligible=candidate.is_eligible,
        reasons=list(candidate.reasons),
        label=f"{persona.name}{_describe_candidate(candidate)}",
    )


def _describe_candidate(candidate: Candidate) -> str:
    if candidate.is_eligible:
        return f" ({candidate.persona.model or candidate.persona.backend.value})"
    return f": {' and '.join(candidate.reasons)}"


def shorten_reason(explanation: str) -> str:
    """Say why this one was chosen, without the lists of everybody else."""
    why = re.sub(r"^\S+ chosen because ", "", explanation.partition("; ")[0])
    return f"{sentence_case(why)}." if why else ""
