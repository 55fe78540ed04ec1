"""The first event of a drive: a run starts, is resumed, or is retried."""

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from holdfast.engine.scope import RunScope
from holdfast.enums import PauseReason, RunPhaseState, RunStatus
from holdfast.errors import RunNotInState
from holdfast.persistence.models import RunRow
from holdfast.persistence.runs import StoredRun
from holdfast.persistence.statements import clear_wake, reopen_phase, reopen_run, resume_run, start_run
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.events import Event, EventKind


class DriveStart(ABC):
    """How a drive begins: what must hold of the run, and which events and rows come first."""

    may_be_over: ClassVar[bool] = False
    """Whether it begins a run that has failed."""
    opens_files: ClassVar[bool] = True
    """Whether the workspace must be there before anything is written."""

    def check(self, stored: StoredRun) -> None:  # noqa: B027 - most begin a run of whichever state
        """Raise `RunNotInState` if a run that stands so does not begin in this way."""

    @abstractmethod
    async def write(self, scope: RunScope, stored: StoredRun) -> None:
        """Write down that the run is under way."""


class NewStart(DriveStart):
    """A run starts for the first time; its workspace is made when it is under way."""

    opens_files = False

    async def write(self, scope: RunScope, stored: StoredRun) -> None:
        started = scope.log.event(EventKind.RUN_STARTED, **await find_sandbox(scope))
        await scope.log.append(started, rows=[start_run(scope.run_id)])


@dataclass(frozen=True)
class ResumeStart(DriveStart):
    """A run goes on. With `accept_drift` its agents may get another prompt, other tools or models than recorded."""

    accept_drift: bool = False

    async def write(self, scope: RunScope, stored: StoredRun) -> None:
        scope.history.accepts_drift |= self.accept_drift
        drift: dict[str, Any] = {"accept_drift": True} if scope.history.accepts_drift else {}
        sandbox = await find_sandbox(scope)
        death: dict[str, Any] = {"taken_over": True} if scope.log.claim.is_takeover else {}
        resumed = scope.log.event(EventKind.RUN_RESUMED, after=stored.run.state, **death, **drift, **sandbox)
        events = [resumed, *_skipped(scope, stored)]
        is_started_now = stored.run.state == RunStatus.PENDING  # its maker died before it began
        if is_started_now:
            events.insert(0, scope.log.event(EventKind.RUN_STARTED, **sandbox))
        rows = [resume_run(scope.run_id, is_started_now=is_started_now), *_serve_request(stored)]
        await scope.log.append(*events, rows=rows)


class DueStart(ResumeStart):
    """A run goes on by itself, since it was found due. A person may have paused it since: then it stays so."""

    def check(self, stored: StoredRun) -> None:
        if stays_paused(stored.run):
            raise RunNotInState(f"Run {stored.run.id} was paused.", hint="Go on with it: holdfast resume.")


class RetryStart(DriveStart):
    """A failed run is opened again at the phase that failed."""

    may_be_over = True

    def check(self, stored: StoredRun) -> None:
        check_failed(stored)

    async def write(self, scope: RunScope, stored: StoredRun) -> None:
        rows = [*reopen_failed(stored), *_serve_request(stored)]
        resumed = scope.log.event(EventKind.RUN_RESUMED, after="failed", **await find_sandbox(scope))
        await scope.log.append(resumed, *_skipped(scope, stored), rows=rows)
        scope.history.retry(scope.log.records.last_seq + 1)


def stays_paused(run: RunRow) -> bool:
    """Tell whether a run is paused until a person acts: nobody has asked for it to go on, and no time is set for it."""
    is_answered = run.pause_reason == PauseReason.APPROVAL and not run.open_questions
    is_over_for_today = run.pause_reason == PauseReason.BUDGET and run.due_at is not None
    return run.state == RunStatus.PAUSED and run.wake is None and not (is_answered or is_over_for_today)


def reopen_failed(stored: StoredRun) -> list[Statement]:
    """Let a failed run go on at the phases that failed."""
    failed = [key for key, row in stored.phases.items() if row.state == RunPhaseState.FAILED]
    return [*(reopen_phase(stored.run.id, key) for key in failed), reopen_run(stored.run.id)]


def _serve_request(stored: StoredRun) -> list[Statement]:
    """Take back the request to go on that a drive serves: it would be served again later."""
    return [] if stored.run.wake is None else [clear_wake(stored.run.id, stored.run.wake)]


async def find_sandbox(scope: RunScope) -> dict[str, Any]:
    """Return which sandbox is in force for the commands of this drive, and who or what chose that there is none."""
    if scope.history.unsandboxed_by is not None:
        return {"sandbox": "none", "unsandboxed_by": scope.history.unsandboxed_by}
    freed = list(scope.template.sandbox.switched_off)
    kind = (await asyncio.to_thread(scope.find_sandbox)).kind or "none"
    return {"sandbox": kind, **({"unsandboxed_by_workflow": freed} if freed else {})}


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
