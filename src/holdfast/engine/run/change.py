"""A person's change to a run that is there: other personas for its roles, other requirements, no sandbox.

Rule: one append holds the event that says who changed what, the rows it is about, and the end of every attempt that
works from what was there before. What is completed stays; a phase that was under way starts anew.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from holdfast.agents.redaction import learn_keys, scrub_prompt
from holdfast.binding import Binding
from holdfast.engine.conversation.journal import is_conversation
from holdfast.engine.run.create import persona_rows
from holdfast.engine.run.load import LoadedRun
from holdfast.enums import RunPhaseState
from holdfast.errors import RowRefused, RunBusy, RunNotInState
from holdfast.images import Image, ImageLabel, check_images, list_labels
from holdfast.persistence.db import Database
from holdfast.persistence.models import ApprovalRow, RunPhaseRow
from holdfast.persistence.runs import find_approval, read_approvals
from holdfast.persistence.statements import change_run, insert_images, rebind, reopen_phase, supersede_approval
from holdfast.runtime.checkpoint.base import Claim, Statement
from holdfast.runtime.events import Event, EventKind, create_event
from holdfast.runtime.journal import Journal
from holdfast.runtime.step import SameCommit

REOPENED = "run_changed"
"""Why a phase was reopened, in its event."""
UNDER_WAY = (RunPhaseState.RUNNING, RunPhaseState.AWAITING_APPROVAL)


class ChangeOptions(TypedDict, total=False):
    """The keywords with which the verbs of an engine take a change; fields of `ChangeRequest`."""

    persona_overrides: Mapping[str, str] | None
    requirements_md: str | None
    images: Sequence[Image]
    by: str
    is_unsandboxed: bool


@dataclass(frozen=True)
class ChangeRequest:
    """What a person wants to be different: personas by role, the requirements if they are given, and more images."""

    persona_overrides: Mapping[str, str] | None = None
    requirements_md: str | None = None
    images: Sequence[Image] = ()
    """They are added to those that the run has."""
    by: str = ""
    is_unsandboxed: bool = False
    """From here on the run's commands run without a sandbox; nobody can take that back for it."""

    def __bool__(self) -> bool:
        return self.has_new_task or self.is_unsandboxed

    @property
    def has_new_task(self) -> bool:
        return bool(self.persona_overrides or self.images) or self.requirements_md is not None


@dataclass(frozen=True)
class RunChange:
    """What a change comes to: its events and rows, to be written together, and what to tell a person."""

    personas: Mapping[str, str]
    has_requirements: bool
    reopened: tuple[str, ...]
    events: tuple[Event, ...] = ()
    rows: tuple[Statement, ...] = ()
    is_unsandboxed: bool = False
    images: tuple[ImageLabel, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.events)

    def describe(self) -> str:
        """Say in one line what is different, and which phases start anew for it."""
        if not self:
            return "Nothing is different: the run has these personas and requirements already."
        parts = ["the requirements"] if self.has_requirements else []
        parts += [str(label) for label in self.images]
        parts += [f"{role} is {name}" for role, name in self.personas.items()]
        parts += ["commands run without a sandbox"] if self.is_unsandboxed else []
        again = f" Starts anew: {', '.join(self.reopened)}." if self.reopened else ""
        return f"Changed: {', '.join(parts)}.{again}"


