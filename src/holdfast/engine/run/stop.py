"""Where a drive stops: the run is over, with its report, or it waits, with the reason."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from holdfast.engine.approvals.questions import OutcomeQuestion
from holdfast.engine.phase.commands import stop_commands
from holdfast.engine.report import Reported, write_report
from holdfast.engine.run.start import reopen_failed
from holdfast.engine.scope import RunScope, error_facts, utc_now
from holdfast.enums import PauseReason, RunStatus
from holdfast.errors import RunAlreadyTerminal
from holdfast.persistence.runs import StoredRun, read_approvals
from holdfast.persistence.statements import end_run, pause_run, to_time_text
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.events import Event, EventKind, create_event
from holdfast.runtime.step import CancelRun, PauseRun, Suspended


class MessagePending(Suspended):
    """A conversation has answered all that was said, and waits for the next message."""

    reason = PauseReason.MESSAGE


async def pause_for_person(scope: RunScope) -> RunStatus:
    """Write down that the run waits for whoever asked for it; the request in the journal says who that was."""
    request = scope.log.records.pause_request or {}
    event = scope.log.event(EventKind.RUN_PAUSED, reason=PauseReason.PERSON.value, by=request.get("by", ""))
    await scope.log.append(event, rows=[pause_run(scope.run_id, PauseReason.PERSON)], is_last=True)
    return RunStatus.PAUSED


def pause_crashing(stored: StoredRun, crashing: Suspended) -> tuple[list[Event], list[Statement]]:
    """Return what records that a run waits, since those who drove it died: its events, and its rows beside them."""
    run_id, rows = stored.run.id, list[Statement]()
    events = [create_event(run_id, EventKind.RUN_PAUSED, reason=crashing.reason.value, waiting=str(crashing), asked=[])]
    if stored.run.state == RunStatus.FAILED:  # they died when it was to be retried, which goes on from here
        events.insert(0, create_event(run_id, EventKind.RUN_RESUMED, after="failed"))
        rows += reopen_failed(stored)
    return events, [*rows, pause_run(run_id, crashing.reason)]


_OF_CALL = ("tool", "caller", "args", "argv", "place")


@dataclass(frozen=True)
class Completed:
    pass


@dataclass(frozen=True)
class Failed:
    error: dict[str, Any]
    phase: str | None = None


@dataclass(frozen=True)
class Cancelled:
    reason: str = ""
    by: str = ""


@dataclass(frozen=True)
class Paused:
    """Every phase that waits, and for what; the others of the batch have come to their end."""

    waiting: Sequence[Suspended] = field(default_factory=list)


Stop = Completed | Failed | Cancelled | Paused


async def finish(scope: RunScope, stop: Stop) -> RunStatus:
    """Write down that the run is over or waits."""
    if isinstance(stop, Completed):
        return await _end(scope, RunStatus.COMPLETED, EventKind.RUN_COMPLETED)
    if isinstance(stop, Failed):
        where = {"phase": stop.phase} if stop.phase else {}
        return await _end(scope, RunStatus.FAILED, EventKind.RUN_FAILED, error=stop.error, **where)
    if isinstance(stop, Cancelled):
        return await _cancel(scope, stop.reason, stop.by)
    try:
        return await _pause(scope, stop.waiting)
    except CancelRun as request:  # it came while nobody could have heard it any more
        return await _cancel(scope, request.reason, request.by)


async def _cancel(scope: RunScope, reason: str, by: str) -> RunStatus:
    await stop_commands(scope)
    event, rows = await _to_end(scope, RunStatus.CANCELLED, EventKind.RUN_CANCELLED, reason=reason, by=by)
    await scope.log.append(event, rows=rows, is_last=True)
    scope.log.stop(RunAlreadyTerminal(f"Run {scope.run_id} is cancelled.", run_id=scope.run_id))
    return RunStatus.CANCELLED


async def _end(scope: RunScope, state: RunStatus, kind: EventKind, **payload: Any) -> RunStatus:
    """End the run, unless a person has aborted it meanwhile, or paused one that would be complete."""
    try:
        event, rows = await _to_end(scope, state, kind, **payload)
        await scope.log.append_end(event, rows=rows, yields_to_pause=state is RunStatus.COMPLETED)
    except CancelRun as request:
        return await _cancel(scope, request.reason, request.by)
    except PauseRun:
        return await pause_for_person(scope)
    return state


async def _to_end(scope: RunScope, state: RunStatus, kind: EventKind, **payload: Any) -> tuple[Event, list[Statement]]:
    # crash: the report may be there without the end; whoever resumes writes it anew.
    written = await write_report(Reported.of(scope), state, payload)
    row = end_run(
        scope.run_id, state, report_path=str(written.path), error=payload.get("error"), verdict=written.verdict
    )
    return scope.log.event(kind, report=str(written.path), **payload), [row, written.row]


async def _pause(scope: RunScope, waiting: Sequence[Suspended]) -> RunStatus:
    """Write down that the run waits; of several reasons the most urgent one is said."""
    questions = [
        question
        for suspended in waiting
        if suspended.reason is PauseReason.OUTCOME
        if (question := await _ask_for_outcome(scope, str(suspended))) is not None
    ]
    reasons = {suspended.reason for suspended in waiting}
    reason = next(reason for reason in PauseReason if reason in reasons)
    errors = [suspended.error for suspended in waiting if suspended.reason is reason and suspended.error is not None]
    error = error_facts(errors[0]) if errors else None
    facts: dict[str, Any] = {} if error is None else {"error": error}
    paused = scope.log.event(
        EventKind.RUN_PAUSED,
        reason=reason.value,
        waiting=", ".join(map(str, waiting)),
        asked=[question.approval_id for question in questions],
        **facts,
    )
    events = [event for suspended in waiting for event in suspended.events(scope.run_id)]
    rows = [
        *(question.to_row() for question in questions),
        pause_run(scope.run_id, reason, error=error, due_at=_end_of(waiting, reason)),
    ]
    await scope.log.append(*events, paused, rows=rows)
    return RunStatus.PAUSED


def _end_of(waiting: Sequence[Suspended], reason: PauseReason) -> str | None:
    """Return when a pause ends by itself: one for the day's limit alone does when the next day (UTC) begins."""
    limits = {getattr(suspended, "facts", {}).get("limit") for suspended in waiting if suspended.reason is reason}
    if reason is not PauseReason.BUDGET or limits != {"day"}:
        return None
    tomorrow = utc_now().replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    return to_time_text(tomorrow)


async def _ask_for_outcome(scope: RunScope, key: str) -> OutcomeQuestion | None:
    """Ask what became of a call that was in flight when its process died; `None` if that was asked already."""
    for row in await scope.from_rows(lambda: read_approvals(scope.db, run_id=scope.run_id, state="pending")):
        if row.about == OutcomeQuestion.about and isinstance(row.shown, dict) and row.shown.get("key") == key:
            return None
    phase_key, _, rest = key.partition("/")
    attempt = rest.partition("/")[0]
    started = [event.payload for event in await scope.log.read(EventKind.TOOL_STARTED) if event.payload["key"] == key]
    call = {name: value for name, value in (started[-1] if started else {}).items() if name in _OF_CALL}
    question = "This call was in flight when its process ended. Approve: make it again. Reject: fail the phase."
    return OutcomeQuestion(
        approval_id=uuid.uuid4().hex,
        run_id=scope.run_id,
        phase_key=phase_key,
        attempt=int(attempt) if attempt.isdigit() else 0,
        lane_id=f"{phase_key}/{attempt}",
        key=key,
        content={**call, "key": key, "question": question},
    )
