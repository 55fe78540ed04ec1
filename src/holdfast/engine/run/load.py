"""Reading a stored run back into what it was made from. The checks come in the contract's order; none is a claim."""

import contextlib
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from holdfast.engine.results import PhaseResult, RunError, RunResult
from holdfast.enums import RunPhaseState, RunStatus
from holdfast.errors import RunAlreadyTerminal, RunMetadataMissing, RunNotFound, RunNotInState, TemplateLoadFailed
from holdfast.persistence.carried_files import read_schemas
from holdfast.persistence.db import Database
from holdfast.persistence.due.still_runs import describe_newer, is_newer
from holdfast.persistence.models import RunPhaseRow
from holdfast.persistence.runs import StoredRun, find_run, read_artifacts, read_exhausted, read_spent
from holdfast.persona import AgentPersona
from holdfast.workflow import WorkflowTemplate

RunId = UUID | str


@dataclass(frozen=True)
class LoadedRun:
    """A stored run whose parts could all be read."""

    stored: StoredRun
    template: WorkflowTemplate
    personas: Mapping[str, AgentPersona]
    schemas: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """The artifact schemas as they were when it was made; none of a run that an earlier version made."""

    @property
    def run_id(self) -> str:
        return self.stored.run.id


async def get_run(db: Database, run_id: RunId) -> StoredRun:
    """Return a stored run, or raise `RunNotFound`. A UUID is found in whichever way it is written."""
    stored = await find_run(db, str(run_id))
    if stored is None:
        with contextlib.suppress(ValueError):
            stored = await find_run(db, str(UUID(str(run_id))))
    if stored is None:
        raise RunNotFound(f"There is no run {run_id}.", run_id=str(run_id))
    return stored


async def load_run(
    db: Database, run_id: RunId, pool: Iterable[AgentPersona], *, may_be_over: bool = False
) -> LoadedRun:
    """Read a run back with all its parts.

    Raises, in this order, `RunNotFound`, `RunAlreadyTerminal`, `RunNotInState` if a newer holdfast has written it,
    `RunMetadataMissing`, `TemplateLoadFailed`.
    """
    stored = await get_run(db, run_id)
    if not may_be_over:
        check_not_over(stored)
    if is_newer(stored.run.format):
        raise RunNotInState(describe_newer(stored.run.format), hint="Drive it with the holdfast that has written it.")
    if not stored.bindings:
        raise RunMetadataMissing(f"Run {run_id} has no bindings.", hint="Start a new run.", run_id=stored.run.id)
    template = read_template(stored)
    missing = [role.id for role in template.roles if role.id not in stored.bindings]
    if missing:
        raise RunMetadataMissing(f"Run {run_id} has no binding for {', '.join(missing)}.", hint="Start a new run.")
    personas = {role: _read_persona(stored, role, pool) for role in stored.bindings}
    return LoadedRun(stored, template, personas, await read_schemas(db, stored.run.id))


def check_not_over(stored: StoredRun) -> None:
    if RunStatus(stored.run.state).is_terminal:
        is_failed = stored.run.state == RunStatus.FAILED
        hint = "Retry it to open it again at the phase that failed." if is_failed else "Fork it to go on from a phase."
        raise RunAlreadyTerminal(f"Run {stored.run.id} is {stored.run.state}.", hint=hint, run_id=stored.run.id)


def read_template(stored: StoredRun) -> WorkflowTemplate:
    try:
        if stored.template is None:
            raise ValueError("its row is missing")
        return WorkflowTemplate.model_validate(stored.template.definition)
    except ValueError as error:
        raise TemplateLoadFailed(
            f"The stored template of run {stored.run.id} cannot be read: {str(error).splitlines()[0]}.",
            hint="Restore the database from a backup, or start a new run.",
            run_id=stored.run.id,
        ) from error


def _read_persona(stored: StoredRun, role_id: str, pool: Iterable[AgentPersona]) -> AgentPersona:
    """Return the persona as it was bound, whatever has become of its file since."""
    binding, row = stored.bindings[role_id]
    if row is not None and isinstance(row.definition, dict):
        with contextlib.suppress(ValidationError):
            return AgentPersona.model_validate(row.definition)
    for persona in pool:
        if persona.content_hash == binding.persona_hash or (row is not None and persona.name == row.name):
            return persona
    raise RunMetadataMissing(
        f"The persona of role {role_id} in run {stored.run.id} cannot be read.", hint="Start a new run."
    )


async def read_result(db: Database, run_id: RunId) -> RunResult:
    """Read where a run stands now. Raises `RunNotFound`."""
    stored = await get_run(db, run_id)
    artifacts = await read_artifacts(db, stored.run.id)
    accepted = {row.phase_key: row.path for row in artifacts if row.state == "accepted"}
    spent = await read_spent(db, stored.run.id)
    return RunResult(
        run_id=_to_uuid(stored.run.id),
        state=RunStatus(stored.run.state),
        error=RunError.from_row(stored.run.error),
        phases=tuple(_to_phase_result(row, accepted) for row in stored.phases.values()),
        final_report_path=stored.run.final_report_path,
        cost_micros=spent.total_micros,
        waiting_for=stored.run.pause_reason,
        simulated_micros=spent.simulated_micros,
        perhaps_paid_micros=spent.unanswered_micros,
        exhausted=await read_exhausted(db, stored.run.id) if stored.run.pause_reason == "budget" else {},
    )


def _to_phase_result(row: RunPhaseRow, accepted: Mapping[str, str]) -> PhaseResult:
    artifact = accepted.get(row.phase_key) if row.state == RunPhaseState.COMPLETED else None
    return PhaseResult(row.phase_key, RunPhaseState(row.state), row.attempt, artifact, RunError.from_row(row.error))


def _to_uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        return uuid.uuid5(uuid.NAMESPACE_OID, text)