def plan_change(
    loaded: LoadedRun, request: ChangeRequest, bindings: Mapping[str, Binding], approvals: Iterable[ApprovalRow]
) -> RunChange:
    """Work out a change; one that changes nothing has no events. `approvals` are those that wait for an answer."""
    if is_conversation(loaded.template) and request.has_new_task:
        raise RunNotInState("A conversation has no requirements or roles to change.", hint="Say it in a message.")
    stored, run_id = loaded.stored, loaded.run_id
    changed = {role: one for role, one in bindings.items() if one.persona_hash != stored.bindings[role][0].persona_hash}
    learn_keys(binding.persona.key_variable for binding in changed.values())
    text = None if request.requirements_md is None else scrub_prompt(request.requirements_md).replace("\0", "")
    text = None if text == stored.run.requirements_md else text
    images = check_images(request.images)
    if text is None and not changed and not images and not request.is_unsandboxed:
        return RunChange({}, has_requirements=False, reopened=())
    is_new_task = text is not None or bool(images)
    under_way = [row for row in stored.phases.values() if _is_under_way(loaded, row)]
    reopened = [row for row in under_way if is_new_task or loaded.template.phase(row.phase_key).role in changed]
    keys = [row.phase_key for row in reopened]
    superseded = [row.id for row in approvals if row.phase_key in keys]
    facts: dict[str, Any] = {
        "by": request.by,
        "personas": {role: _describe(loaded, role, binding) for role, binding in changed.items()},
        "reopened": keys,
        "superseded": superseded,
        **({} if text is None else {"requirements_md": text}),
        **({"images": list_labels(images)} if images else {}),
        **({"unsandboxed": True} if request.is_unsandboxed else {}),
    }
    events = [create_event(run_id, EventKind.RUN_CHANGED, **facts), *(to_reopened(run_id, row) for row in reopened)]
    rows = [
        *persona_rows(binding.persona for binding in changed.values()),
        *(rebind(run_id, binding) for binding in changed.values()),
        *(reopen_phase(run_id, phase_key) for phase_key in keys),
        # If somebody has just answered one of them, the whole change is refused.
        *(supersede_approval(approval_id, must_be_open=True) for approval_id in superseded),
        *insert_images(run_id, images),
        change_run(run_id, requirements_md=text),
    ]
    names = {role: binding.persona.name for role, binding in changed.items()}
    labels = tuple(image.label for image in images)
    return RunChange(names, text is not None, tuple(keys), tuple(events), tuple(rows), request.is_unsandboxed, labels)


async def write_change(
    db: Database,
    journal: Journal,
    claim: Claim,
    request: ChangeRequest,
    *,
    load: Callable[[], Awaitable[tuple[LoadedRun, Mapping[str, Binding]]]],
    also: SameCommit,
) -> RunChange:
    """Write a change under a claim, and what `also` goes into its commit: all of it or nothing.

    `load` reads the run and binds the roles that the change names; it is called anew if the run has changed meanwhile.
    """
    while True:
        loaded, bindings = await load()
        waiting = await read_approvals(db, run_id=claim.run_id, state="pending")
        planned = plan_change(loaded, request, bindings, waiting)
        events, rows = [*planned.events, *also.events], [*planned.rows, *also.rows]
        if not events and not rows:
            return planned
        try:
            # crash: before it nothing is different; after it all is, and whoever resumes goes on with it.
            await journal.append(claim.run_id, events, claim=claim, rows=rows)
        except RowRefused:
            if not await _has_changed(db, waiting):
                raise
        else:
            return planned


async def write_unchanged(journal: Journal, run_id: str, also: SameCommit) -> RunChange:
    """Write what others are to see of a run in which nothing is different, and take no claim for it.

    A claim on the run of a process that died would be taken for the one that goes on with it. Raises `RunBusy` while a
    living process drives the run.
    """
    if await journal.query(lambda store: store.find_owned([run_id])):
        raise RunBusy(f"Run {run_id!r} is being driven.", run_id=run_id)
    await journal.append(run_id, also.events, rows=also.rows)
    return RunChange({}, has_requirements=False, reopened=())


async def _has_changed(db: Database, waiting: Iterable[ApprovalRow]) -> bool:
    """Return whether one of these questions was answered meanwhile, so that the change must be worked out again."""
    rows = [await find_approval(db, row.id) for row in waiting]
    return any(row is None or row.state != "pending" for row in rows)


def _is_under_way(loaded: LoadedRun, row: RunPhaseRow) -> bool:
    """Return whether a phase has begun and is not over; what it started from is pinned."""
    return row.state in UNDER_WAY and any(phase.key == row.phase_key for phase in loaded.template.phases)


def _describe(loaded: LoadedRun, role: str, binding: Binding) -> dict[str, str]:
    before = loaded.personas[role]
    return {
        "name": binding.persona.name,
        "hash": binding.persona_hash,
        "backend": binding.backend.value,
        "before": before.name,
        "explanation": binding.explanation,
    }


def to_reopened(run_id: str, row: RunPhaseRow, *, reason: str = REOPENED, comment: str | None = None) -> Event:
    """Return the event that ends the attempt under way: the next one starts anew, with the comment if there is one."""
    payload: dict[str, Any] = {
        "phase": row.phase_key,
        "attempt": row.attempt,
        "comment": row.comment if comment is None else comment,
        "reason": reason,
    }
    return create_event(run_id, EventKind.PHASE_REOPENED, f"{row.phase_key}/{row.attempt}", **payload)
