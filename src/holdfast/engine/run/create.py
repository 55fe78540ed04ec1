"""A new run as rows: the template and personas it is bound to, its phases, itself."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from holdfast.agents.redaction import learn_keys, scrub_prompt
from holdfast.binding import Binding
from holdfast.enums import Backend, RunPhaseState, RunStatus
from holdfast.errors import RunIdInvalid
from holdfast.persistence.statements import insert, now_text
from holdfast.persona import AgentPersona
from holdfast.runtime.checkpoint.base import Statement
from holdfast.workflow import WorkflowTemplate

_INSERT_RUN = """
INSERT INTO runs (id, template_id, template_hash, state, repo_path, base_branch, created_at, updated_at, title,
                  workflow, requirements_md, budget_micros, started_by, is_simulated, forked_from, base_commit)
SELECT :id, t.id, t.hash, :state, :repo_path, :base_branch, :now, :now, :title, :workflow,
       :requirements_md, :budget_micros, :started_by, :is_simulated, :forked_from, :base_commit
FROM workflow_templates t WHERE t.hash = :template_hash
"""
_INSERT_BINDING = """
INSERT INTO run_bindings (id, run_id, role_id, persona_id, persona_hash, backend, binding_hash, explanation)
SELECT :id, :run_id, :role_id, p.id, p.hash, :backend, :binding_hash, :explanation
FROM agent_personas p WHERE p.hash = :persona_hash
"""


@dataclass(frozen=True)
class NewRun:
    """Everything that is decided when a run is made."""

    run_id: str
    template: WorkflowTemplate
    bindings: Mapping[str, Binding]
    repo_path: str
    base_branch: str
    requirements_md: str
    budget_micros: int | None = None
    title: str = ""
    started_by: str = ""
    forked_from: str | None = None
    base_commit: str | None = None

    def created_facts(self) -> dict[str, Any]:
        """Return what the journal's first event says."""
        return {
            "purpose": self.title or self.template.name,
            "workflow": self.template.name,
            "version": self.template.version,
            "template_hash": self.template.content_hash,
            "repo_path": self.repo_path,
            "base_branch": self.base_branch,
            "base_commit": self.base_commit,
            "requirements_md": self.requirements_md,
            "budget_micros": self.budget_micros,
            "started_by": self.started_by,
            "bindings": {role: binding.explanation for role, binding in self.bindings.items()},
        }


def without_secrets(new: NewRun) -> NewRun:
    """Return the run as it may be written down: a key that someone wrote into its text stands nowhere."""
    learn_keys(binding.persona.key_variable for binding in new.bindings.values())
    return replace(new, requirements_md=scrub_prompt(new.requirements_md), title=scrub_prompt(new.title))


def new_run_id(run_id: UUID | str | None) -> str:
    """Return this id as it is stored, or a new one. Raises `RunIdInvalid`."""
    try:
        return str(uuid.uuid4() if run_id is None else UUID(str(run_id)))
    except ValueError as error:
        raise RunIdInvalid(f"{run_id!r} is no UUID.", hint="A run's id is a UUID; leave it out to get one.") from error


def creation_rows(new: NewRun) -> list[Statement]:
    """Templates and personas are shared by content: what is there already is used as it is."""
    now = now_text()
    # A run that is forked must be there until its fork is; whoever deletes runs locks the same row.
    held = Statement("UPDATE runs SET updated_at = updated_at WHERE id = :id", {"id": new.forked_from})
    rows = [held] if new.forked_from is not None else []
    rows += [insert("workflow_templates", _definition(new.template, now), or_ignore_on="hash")]
    rows += persona_rows(binding.persona for binding in new.bindings.values())
    rows.append(_run_row(new, now))
    rows += [
        insert(
            "run_phases",
            {"run_id": new.run_id, "phase_key": phase.key, "state": RunPhaseState.PENDING, "position": position},
        )
        for position, phase in enumerate(new.template.phases)
    ]
    return rows + [_binding_row(new.run_id, binding) for binding in new.bindings.values()]


def persona_rows(personas: Iterable[AgentPersona]) -> list[Statement]:
    """Store personas, each once; one that is there already is used as it is."""
    now = now_text()
    unique = {persona.content_hash: persona for persona in personas}
    return [insert("agent_personas", _definition(persona, now), or_ignore_on="hash") for persona in unique.values()]


def _definition(definition: Any, now: str) -> dict[str, Any]:
    return {
        "id": uuid.uuid4().hex,
        "name": definition.name,
        "version": str(definition.version),
        "hash": definition.content_hash,
        "definition": definition.model_dump(by_alias=True),
        "created_at": now,
    }


def _run_row(new: NewRun, now: str) -> Statement:
    is_simulated = all(binding.backend is Backend.SIMULATED for binding in new.bindings.values())
    return Statement(
        _INSERT_RUN,
        {
            "id": new.run_id,
            "state": RunStatus.PENDING.value,
            "repo_path": new.repo_path,
            "base_branch": new.base_branch,
            "now": now,
            "title": new.title,
            "workflow": new.template.name,
            "requirements_md": new.requirements_md.replace("\0", ""),
            "budget_micros": new.budget_micros,
            "started_by": new.started_by,
            "is_simulated": int(is_simulated),
            "forked_from": new.forked_from,
            "base_commit": new.base_commit,
            "template_hash": new.template.content_hash,
        },
    )


def _binding_row(run_id: str, binding: Binding) -> Statement:
    return Statement(_INSERT_BINDING, {"id": uuid.uuid4().hex, **binding_values(run_id, binding)})


def binding_values(run_id: str, binding: Binding) -> dict[str, Any]:
    """Return a binding as the parameters of a statement about its row."""
    return {
        "run_id": run_id,
        "role_id": binding.role_id,
        "backend": binding.backend.value,
        "binding_hash": binding.binding_hash,
        "explanation": binding.explanation,
        "persona_hash": binding.persona_hash,
    }
