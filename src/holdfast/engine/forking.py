"""A fork: a new run that stands where another stood before one of its phases, files included."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.binding import Binding
from holdfast.config import Config
from holdfast.engine.creation import NewRun, creation_rows
from holdfast.enums import Backend, RunPhaseState
from holdfast.errors import ConfigInvalid, RunNotInState
from holdfast.persistence.db import Database
from holdfast.persistence.models import ArtifactRow, RunPhaseRow
from holdfast.persistence.rows import insert, update
from holdfast.persistence.runs import StoredRun, read_artifacts
from holdfast.persona import AgentPersona
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.events import Event, EventKind, create_event
from holdfast.workflow import WorkflowTemplate
from holdfast.workspace import Workspace, open_workspace

Write = Callable[[str, list[Event], list[Statement]], Awaitable[None]]


@dataclass(frozen=True)
class _Point:
    """Where the fork begins: what is done by then, and the files as they were."""

    done: tuple[str, ...]
    tree: str | None


async def fork_run(
    db: Database,
    config: Config,
    stored: StoredRun,
    template: WorkflowTemplate,
    phase_key: str,
    *,
    write: Write,
    personas: Mapping[str, AgentPersona],
    title: str = "",
    started_by: str = "",
) -> str:
    """Write the new run, pending, and return its id. Raises `ConfigInvalid`, `RunNotInState`."""
    if phase_key not in {phase.key for phase in template.phases}:
        names = ", ".join(phase.key for phase in template.phases)
        raise ConfigInvalid(f"Workflow {template.name} has no phase {phase_key}; it has {names}.", key="phase_key")
    events = await asyncio.to_thread(db.store.list_events, stored.run.id)
    point = _find_point(events, stored, template, phase_key)
    workspace = await asyncio.to_thread(open_workspace, config.data_dir, stored.run.id)
    new = _to_new_run(stored, template, personas, workspace, title=title, started_by=started_by)
    told = {**new.created_facts(), "forked_from": {"run_id": stored.run.id, "phase": phase_key}, "tree": point.tree}
    rows = creation_rows(new)
    rows += [_done_row(new.run_id, stored.phases[key]) for key in point.done]
    rows += [
        insert("artifacts", _copied(new.run_id, row))
        for row in await read_artifacts(db, stored.run.id)
        if row.phase_key in point.done
    ]
    await write(new.run_id, [create_event(new.run_id, EventKind.RUN_CREATED, **told)], rows)
    return new.run_id


def _find_point(events: list[Event], stored: StoredRun, template: WorkflowTemplate, phase_key: str) -> _Point:
    done: list[str] = []
    tree: str | None = None
    for event in events:
        phase = event.payload.get("phase")
        if event.kind == EventKind.PHASE_STARTED and phase == phase_key:
            result = event.payload.get("result")
            tree = result.get("tree", tree) if isinstance(result, dict) else tree
            break
        if event.kind == EventKind.PHASE_COMPLETED and isinstance(phase, str) and phase not in done:
            done.append(phase)
            tree = event.payload.get("tree", tree)
    missing = [key for key in template.upstream_of(phase_key) if key not in done]
    if missing:
        raise RunNotInState(
            f"Run {stored.run.id} cannot be forked at {phase_key}: {', '.join(missing)} was not completed before it.",
            hint="Fork at an earlier phase.",
        )
    return _Point(tuple(done), tree)


def _to_new_run(
    stored: StoredRun,
    template: WorkflowTemplate,
    personas: Mapping[str, AgentPersona],
    workspace: Workspace,
    *,
    title: str,
    started_by: str,
) -> NewRun:
    bindings = {
        role: Binding(
            role_id=role,
            persona=personas[role],
            persona_hash=personas[role].content_hash,
            backend=Backend(row.backend or personas[role].backend),
            binding_hash=row.binding_hash,
            explanation=row.explanation,
        )
        for role, (row, _persona) in stored.bindings.items()
    }
    return NewRun(
        run_id=str(uuid.uuid4()),
        template=template,
        bindings=bindings,
        repo_path=stored.run.repo_path,
        base_branch=stored.run.base_branch,
        requirements_md=stored.run.requirements_md,
        budget_micros=stored.run.budget_micros,
        title=title or stored.run.title,
        started_by=started_by,
        forked_from=stored.run.id,
        base_commit=workspace.base_commit,
    )


def _done_row(run_id: str, row: RunPhaseRow) -> Statement:
    values = {
        "state": RunPhaseState.COMPLETED,
        "attempt": row.attempt,
        "started_at": row.started_at,
        "ended_at": row.ended_at,
        "tree": row.tree,
        "snapshot": row.snapshot,
    }
    return update("run_phases", values, {"run_id": run_id, "phase_key": row.phase_key})


def _copied(run_id: str, row: ArtifactRow) -> dict[str, Any]:
    names = ("phase_key", "attempt", "turn", "path", "schema_id", "hash", "state", "findings", "content", "created_at")
    return {"run_id": run_id, **{name: getattr(row, name) for name in names}}
