"""Writes of what a run is made from: the tables `workflow_templates`, `agent_personas` and `run_bindings`."""

import uuid
from typing import Any, Protocol

from holdfast.persistence.statements.table import insert, now_text, to_params
from holdfast.runtime.checkpoint.base import Statement


class _DefinitionValues(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def version(self) -> object: ...
    @property
    def content_hash(self) -> str: ...
    def model_dump(self, *, by_alias: bool) -> dict[str, Any]: ...


class _BindingValues(Protocol):
    @property
    def role_id(self) -> str: ...
    @property
    def persona_hash(self) -> str: ...
    @property
    def backend(self) -> str: ...
    @property
    def binding_hash(self) -> str: ...
    @property
    def explanation(self) -> str: ...


def insert_template(template: _DefinitionValues) -> Statement:
    """Insert a template; one of the same content is used as it is."""
    return insert("workflow_templates", _definition_values(template), or_ignore_on="hash")


def insert_persona(persona: _DefinitionValues) -> Statement:
    """Insert a persona; one of the same content is used as it is."""
    return insert("agent_personas", _definition_values(persona), or_ignore_on="hash")


def _definition_values(definition: _DefinitionValues) -> dict[str, Any]:
    return {
        "id": uuid.uuid4().hex,
        "name": definition.name,
        "version": str(definition.version),
        "hash": definition.content_hash,
        "definition": definition.model_dump(by_alias=True),
        "created_at": now_text(),
    }


_INSERT_BINDING = """
INSERT INTO run_bindings (id, run_id, role_id, persona_id, persona_hash, backend, binding_hash, explanation)
SELECT :id, :run_id, :role_id, p.id, p.hash, :backend, :binding_hash, :explanation
FROM agent_personas p WHERE p.hash = :persona_hash
"""
_REBIND = """
UPDATE run_bindings SET persona_id = (SELECT id FROM agent_personas WHERE hash = :persona_hash),
       persona_hash = :persona_hash, backend = :backend, binding_hash = :binding_hash,
       explanation = :explanation
WHERE run_id = :run_id AND role_id = :role_id
"""


def insert_binding(run_id: str, binding: _BindingValues) -> Statement:
    """Bind a role of a new run; refused if the persona is not there."""
    return Statement(_INSERT_BINDING, {"id": uuid.uuid4().hex, **_binding_values(run_id, binding)})


def rebind(run_id: str, binding: _BindingValues) -> Statement:
    """Bind a role of a run to another persona, which must be there."""
    return Statement(_REBIND, _binding_values(run_id, binding))


def _binding_values(run_id: str, binding: _BindingValues) -> dict[str, Any]:
    names = ("role_id", "backend", "binding_hash", "explanation", "persona_hash")
    return to_params({"run_id": run_id, **{name: getattr(binding, name) for name in names}})
