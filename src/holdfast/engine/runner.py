"""Driving one run under one claim: workspace, set-up, phases by their graph, and the run's end.

Rule: rows choose what comes next, the journal says what was already done in it. Both change in the same transaction.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.engine.budget import BudgetPause
from holdfast.engine.phase import ChangesRequested, PhaseAttempt, run_command
from holdfast.engine.report import write_report
from holdfast.engine.scope import RunScope, error_facts, utc_now
from holdfast.enums import RunPhaseState, RunStatus
from holdfast.errors import ChecksFailed, HoldfastError, WorkspaceError
from holdfast.persistence.models import RunPhaseRow
from holdfast.persistence.rows import insert, now_text
from holdfast.persistence.runs import read_phases
from holdfast.runtime.durable import Beside, CancelRun, Step, StepKinds, Stopped, Suspended
from holdfast.runtime.events import EventKind
from holdfast.runtime.watching import CancelWatch, watch_for_cancel
from holdfast.workflow import Phase
from holdfast.workspace import copy_files, open_workspace, prepare_workspace, restore

_PREPARED = StepKinds(completed=EventKind.WORKSPACE_PREPARED)
_SETUP_LANE = "setup"


class RunDriver:
    """One process's part of a run: from claim to the next stop, whichever that is."""

    def __init__(self, scope: RunScope) -> None:
        self._scope = scope
        self._watch = CancelWatch()

    async def drive(self) -> RunStatus:
        """Go on until the run is over or waits. Raises `LeaseLost` and store errors; then it is resumable."""
        try:
            with watch_for_cancel(self._scope.journal, self._scope.log) as self._watch:
                return await self._go()
        except CancelRun as request:
            return await self._end_cancelled(request.reason, request.by)
        except Stopped as stopped:
            raise stopped.error from stopped.error.__cause__
        except asyncio.CancelledError:
            if not self._watch.is_asked:
                raise  # a shutdown gives the run up as it is: running, for whoever is next
            asked = self._scope.log.records.cancel_request or {}
            return await self._end_cancelled(asked.get("reason", ""), asked.get("by", ""))

    async def _go(self) -> RunStatus:
        scope = self._scope
        if scope.run.error:
            return await self._end_failed(dict(scope.run.error))
        try:
            await self._prepare()
            phases = await self._complete_rows()
            while (state := await self._step_phases(phases)) is None:
                phases = await read_phases(scope.db, scope.run_id)
            return state
        except Suspended as suspended:
            return await self._pause(suspended)
        except (WorkspaceError, ChecksFailed) as error:
            return await self._end_failed(error_facts(error))

    # -- before the first phase ---------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        """The workspace as the run left it, or new; set-up and copies done once."""
        scope = self._scope
        origin = scope.run.forked_from
        workspace = await asyncio.to_thread(
            prepare_workspace,
            Path(scope.run.repo_path),
            data_dir=scope.config.data_dir,
            run_id=scope.run_id,
            base_branch=scope.run.base_branch,
            base_commit=scope.run.base_commit,
            forked_from=open_workspace(scope.config.data_dir, origin) if origin else None,
        )
        scope.workspace = workspace
        facts = {"root": str(workspace.root), "branch": workspace.branch, "base_commit": workspace.base_commit}
        row = scope.set_run(worktree_root=str(workspace.root), base_commit=workspace.base_commit)
        step = Step("workspace", _SETUP_LANE, kinds=_PREPARED, beside_result=lambda _result: Beside(rows=[row]))
        await scope.log.step(step, lambda: facts)
        tree = await self._last_tree()
        if workspace.is_rebuilt and tree:
            await asyncio.to_thread(restore, workspace, tree, at=utc_now())
        if scope.template.copy_files:
            await asyncio.to_thread(copy_files, workspace, scope.template.copy_files)
        for number, argv in enumerate(scope.template.setup, 1):
            result = await run_command(scope, _SETUP_LANE, f"command{number}", list(argv))
            if result["exit_code"] != 0:
                raise ChecksFailed(
                    f"The set-up command {' '.join(argv)!r} ended with {result['outcome']}.",
                    hint="Its output is in the journal; mend the cause, then retry the run.",
                )

    async def _last_tree(self) -> str | None:
        """The files as they were last recorded: by a mutating tool, a snapshot, or the start of a phase."""
        for event in reversed(await self._scope.journal.read(self._scope.run_id)):
            result = event.payload.get("result")
            told = result.get("tree") if isinstance(result, dict) else None
            if tree := told or event.payload.get("tree"):
                return str(tree)
        return None

    async def _complete_rows(self) -> Mapping[str, RunPhaseRow]:
        """Every phase of the template has a row; a run that was made elsewhere may lack some."""
        scope = self._scope
        phases = await read_phases(scope.db, scope.run_id)
        missing = [
            insert(
                "run_phases", {"run_id": scope.run_id, "phase_key": phase.key, "state": "pending", "position": place}
            )
            for place, phase in enumerate(scope.template.phases)
            if phase.key not in phases
        ]
        if missing:
            await scope.log.append(scope.log.event(EventKind.STATE_DELTA, delta={}, added=len(missing)), rows=missing)
            phases = await read_phases(scope.db, scope.run_id)
        return phases

    # -- phases -------------------------------------------------------------------------------------------------------

    async def _step_phases(self, rows: Mapping[str, RunPhaseRow]) -> RunStatus | None:
        """Run what can run now; `None` if there is more to do afterwards."""
        scope = self._scope
        done = {key for key, row in rows.items() if row.state in (RunPhaseState.COMPLETED, RunPhaseState.SKIPPED)}
        ready = [scope.template.phase(key) for key in scope.template.phases_ready(done)]
        if not ready:
            return await self._end_completed()
        # Reading phases run beside each other; one that writes has the workspace for itself.
        batch = [phase for phase in ready if phase.read_only] or ready[:1]
        outcomes = await self._run_all(batch, rows)
        for phase, outcome in outcomes.items():
            if isinstance(outcome, Exception):
                return await self._end_failed(error_facts(outcome), phase)
        for outcome in outcomes.values():
            if isinstance(outcome, BaseException):
                raise outcome
        return None

    async def _run_all(self, batch: list[Phase], rows: Mapping[str, RunPhaseRow]) -> dict[Phase, BaseException | None]:
        self._scope.journal.writers += len(batch) - 1
        tasks = [asyncio.create_task(self._run_phase(phase, rows[phase.key])) for phase in batch]
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        finally:
            self._scope.journal.writers -= len(batch) - 1
        errors = [task.exception() for task in tasks]
        for kind in (Stopped, CancelRun):  # these end the drive whatever the others came to
            for error in errors:
                if isinstance(error, kind):
                    raise error
        return dict(zip(batch, errors, strict=True))

    async def _run_phase(self, phase: Phase, row: RunPhaseRow) -> None:
        """Bring a phase to its end, over as many attempts as it may have. Raises what it failed with at last."""
        is_under_way = row.state in (RunPhaseState.RUNNING, RunPhaseState.AWAITING_APPROVAL)
        attempt = max(row.attempt, 1) if is_under_way else row.attempt + 1
        comment = row.comment
        tries = 1
        while True:
            try:
                changes = await PhaseAttempt(self._scope, phase, attempt, comment).run()
            except Exception as error:
                is_final = isinstance(error, HoldfastError) and error.code in _NO_RETRY
                if tries >= phase.attempts or is_final:
                    await self._record_failure(phase, attempt, error)
                    raise
                comment = f"The attempt before failed. {error_facts(error)['message']}"
                await self._reopen(phase, attempt, comment, error=error)
                tries += 1
            else:
                if changes is None:
                    return
                comment = _joined(changes)
                await self._reopen(phase, attempt, comment)
            attempt += 1

    async def _record_failure(self, phase: Phase, attempt: int, error: Exception) -> None:
        scope, facts = self._scope, error_facts(error)
        event = scope.log.event(
            EventKind.PHASE_FAILED, f"{phase.key}/{attempt}", phase=phase.key, attempt=attempt, error=facts
        )
        rows = [
            scope.set_phase(phase.key, state=RunPhaseState.FAILED, ended_at=now_text(), error=facts),
            # crash: the run is not failed yet, but whoever resumes it finds why it must be.
            scope.set_run(error=facts),
        ]
        await scope.log.append(event, rows=rows)

    async def _reopen(self, phase: Phase, attempt: int, comment: str, error: Exception | None = None) -> None:
        scope, lane = self._scope, f"{phase.key}/{attempt}"
        events = [scope.log.event(EventKind.PHASE_REOPENED, lane, phase=phase.key, attempt=attempt, comment=comment)]
        if error is not None:
            facts = error_facts(error)
            failed = scope.log.event(
                EventKind.PHASE_FAILED, lane, phase=phase.key, attempt=attempt, error=facts, is_retried=True
            )
            events.insert(0, failed)
        row = scope.set_phase(phase.key, state=RunPhaseState.PENDING, attempt=attempt, comment=comment)
        await scope.log.append(*events, rows=[row])

    # -- the end, or a pause ------------------------------------------------------------------------------------------

    async def _pause(self, suspended: Suspended) -> RunStatus:
        scope, log = self._scope, self._scope.log
        reason = "budget" if isinstance(suspended, BudgetPause) else "approval"
        events = [log.event(EventKind.RUN_PAUSED, reason=reason, waiting=str(suspended))]
        if isinstance(suspended, BudgetPause):
            events.insert(0, log.event(EventKind.BUDGET_EXHAUSTED, message=str(suspended)))
        await log.append(*events, rows=[scope.set_run(state=RunStatus.PAUSED, pause_reason=reason)])
        return RunStatus.PAUSED

    async def _end_completed(self) -> RunStatus:
        return await self._end(RunStatus.COMPLETED, EventKind.RUN_COMPLETED)

    async def _end_failed(self, facts: dict[str, Any], phase: Phase | None = None) -> RunStatus:
        told = {"phase": phase.key} if phase else {}
        return await self._end(RunStatus.FAILED, EventKind.RUN_FAILED, error=facts, **told)

    async def _end_cancelled(self, reason: str, by: str) -> RunStatus:
        self._scope.log.records.cancel_request = None  # it is being answered: appending must not stumble over it
        return await self._end(RunStatus.CANCELLED, EventKind.RUN_CANCELLED, reason=reason, by=by)

    async def _end(self, state: RunStatus, kind: EventKind, **told: Any) -> RunStatus:
        scope = self._scope
        # crash: the report may be there without the end; whoever resumes writes it anew.
        path = await write_report(scope, state, told)
        values: dict[str, Any] = {
            "state": state,
            "ended_at": now_text(),
            "final_report_path": str(path),
            "pause_reason": None,
            "error": told.get("error"),
        }
        try:
            await scope.log.append(scope.log.event(kind, report=str(path), **told), rows=[scope.set_run(**values)])
        except Stopped as stopped:
            raise stopped.error from None
        return state


_NO_RETRY = {"approval_rejected", "payload_invalid", "config_invalid", "nondeterminism", "backend_unavailable"}


def _joined(changes: ChangesRequested) -> str:
    return changes.comment or "A person asked for changes without a comment."
