"""A new run as rows: the template and personas it is bound to, its phases, itself."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Required, TypedDict
from uuid import UUID

from holdfast.agents.redaction import learn_keys, scrub_prompt
from holdfast.binding import Binding
from holdfast.catalog.model_table import load_model_table
from holdfast.config import Config
from holdfast.engine.run.base_files import fix_start, rows_of_new
from holdfast.enums import Backend
from holdfast.errors import ImageUnsupported, RunIdInvalid, RunNotInState
from holdfast.images import Image, ImageLabel
from holdfast.persistence.db import Database
from holdfast.persistence.deletion import find_deleted
from holdfast.persistence.runs import find_run
from holdfast.persistence.statements import (
    NewRunRow,
    insert_binding,
    insert_images,
    insert_persona,
    insert_phase,
    insert_run,
    insert_template,
    lock_run,
    pin_schemas,
)
from holdfast.persona import AgentPersona
from holdfast.runtime.checkpoint.base import Claim, Statement
from holdfast.runtime.events import EventKind, create_event
from holdfast.runtime.journal import Journal
from holdfast.runtime.step import SameCommit
from holdfast.workflow import WorkflowTemplate

DEFAULT_QUEUE = "runs"


class RunOptions(TypedDict, total=False):
    """The keywords of `WorkflowEngine.run`."""

    repo_path: Required[str | Path]
    base_branch: str | None
    requirements_md: str
    pre_allocated_run_id: UUID | str | None
    persona_overrides: Mapping[str, str] | None
    budget_usd: float | Decimal | None
    title: str
    started_by: str
    is_unsandboxed: bool
    images: Sequence[Image]
    order: "RunOrder"


@dataclass(frozen=True)
class RunOrder:
    """When a run comes to be driven, and by whom: its queue, its priority among its user's runs, and its time."""

    queue: str = ""
    """Empty for the first of the setting `queues`."""
    priority: int = 0
    due_at: str | None = None
    """Not before; a time as rows hold it."""
    schedule: str | None = None
    """The schedule that started it."""

    def facts(self) -> dict[str, Any]:
        """Return what differs from the usual."""
        return {name: value for name, value in asdict(self).items() if value}


@dataclass(frozen=True)
class RunRequest:
    """What whoever starts a run wants: the workflow, where, and with which options."""

    template: WorkflowTemplate
    repo_path: str | Path
    base_branch: str | None = "main"
    """Without one it is the branch that is checked out."""
    requirements_md: str = ""
    pre_allocated_run_id: UUID | str | None = None
    persona_overrides: Mapping[str, str] | None = None
    budget_usd: float | Decimal | None = None
    title: str = ""
    started_by: str = ""
    is_unsandboxed: bool = False
    """The person who starts it chose that its commands run without a sandbox."""
    images: Sequence[Image] = ()
    """What the requirements show."""
    order: RunOrder = RunOrder()


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
    is_unsandboxed: bool = False
    order: RunOrder = RunOrder()
    schemas: Mapping[str, Any] = field(default_factory=dict)
    """The artifact schemas that count for it from now on."""
    images: Sequence[Image] = ()
    labels: Sequence[ImageLabel] = ()
    """Of the images, those of a fork's origin included."""

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
            **({"images": [label.to_dict() for label in self.labels]} if self.labels else {}),
            **({"unsandboxed": True} if self.is_unsandboxed else {}),
            **({"order": self.order.facts()} if self.order.facts() else {}),
        }


def without_secrets(new: NewRun) -> NewRun:
    """Return the run as it may be written down: a key that someone wrote into its text stands nowhere."""
    learn_keys(binding.persona.key_variable for binding in new.bindings.values())
    return replace(new, requirements_md=scrub_prompt(new.requirements_md), title=scrub_prompt(new.title))


def check_seen(images: Sequence[Image], personas: Sequence[AgentPersona], config: Config) -> None:
    """Raise `ImageUnsupported` if there are images and nobody can see them. One who can is enough: who cannot is told
    so in the image's place.
    """
    if not images:
        return
    table = load_model_table(config.config_dir)
    if not any(table.takes_images(persona) for persona in personas):
        names = ", ".join(dict.fromkeys(persona.name for persona in personas))
        raise ImageUnsupported(f"{images[0].label.name} cannot be seen: the model of {names} takes no images.")


def new_run_id(run_id: UUID | str | None) -> str:
    """Return this id as it is stored, or a new one. Raises `RunIdInvalid`."""
    try:
        return str(uuid.uuid4() if run_id is None else UUID(str(run_id)))
    except ValueError as error:
        raise RunIdInvalid(f"{run_id!r} is no UUID.", hint="A run's id is a UUID; leave it out to get one.") from error


def creation_rows(new: NewRun) -> list[Statement]:
    """Return the rows of a new run. Templates and personas are shared by content: what is there is used as it is."""
    return [
        # A run that is forked must be there until its fork is.
        *([lock_run(new.forked_from)] if new.forked_from is not None else []),
        insert_template(new.template),
        *persona_rows(binding.persona for binding in new.bindings.values()),
        insert_run(_to_row(new)),
        *(insert_phase(new.run_id, phase.key, position) for position, phase in enumerate(new.template.phases)),
        *(insert_binding(new.run_id, binding) for binding in new.bindings.values()),
        *pin_schemas(new.run_id, new.schemas),
        *insert_images(new.run_id, new.images),
    ]


def persona_rows(personas: Iterable[AgentPersona]) -> list[Statement]:
    """Store personas, each once; one that is there already is used as it is."""
    return [insert_persona(persona) for persona in {persona.content_hash: persona for persona in personas}.values()]


def _to_row(new: NewRun) -> NewRunRow:
    return NewRunRow(
        id=new.run_id,
        template_hash=new.template.content_hash,
        workflow=new.template.name,
        repo_path=new.repo_path,
        base_branch=new.base_branch,
        base_commit=new.base_commit,
        title=new.title,
        requirements_md=new.requirements_md.replace("\0", ""),
        budget_micros=new.budget_micros,
        started_by=new.started_by,
        is_simulated=all(binding.backend is Backend.SIMULATED for binding in new.bindings.values()),
        forked_from=new.forked_from,
        queue=new.order.queue or DEFAULT_QUEUE,
        priority=new.order.priority,
        due_at=new.order.due_at,
        schedule=new.order.schedule,
    )


async def write_new(
    db: Database,
    journal: Journal,
    claim: Claim,
    new: NewRun,
    *,
    config: Config,
    also: SameCommit = SameCommit(),  # noqa: B008 - frozen
) -> None:
    """Write the first event and the rows of a run. Raises `RunNotInState` if there is or was one of this id."""
    if await find_run(db, new.run_id) is not None:
        raise RunNotInState(f"There is a run {new.run_id} already.", hint="Resume it, or take another id.")
    if await find_deleted(db, new.run_id) is not None:
        hint = "Take another id, or let `holdfast gc` finish first."
        raise RunNotInState(f"A run {new.run_id} is being deleted.", hint=hint)
    if new.base_commit is None:
        new = replace(new, base_commit=await fix_start(config, new.run_id, new.repo_path, new.base_branch))
    created = create_event(new.run_id, EventKind.RUN_CREATED, **new.created_facts())
    base = await rows_of_new(db, journal, config, new.run_id, (new.repo_path, new.base_commit))
    rows = [*creation_rows(new), *base, *also.rows]
    await journal.append(new.run_id, [created, *also.events], claim=claim, rows=rows)
