"""A fork: a new run that stands where another stood before one of its phases, files included."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from holdfast.binding import Binding
from holdfast.config import Config
from holdfast.engine.history import find_images
from holdfast.engine.run.change import ChangeRequest
from holdfast.engine.run.create import NewRun, RunOrder, creation_rows, without_secrets
from holdfast.engine.run.load import LoadedRun
from holdfast.enums import Backend
from holdfast.errors import ConfigInvalid, RunNotInState
from holdfast.images import check_images, list_labels, unite_labels
from holdfast.persistence.db import Database
from holdfast.persistence.models import ArtifactRow
from holdfast.persistence.runs import StoredRun, read_artifacts
from holdfast.persistence.statements import copy_artifact, copy_files, copy_phase
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.events import Event, EventKind, create_event
from holdfast.runtime.run_fold.event_fold import find_tree
from holdfast.workflow import WorkflowTemplate
from holdfast.workspace import open_workspace


@dataclass(frozen=True)
class Fork:
    """A new run as events and rows, to be written together; it is pending then."""

    run_id: str
    events: list[Event]
    rows: list[Statement]
    order: RunOrder


@dataclass(frozen=True)
class _Point:
    """Where the fork begins: what is done by then, and the files as they were."""

    done: tuple[str, ...]
    tree: str | None


@dataclass(frozen=True)
class ForkRequest:
    """Where to fork a run, and what is different in the new one; the rest is as in the original."""

    phase_key: str
    run_id: str
    title: str = ""
    started_by: str = ""
    bindings: Mapping[str, Binding] = field(default_factory=dict)
    change: ChangeRequest = field(default_factory=ChangeRequest)
    """For the new run. That the original has no sandbox says nothing about it."""


async def plan_fork(db: Database, config: Config, loaded: LoadedRun, request: ForkRequest) -> Fork:
    """Plan a run that begins where another stood before one of its phases.

    Raises `ConfigInvalid` for a phase that is not there, `RunNotInState` if the run never stood before it."""
    stored, template, phase_key = loaded.stored, loaded.template, request.phase_key
    if phase_key not in {phase.key for phase in template.phases}:
        names = ", ".join(phase.key for phase in template.phases)
        raise ConfigInvalid(f"Workflow {template.name} has no phase {phase_key}; it has {names}.", key="phase_key")
    events = await asyncio.to_thread(db.store.list_events, stored.run.id)
    point = _find_point(events, stored, template, phase_key)
    images = check_images(request.change.images)
    labels = unite_labels([*find_images(events), *(image.label for image in images)])
    base_commit = stored.run.base_commit  # of a run that has no commit yet, what its first drive made of its folder
    if base_commit is None:
        base_commit = (await asyncio.to_thread(open_workspace, config.data_dir, stored.run.id)).base_commit
    new = replace(_to_new_run(loaded, base_commit, request), images=images, labels=labels)
    others = {
        role: one for role, one in request.bindings.items() if one.persona_hash != new.bindings[role].persona_hash
    }
    new_text = request.change.requirements_md
    text = new.requirements_md if new_text is None else new_text
    has_requirements = text != new.requirements_md
    new = without_secrets(replace(new, bindings={**new.bindings, **others}, requirements_md=text))
    copied = [row for row in await read_artifacts(db, stored.run.id) if row.phase_key in point.done]
    payload = {
        **new.created_facts(),
        "forked_from": {"run_id": stored.run.id, "phase": phase_key},
        "changed": {
            "personas": {role: binding.persona.name for role, binding in others.items()},
            "requirements": has_requirements,
            **({"images": list_labels(images)} if images else {}),
        },
        "tree": point.tree,
        "artifacts": [{"key": _artifact_key(row), "hash": row.hash, "state": row.state} for row in copied],
    }
    skipped = [create_event(new.run_id, EventKind.PHASE_SKIPPED, phase=key) for key in point.done]
    rows = creation_rows(new)
    rows += [copy_phase(new.run_id, stored.phases[key]) for key in point.done]
    rows += [copy_artifact(new.run_id, row) for row in copied]
    rows += copy_files(new.run_id, stored.run.id)
    return Fork(new.run_id, [create_event(new.run_id, EventKind.RUN_CREATED, **payload), *skipped], rows, new.order)


def _artifact_key(row: ArtifactRow) -> str:
    return f"{row.phase_key}/{row.attempt}/artifact{row.turn}"


def _find_point(events: list[Event], stored: StoredRun, template: WorkflowTemplate, phase_key: str) -> _Point:
    done: list[str] = []
    tree: str | None = None
    for event in events:
        phase = event.payload.get("phase")
        if event.kind == EventKind.PHASE_STARTED and phase == phase_key:
            tree = find_tree(event) or tree
            break
        if event.kind in (EventKind.PHASE_COMPLETED, EventKind.PHASE_SKIPPED) and isinstance(phase, str):
            done += [] if phase in done else [phase]
        if event.kind in (EventKind.PHASE_COMPLETED, EventKind.RUN_CREATED):
            tree = find_tree(event) or tree
    if phase_key in done:  # it never started here: the run has it from the one it was forked from
        raise RunNotInState(
            f"Run {stored.run.id} did not do {phase_key} itself.",
            hint=f"Fork the run it came from, {stored.run.forked_from}, at {phase_key}.",
        )
    missing = [key for key in template.upstream_of(phase_key) if key not in done]
    if missing:
        raise RunNotInState(
            f"Run {stored.run.id} cannot be forked at {phase_key}: {', '.join(missing)} was not completed before it.",
            hint="Fork at an earlier phase.",
        )
    return _Point(tuple(done), tree)


def _to_new_run(loaded: LoadedRun, base_commit: str, request: ForkRequest) -> NewRun:
    stored, personas = loaded.stored, loaded.personas
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
        run_id=request.run_id,
        template=loaded.template,
        bindings=bindings,
        repo_path=stored.run.repo_path,
        base_branch=stored.run.base_branch,
        requirements_md=stored.run.requirements_md,
        budget_micros=stored.run.budget_micros,
        title=request.title or stored.run.title,
        started_by=request.started_by,
        forked_from=stored.run.id,
        base_commit=base_commit,
        is_unsandboxed=request.change.is_unsandboxed,
        order=RunOrder(stored.run.queue, stored.run.priority),
    )
