"""The first event of a drive: a run starts, is resumed, or is retried."""

from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.engine.conversation.journal import is_conversation
from holdfast.engine.scope import RunScope
from holdfast.enums import RunPhaseState, RunStatus
from holdfast.errors import RunNotInState
from holdfast.persistence.runs import StoredRun
from holdfast.persistence.statements import now_text
from holdfast.runtime.events import Event, EventKind

Begin = Callable[[RunScope, StoredRun], Awaitable[None]]


async def begin_new(scope: RunScope, stored: StoredRun) -> None:
    row = scope.set_run(state=RunStatus.RUNNING, started_at=now_text())
    await scope.log.append(scope.log.event(EventKind.RUN_STARTED), rows=[row])


async def begin_resumed(scope: RunScope, stored: StoredRun) -> None:
    values: dict[str, Any] = {"state": RunStatus.RUNNING, "pause_reason": None}
    drift: dict[str, Any] = {"accept_drift": True} if scope.history.accepts_drift else {}
    resumed = scope.log.event(EventKind.RUN_RESUMED, after=stored.run.state, **drift)
    events = [resumed, *_skipped(scope, stored)]
    if stored.run.state == RunStatus.PENDING:  # its maker died before it began
        values["started_at"] = now_text()
        events.insert(0, scope.log.event(EventKind.RUN_STARTED))
    await scope.log.append(*events, rows=[scope.set_run(**values)])


async def begin_accepting(scope: RunScope, stored: StoredRun) -> None:
    """Resume a run whose agents are told something else than was recorded: another prompt, other tools or models."""
    scope.history.accepts_drift = True
    await begin_resumed(scope, stored)


async def begin_retried(scope: RunScope, stored: StoredRun) -> None:
    rows = [
        scope.set_phase(key, state=RunPhaseState.PENDING, error=None)
        for key, row in stored.phases.items()
        if row.state == RunPhaseState.FAILED
    ]
    rows.append(scope.set_run(state=RunStatus.RUNNING, error=None, ended_at=None, final_report_path=None))
    resumed = scope.log.event(EventKind.RUN_RESUMED, after="failed")
    await scope.log.append(resumed, *_skipped(scope, stored), rows=rows)
    scope.history.retry(scope.log.records.last_seq + 1)


def _skipped(scope: RunScope, stored: StoredRun) -> list[Event]:
    if is_conversation(scope.template):
        return []  # its one phase begins anew with every message
    return [
        scope.log.event(EventKind.PHASE_SKIPPED, f"{key}/{row.attempt}", phase=key)
        for key, row in stored.phases.items()
        if row.state == RunPhaseState.COMPLETED
    ]


def check_failed(stored: StoredRun) -> None:
    if stored.run.state != RunStatus.FAILED:
        raise RunNotInState(
            f"Run {stored.run.id} is {stored.run.state}; only a failed run is retried.",
            hint="Resume a run that is paused or was interrupted.",
        )
