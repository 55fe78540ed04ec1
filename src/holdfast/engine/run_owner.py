"""How a process gets at a run: open its journal, claim it, read what it was made from, and drive or end it.

Rule: whoever claims looks again. What was read before the claim may have been true of another owner's run.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from holdfast.agents.tools.shell import ENDED_WITH_LEASE, probe_once
from holdfast.artifact_schema import ArtifactSchemaRegistry
from holdfast.config import Config
from holdfast.engine.approvals.questions import Subject
from holdfast.engine.conversation.driver import ConversationDriver
from holdfast.engine.history import History
from holdfast.engine.phase.attempt import current_subject
from holdfast.engine.phase.commands import (
    forget_earlier_commands,
    stop_commands,
    stop_left_commands,
    stop_unfenced_commands,
)
from holdfast.engine.report import Reported, write_report
from holdfast.engine.run.carrier import open_carrier
from holdfast.engine.run.driver import RunDriver
from holdfast.engine.run.load import LoadedRun, RunId, check_not_over, get_run, load_run
from holdfast.engine.run.start import DriveStart, stays_paused
from holdfast.engine.run.stop import pause_crashing, pause_for_person
from holdfast.engine.run.workspace import check_files_of_place, open_files
from holdfast.engine.scope import ApprovalCallback, RunScope
from holdfast.enums import RunStatus
from holdfast.errors import HoldfastError, LeaseLost, RunMetadataMissing, RunWaits, StoreUnavailable, TemplateLoadFailed
from holdfast.persistence.admission import admit
from holdfast.persistence.carried_files import find_base
from holdfast.persistence.db import Database
from holdfast.persistence.runs import StoredRun
from holdfast.persistence.statements import end_run
from holdfast.persona import AgentPersona
from holdfast.runtime.checkpoint.base import Claim
from holdfast.runtime.events import Event, EventKind, create_event
from holdfast.runtime.journal import Journal
from holdfast.runtime.outcomes.crashes import RunCrashing, find_crash_loop
from holdfast.runtime.records import Records
from holdfast.runtime.run_log import RunLog
from holdfast.runtime.step import CancelRun, Stopped
from holdfast.runtime.stores import open_journal
from holdfast.workspace import SandboxProbe, find_place, lease_folder, open_workspace

_LEASE_LOOK_S = 0.5


@dataclass(frozen=True)
class RunOwner:
    """What it takes to own any run of a database; it holds a run only inside `owning`."""

    db: Database
    config: Config
    personas: tuple[AgentPersona, ...]
    registry: ArtifactSchemaRegistry
    approval_callback: ApprovalCallback | None
    find_sandbox: Callable[[], SandboxProbe] = probe_once
    logs: dict[str, RunLog] = field(default_factory=dict)
    """Of the runs that are driven now."""

    @contextlib.asynccontextmanager
    async def journal(self) -> AsyncIterator[Journal]:
        async with open_journal(self.db.store) as journal:
            yield journal

    @contextlib.asynccontextmanager
    async def owning(self, run_id: str) -> AsyncIterator[tuple[Journal, Claim]]:
        """Hold the run inside. What stops its log inside is raised as the error that it was."""
        async with self.journal() as journal:
            claim = await journal.claim(run_id)
            try:
                if (leases := journal.store.leases) is not None:
                    await asyncio.to_thread(leases.show, lease_folder(self.config.data_dir), [run_id])
                yield journal, claim
            except Stopped as stopped:
                raise stopped.error from stopped.error.__cause__
            finally:
                await journal.release(claim)

    async def load(self, run_id: RunId, *, may_be_over: bool = False) -> LoadedRun:
        return await load_run(self.db, run_id, self.personas, may_be_over=may_be_over)

    async def drive(self, journal: Journal, claim: Claim, start: DriveStart) -> None:
        """Begin the run in this way, and drive it to its next stop."""
        if (crashing := find_crash_loop(claim)) is not None:
            await self._pause_crashing(journal, claim, start, crashing)
            return
        loaded = await self.load(claim.run_id, may_be_over=start.may_be_over)
        events = await journal.read(claim.run_id)
        scope = self.scope(journal, claim, loaded, events)
        scope.log.row_source = scope.packer = await open_carrier(scope)
        driver = (ConversationDriver if scope.is_conversation else RunDriver)(scope)
        if scope.log.records.cancel_request is not None:
            await driver.cancel()
            return
        start.check(loaded.stored)
        if (crashing := find_crash_loop(claim, events)) is not None:
            await self._pause_crashing(journal, claim, start, crashing)
            return
        if (waits_for := await admit(self.db, claim)) is not None:
            raise RunWaits(waits_for, run_id=claim.run_id)
        if start.opens_files:
            check_files_of_place(scope)
            await open_files(scope)  # raises before anything is written: the run stays as it is
        await stop_left_commands(scope)
        await forget_earlier_commands(scope)
        scope.log.records.pause_request = None  # that someone goes on is a newer word than a pause asked for before
        try:
            await start.write(scope, loaded.stored)
        except CancelRun:  # it was asked for while nobody listened yet
            await driver.cancel()
            return
        await self._drive_while_owned(scope, driver)

    async def _pause_crashing(self, journal: Journal, claim: Claim, start: DriveStart, crashing: RunCrashing) -> None:
        """Let a person look first, without reading what the run is made of: its owners may have died of that."""
        stored = await get_run(self.db, claim.run_id)
        if not start.may_be_over:
            check_not_over(stored)
        start.check(stored)
        events, rows = pause_crashing(stored, crashing)
        await journal.append(claim.run_id, events, claim=claim, rows=rows)

    async def _drive_while_owned(self, scope: RunScope, driver: RunDriver) -> None:
        """Drive, and end the run's commands as soon as it is heard that another process has it: it runs its own."""
        task = asyncio.current_task()
        assert task is not None
        lost: list[HoldfastError] = []

        def give_up(error: HoldfastError) -> None:
            lost.append(error)
            scope.log.stop(error)
            task.cancel()

        def on_loss() -> None:
            give_up(LeaseLost(f"Run {scope.run_id!r} was taken over by another process.", run_id=scope.run_id))

        async def give_up_unfenced() -> None:
            await _wait_until_unfenced(scope)
            give_up(StoreUnavailable(ENDED_WITH_LEASE))

        self.logs[scope.run_id] = scope.log
        watching = asyncio.create_task(give_up_unfenced())
        try:
            with scope.journal.watching_for_loss(scope.log.claim, on_loss):
                await driver.drive()
        except asyncio.CancelledError:
            if not lost or task.uncancel() > 0:
                if scope.journal.has_leases:  # it is given up, and another machine may begin at once
                    await stop_unfenced_commands(scope)
                raise
            if isinstance(lost[0], LeaseLost):
                await stop_commands(scope)
            else:
                await stop_unfenced_commands(scope)
            raise Stopped(lost[0]) from None
        except Stopped as stopped:
            if isinstance(stopped.error, LeaseLost):
                await stop_commands(scope)
            raise
        finally:
            watching.cancel()
            self.logs.pop(scope.run_id, None)

    def drain(self, run_id: str) -> bool:
        """Begin no more calls in a run that is driven here; true if one is in flight, which is worth waiting for."""
        log = self.logs.get(run_id)
        if log is not None:
            log.drain()
        return log is not None and log.has_call_in_flight

    async def cancel(self, run_id: str) -> None:
        """End a run whose request to cancel stands in its journal, even if what it was made from cannot be read."""
        async with self.owning(run_id) as (journal, claim):
            stored = await get_run(self.db, run_id)
            check_not_over(stored)
            events = await journal.read(run_id)
            try:
                loaded = await self.load(run_id)
            except (RunMetadataMissing, TemplateLoadFailed):
                await self._cancel_unreadable(journal, claim, stored, Records(events))
                return
            await RunDriver(self.scope(journal, claim, loaded, events)).cancel()

    async def _cancel_unreadable(self, journal: Journal, claim: Claim, stored: StoredRun, records: Records) -> None:
        """End a run that can never go on; its report tells what the rows still say."""
        request = records.cancel_request or {}
        payload = {"reason": request.get("reason", ""), "by": request.get("by", "")}
        # crash: as at every end, the report may be there without it; the request to cancel still stands.
        written = await write_report(Reported.of_rows(self.db, self.config, stored), RunStatus.CANCELLED, payload)
        rows = [end_run(claim.run_id, RunStatus.CANCELLED, report_path=str(written.path), error=None), written.row]
        event = create_event(claim.run_id, EventKind.RUN_CANCELLED, report=str(written.path), **payload)
        await journal.append(claim.run_id, [event], claim=claim, rows=rows)

    async def pause(self, run_id: str) -> None:
        """Pause a run that nobody drives until a person resumes it."""
        async with self.owning(run_id) as (journal, claim):
            loaded = await self.load(run_id)
            if stays_paused(loaded.stored.run):
                return  # its owner was faster
            await pause_for_person(self.scope(journal, claim, loaded, await journal.read(run_id)))

    def scope(self, journal: Journal, claim: Claim, loaded: LoadedRun, events: list[Event]) -> RunScope:
        return RunScope(
            db=self.db,
            config=self.config,
            registry=self.registry.with_pinned(loaded.schemas),
            approval_callback=self.approval_callback,
            journal=journal,
            log=RunLog(journal, claim, Records(events)),
            history=History.of(events),
            run=loaded.stored.run,
            template=loaded.template,
            personas=loaded.personas,
            find_sandbox=self.find_sandbox,
        )

    async def find_subject(self, loaded: LoadedRun, phase_key: str) -> Subject | None:
        """Return what the approval is about by what lies in the workspace; `None` if that cannot be seen from here."""
        base = await find_base(self.db, loaded.run_id)
        return await asyncio.to_thread(self._find_subject, loaded, phase_key, base.place if base is not None else "")

    def _find_subject(self, loaded: LoadedRun, phase_key: str, place: str) -> Subject | None:
        try:
            if place not in ("", find_place(self.config.data_dir).data):
                return None  # the run works elsewhere; what lies here is from before
            workspace = open_workspace(self.config.data_dir, loaded.run_id)
            phase = loaded.template.phase(phase_key)
            return current_subject(
                workspace, phase, loaded.template, self.registry.with_pinned(loaded.schemas), loaded.stored.run
            )
        except (HoldfastError, KeyError, OSError):
            return None


async def _wait_until_unfenced(scope: RunScope) -> None:
    """Wait until this process has not heard for a whole lease that the run is its own, and a command runs that another
    machine may begin again from then on. Never returns where runs are held without leases."""
    leases, lease_s = scope.journal.store.leases, scope.journal.store.lease_s
    silent_since: float | None = None
    while True:
        await asyncio.sleep(_LEASE_LOOK_S)
        if leases is None or lease_s is None or leases.is_holding:
            silent_since = None
            continue
        # It is known to hold for two thirds of a lease after each renewal.
        silent_since = silent_since or time.monotonic()
        is_over = time.monotonic() - silent_since >= lease_s / 3
        if is_over and scope.history.unfenced:
            return
