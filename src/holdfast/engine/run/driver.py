"""Driving one run under one claim: phases by their graph, attempt by attempt, to the run's next stop.

Rule: rows choose what comes next, the journal says what was already done in it. Both change in the same transaction.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from holdfast.concurrency import cancel_within
from holdfast.engine.phase.attempt import ChangesRequested, PhaseAttempt
from holdfast.engine.run.carrier import carry_files_of_place
from holdfast.engine.run.stop import Cancelled, Completed, Failed, Paused, Stop, finish, pause_for_person
from holdfast.engine.run.workspace import open_files, prepare
from holdfast.engine.scope import RunScope, error_facts
from holdfast.engine.settlement import settle_by_provider
from holdfast.enums import RunPhaseState, RunStatus
from holdfast.errors import ChecksFailed, HoldfastError, StoreError, WorkspaceError
from holdfast.persistence.models import RunPhaseRow
from holdfast.persistence.runs import read_phases
from holdfast.persistence.statements import fail_phase, insert_phase, reopen_phase
from holdfast.runtime.cancellation import CancelWatch, watch_for_cancel
from holdfast.runtime.events import EventKind
from holdfast.runtime.step import CancelRun, Stopped, Suspended
from holdfast.workflow import Phase

_NO_RETRY = {
    *("approval_rejected", "payload_invalid", "config_invalid", "nondeterminism", "backend_unavailable"),
    "tool_outcome_unknown",
}
_END_S = 10.0  # how long a phase that is given up has to end; what it waits for inside has shorter limits
_FAILED_BEFORE = "The attempt before failed."


class RunDriver:
    """One process's part of a run: from claim to the next stop, whichever that is."""

    def __init__(self, scope: RunScope) -> None:
        self._scope = scope

    async def drive(self) -> RunStatus:
        """Go on until the run is over or waits. Raises `Stopped` with what the store, the disk or the lease refused;
        then it is resumable."""
        watch = CancelWatch()
        try:
            with watch_for_cancel(self._scope.journal, self._scope.log, can_pause=True) as watch:
                stop = await self._go()
        except CancelRun as request:
            stop = Cancelled(request.reason, request.by)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            if not (watch.is_cancel_requested or watch.is_pause_requested) or task.cancelling() > 1:
                raise  # a shutdown gives the run up as it is: running, for whoever is next
            task.uncancel()
            if watch.is_pause_requested:
                return await self._pause()
            stop = self._cancelled()
        return await finish(self._scope, stop)

    async def cancel(self) -> RunStatus:
        """End the run as cancelled, without looking at anything else of it."""
        return await finish(self._scope, self._cancelled())

    async def _pause(self) -> RunStatus:
        """Stop as a person asked, until they resume it."""
        return await pause_for_person(self._scope)

    def _cancelled(self) -> Stop:
        request = self._scope.log.records.cancel_request or {}
        return Cancelled(request.get("reason", ""), request.get("by", ""))

    async def _go(self) -> Stop:
        if (unready := await self._prepare()) is not None:
            return unready
        await settle_by_provider(self._scope)
        phases = await self._complete_rows()
        while (stop := await self._step_phases(phases)) is None:
            phases = await self._read_phases()
        return stop

    async def _prepare(self) -> Failed | Paused | None:
        """Make the workspace ready to work in; return why the run fails or waits if that cannot be."""
        try:
            if self._scope.workspace is None:
                await open_files(self._scope)
            await prepare(self._scope)
            await carry_files_of_place(self._scope)
        except Suspended as suspended:
            return Paused([suspended])
        except (WorkspaceError, ChecksFailed) as error:
            return Failed(error_facts(error))
        return None

    async def _complete_rows(self) -> Mapping[str, RunPhaseRow]:
        """Add the rows of phases that have none, as a run that was made elsewhere may lack, and read all of them."""
        scope = self._scope
        phases = await self._read_phases()
        missing = [
            insert_phase(scope.run_id, phase.key, position)
            for position, phase in enumerate(scope.template.phases)
            if phase.key not in phases
        ]
        if missing:
            await scope.log.append(scope.log.event(EventKind.STATE_DELTA, delta={}, added=len(missing)), rows=missing)
            phases = await self._read_phases()
        return phases

    async def _read_phases(self) -> Mapping[str, RunPhaseRow]:
        return await self._scope.from_rows(lambda: read_phases(self._scope.db, self._scope.run_id))

    # -- phases -------------------------------------------------------------------------------------------------------

    async def _step_phases(self, rows: Mapping[str, RunPhaseRow]) -> Stop | None:
        """Run what can run now; `None` if there is more to do afterwards."""
        scope = self._scope
        done = {key for key, row in rows.items() if row.state in (RunPhaseState.COMPLETED, RunPhaseState.SKIPPED)}
        ready = [scope.template.phase(key) for key in scope.template.phases_ready(done)]
        if not ready:
            return Completed()
        # Reading phases run beside each other; one that writes has the workspace for itself.
        batch = [phase for phase in ready if phase.read_only] or ready[:1]
        outcomes = await self._run_all(batch, rows)
        for phase, outcome in outcomes.items():
            if isinstance(outcome, Exception):
                return Failed(error_facts(outcome), phase.key)
        waiting = [outcome for outcome in outcomes.values() if isinstance(outcome, Suspended)]
        return Paused(waiting) if waiting else None

    async def _run_all(self, batch: list[Phase], rows: Mapping[str, RunPhaseRow]) -> dict[Phase, BaseException | None]:
        self._scope.journal.writers += len(batch) - 1
        tasks = [asyncio.create_task(self._run_phase(phase, rows[phase.key])) for phase in batch]
        pending = set(tasks)
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_EXCEPTION)
                for error in [task.exception() for task in done]:
                    if error is not None and not isinstance(error, Exception | Suspended):
                        raise error  # the drive ends, whatever the others would come to
        finally:
            await cancel_within(pending, _END_S, again_s=_END_S / 2)
            self._scope.journal.writers -= len(batch) - 1
        return {phase: task.exception() for phase, task in zip(batch, tasks, strict=True)}

    async def _run_phase(self, phase: Phase, row: RunPhaseRow) -> None:
        """Bring a phase to its end, over as many attempts as it may have. Raises what it failed with at last."""
        history = self._scope.history
        is_under_way = row.state in (RunPhaseState.RUNNING, RunPhaseState.AWAITING_APPROVAL)
        last = max(row.attempt, history.last_attempt.get(phase.key, 0))
        attempt = max(row.attempt, 1) if is_under_way else last + 1
        comment = row.comment
        tries = 1 + history.failures[phase.key]
        while True:
            try:
                changes = await PhaseAttempt(self._scope, phase, attempt, comment).run()
            except StoreError as error:  # no failure of the phase: whoever goes on finds what was recorded
                raise Stopped(error) from error
            except Exception as error:
                is_final = isinstance(error, HoldfastError) and error.code in _NO_RETRY
                if tries >= phase.attempts or is_final:
                    await self._record_failure(phase, attempt, error)
                    raise
                comment = _to_retry_comment(comment, error)
                await self._reopen(phase, attempt, comment, error=error)
                tries += 1
            else:
                if changes is None:
                    return
                comment, tries = _to_changes_comment(changes), 1
                await self._reopen(phase, attempt, comment)
            attempt += 1

    async def _record_failure(self, phase: Phase, attempt: int, error: Exception) -> None:
        scope, facts = self._scope, error_facts(error)
        event = scope.log.event(
            EventKind.PHASE_FAILED, f"{phase.key}/{attempt}", phase=phase.key, attempt=attempt, error=facts
        )
        row = fail_phase(scope.run_id, phase.key, facts)
        # crash: the run is still running, and by its rows the phase opens a new attempt.
        await scope.log.append(event, rows=[row])

    async def _reopen(self, phase: Phase, attempt: int, comment: str, error: Exception | None = None) -> None:
        scope, lane = self._scope, f"{phase.key}/{attempt}"
        facts: dict[str, Any] = {"phase": phase.key, "attempt": attempt}
        reason = "changes" if error is None else "failure"
        events = [scope.log.event(EventKind.PHASE_REOPENED, lane, **facts, comment=comment, reason=reason)]
        if error is not None:
            failed = {"error": error_facts(error), "is_retried": True}
            events.insert(0, scope.log.event(EventKind.PHASE_FAILED, lane, **facts, **failed))
        row = reopen_phase(scope.run_id, phase.key, attempt=attempt, comment=comment)
        await scope.log.append(*events, rows=[row])


def _to_changes_comment(changes: ChangesRequested) -> str:
    return changes.comment or "A person asked for changes without a comment."


def _to_retry_comment(comment: str, error: Exception) -> str:
    """Tell the next attempt why this one failed. A person's comment still holds; of the failures the last is enough."""
    of_person = comment.partition(_FAILED_BEFORE)[0].strip()
    failure = f"{_FAILED_BEFORE} {error_facts(error)['message']}"
    return f"{of_person}\n\n{failure}" if of_person else failure
