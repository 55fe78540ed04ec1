"""Where a drive stops: the run is over, with its report, or it waits, with the reason."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.agents.calls.stall_detector import Stalled
from holdfast.engine.approvals.phase import ApprovalPending
from holdfast.engine.phase.budget import BudgetPause
from holdfast.engine.phase.commands import stop_commands
from holdfast.engine.report import Reported, write_report
from holdfast.engine.scope import RunScope
from holdfast.enums import RunStatus
from holdfast.persistence.runs import read_approvals
from holdfast.persistence.statements import insert, now_text
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.durable import CancelRun, Suspended
from holdfast.runtime.events import Event, EventKind


class MessagePending(Suspended):
    """A conversation has answered all that was said, and waits for the next message."""


async def pause_for_person(scope: RunScope) -> RunStatus:
    """Write down that the run waits for whoever asked for it; the request in the journal says who that was."""
    request = scope.log.records.pause_request or {}
    event = scope.log.event(EventKind.RUN_PAUSED, reason="person", by=request.get("by", ""))
    await scope.log.append(event, rows=[scope.set_run(state=RunStatus.PAUSED, pause_reason="person")], is_last=True)
    return RunStatus.PAUSED


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
    return await _end(scope, RunStatus.CANCELLED, EventKind.RUN_CANCELLED, reason=reason, by=by)


async def _end(scope: RunScope, state: RunStatus, kind: EventKind, **payload: Any) -> RunStatus:
    # crash: the report may be there without the end; whoever resumes writes it anew.
    path = await write_report(Reported.of(scope), state, payload)
    row = scope.set_run(
        state=state,
        ended_at=now_text(),
        final_report_path=str(path),
        pause_reason=None,
        error=payload.get("error"),
    )
    # A request to cancel that comes beside the end is too late: nothing is written after this.
    await scope.log.append(scope.log.event(kind, report=str(path), **payload), rows=[row], is_last=True)
    return state


async def _pause(scope: RunScope, waiting: Sequence[Suspended]) -> RunStatus:
    log = scope.log
    events: list[Event] = []
    rows: list[Statement] = []
    reasons: set[str] = set()
    for suspended in waiting:
        if isinstance(suspended, BudgetPause):
            reasons.add("budget")
            events.append(log.event(EventKind.BUDGET_EXHAUSTED, message=str(suspended), **suspended.facts))
        elif isinstance(suspended, ApprovalPending):
            reasons.add("approval")
        elif isinstance(suspended, MessagePending):
            reasons.add("message")
        elif isinstance(suspended, Stalled):
            reasons.add("stalled")
            events.append(log.event(EventKind.AGENT_PROGRESS, stalled=str(suspended), **suspended.facts))
        else:
            reasons.add("outcome")
            rows += await _ask_for_outcome(scope, str(suspended))
    reason = next(name for name in ("outcome", "approval", "stalled", "budget", "message") if name in reasons)
    approval_ids = [str(row.params["id"]) for row in rows]
    payload: dict[str, Any] = {"reason": reason, "waiting": ", ".join(map(str, waiting)), "asked": approval_ids}
    rows.append(scope.set_run(state=RunStatus.PAUSED, pause_reason=reason))
    await log.append(*events, log.event(EventKind.RUN_PAUSED, **payload), rows=rows)
    return RunStatus.PAUSED


async def _ask_for_outcome(scope: RunScope, key: str) -> list[Statement]:
    """Ask a person what became of a call that was in flight when its process died, unless they were asked before."""
    for row in await read_approvals(scope.db, run_id=scope.run_id, state="pending"):
        if row.about == "outcome" and isinstance(row.shown, dict) and row.shown.get("key") == key:
            return []
    phase_key, _, rest = key.partition("/")
    attempt = rest.partition("/")[0]
    started = [event.payload for event in await scope.log.read(EventKind.TOOL_STARTED) if event.payload["key"] == key]
    content = {
        **{name: value for name, value in (started[-1] if started else {}).items() if name in ("tool", "args", "argv")},
        "key": key,
        "question": "This call was in flight when its process died. Approve: make it again. Reject: fail the phase.",
    }
    values = {
        "id": uuid.uuid4().hex,
        "run_id": scope.run_id,
        "phase_key": phase_key,
        "attempt": int(attempt) if attempt.isdigit() else 0,
        "about": "outcome",
        "state": "pending",
        "shown": content,
        "requested_at": now_text(),
    }
    return [insert("approvals", values)]
