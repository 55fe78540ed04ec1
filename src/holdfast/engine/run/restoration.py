"""Puts the files of a run back as they were before one of its calls, at a person's word.

Rule: the files come first, then the event that says so. What lay there is kept under a rescue ref, so nothing is lost
by a restoration, and one that was cut off is done again by the same command.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.engine.phase.commands import stop_commands
from holdfast.engine.run.carrier import FilesTooLarge, open_carrier
from holdfast.engine.run.change import UNDER_WAY, to_reopened
from holdfast.engine.run.load import LoadedRun
from holdfast.engine.run.workspace import open_files
from holdfast.engine.run_owner import RunOwner
from holdfast.engine.scope import utc_now
from holdfast.errors import ConfigInvalid, RunNotInState
from holdfast.persistence.runs import read_approvals
from holdfast.persistence.statements import change_run, reopen_phase, supersede_approval
from holdfast.runtime.checkpoint.base import Claim
from holdfast.runtime.event_text import describe_event
from holdfast.runtime.events import Event, EventKind, create_event
from holdfast.runtime.journal import Journal
from holdfast.runtime.run_fold.event_fold import find_tree
from holdfast.workspace import restore

RESTORED = "files_restored"
"""Why a phase was reopened, in its event."""


@dataclass(frozen=True)
class RestoredFiles:
    """What a restoration did: the tree that is there now, and where the one that was there is kept."""

    run_id: str
    before: int
    tree: str
    rescue_ref: str | None
    reopened: tuple[str, ...]


async def restore_files(owner: RunOwner, journal: Journal, claim: Claim, *, before: int, by: str) -> RestoredFiles:
    """Restore the files that were there before the event of a number, under a claim.

    A phase under way starts anew from them, and is told why. Raises `ConfigInvalid`, `RunNotInState`, `WorkspaceError`.
    """
    loaded = await owner.load(claim.run_id)
    events = await journal.read(claim.run_id)
    scope = owner.scope(journal, claim, loaded, events)
    call = _find_event(events, before)
    tree = _find_tree_before(events, call)
    if not scope.is_conversation:
        _check_not_built_on(loaded, events, before)
    await open_files(scope)
    await stop_commands(scope)  # nothing may go on writing
    restored = await scope.on_disk(lambda: restore(scope.place, tree, at=utc_now()))
    rows = [row for row in loaded.stored.phases.values() if row.state in UNDER_WAY and not scope.is_conversation]
    keys = [row.phase_key for row in rows]
    waiting = await read_approvals(owner.db, run_id=claim.run_id, state="pending")
    superseded = [row.id for row in waiting if row.phase_key in keys]
    comment = f"A person put the files back as they were before this: {describe_event(call).phrase}"
    changed = create_event(
        claim.run_id,
        EventKind.RUN_CHANGED,
        by=by,
        personas={},
        reopened=keys,
        superseded=superseded,
        tree=restored.tree_id,
        restored={"before": before, "tree_before": restored.tree_before, "rescue_ref": restored.rescue_ref},
    )
    reopened = [to_reopened(claim.run_id, row, reason=RESTORED, comment=comment) for row in rows]
    statements = [
        *(reopen_phase(claim.run_id, row.phase_key, attempt=row.attempt, comment=comment) for row in rows),
        *(supersede_approval(approval_id, must_be_open=True) for approval_id in superseded),
        change_run(claim.run_id, requirements_md=None),
    ]
    # crash: the files are back and nothing says so; the same command again restores them once more and says it.
    carrier = await open_carrier(scope)
    try:
        files = [] if carrier is None else await carrier.make_rows([changed])
    except FilesTooLarge as refused:
        raise refused.error from refused
    await journal.append(claim.run_id, [changed, *reopened], claim=claim, rows=[*statements, *files])
    return RestoredFiles(claim.run_id, before, restored.tree_id, restored.rescue_ref, tuple(keys))


def _find_event(events: Iterable[Event], seq: int) -> Event:
    event = next((event for event in events if event.seq == seq), None)
    if event is None:
        raise ConfigInvalid(f"The run has no event {seq}.", hint="Its calls: holdfast restore RUN", key="--before")
    return event


def _find_tree_before(events: Iterable[Event], call: Event) -> str:
    """Return the files before an event: those that a command was started on, or the last that were recorded."""
    own = call.payload.get("tree_before")
    earlier = [tree for event in events if event.seq < call.seq and (tree := find_tree(event)) is not None]
    tree = own if isinstance(own, str) else (earlier[-1] if earlier else None)
    if tree is None:
        raise RunNotInState(f"No files were recorded before event {call.seq}.", hint="Fork the run at its first phase.")
    return tree


def _check_not_built_on(loaded: LoadedRun, events: Iterable[Event], before: int) -> None:
    """Raise if a phase was completed since: its result would contradict the files."""
    done = [
        str(event.payload.get("phase"))
        for event in events
        if event.seq > before and event.kind == EventKind.PHASE_COMPLETED
    ]
    if done:
        raise RunNotInState(
            f"Phase {done[0]} was completed after event {before}, and later phases build on it.",
            hint=f"Start a new run from before it: holdfast fork {loaded.run_id[:8]} {done[0]}",
        )
