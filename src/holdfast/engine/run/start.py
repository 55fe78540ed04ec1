"""The first event of a drive: a run starts, is resumed, or is retried."""

from collections.abc import Awaitable, Callable
from typing import Any

from holdfast.engine.scope import RunScope
from holdfast.enums import RunPhaseState, RunStatus
from holdfast.errors import RunNotInState
from holdfast.persistence.runs import StoredRun
from holdfast.persistence.statements import reopen_phase, reopen_run, resume_run, start_run
from holdfast.runtime.events import Event, EventKind

Begin = Callable[[RunScope, StoredRun], Awaitable[None]]


async def begin_new(scope: RunScope, stored: StoredRun) -> None:
    await scope.log.append(scope.log.event(EventKind.RUN_STARTED), rows=[start_run(scope.run_id)])


async def begin_resumed(scope: RunScope, stored: StoredRun) -> None:
    drift: dict[str, Any] = {"accept_drift": True} if scope.history.accepts_drift else {}
    resumed = scope.log.event(EventKind.RUN_RESUMED, after=stored.run.state, **drift)
    events = [resumed, *_skipped(scope, stored)]
    is_started_now = stored.run.state == RunStatus.PENDING  # its maker died before it began
    if is_started_now:
        events.insert(0, scope.log.event(EventKind.RUN_STARTED))
    await scope.log.append(*events, rows=[resume_run(scope.run_id, is_started_now=is_started_now)])


async def begin_accepting(scope: RunScope, stored: StoredRun) -> None:
    """Resume a run whose agents are told something else than was recorded: another prompt, other tools or models."""
    scope.history.accepts_drift = True
    await begin_resumed(scope, stored)


async def begin_retried(scope: RunScope, stored: StoredRun) -> None:
    rows = [reopen_phase(scope.run_id, key) for key, row in stored.phases.items() if row.state == RunPhaseState.FAILED]
    rows.append(reopen_run(scope.run_id))
    resumed = scope.log.event(EventKind.RUN_RESUMED, after="failed")
    await scope.log.append(resumed, *_skipped(scope, stored), rows=rows)
    scope.history.retry(scope.log.records.last_seq + 1)


def _skipped(scope: RunScope, stored: StoredRun) -> list[Event]:
    if scope.is_conversation:
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
