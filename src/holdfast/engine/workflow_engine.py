"""The engine's verbs: run, resume, retry, abort, fork, decide. Each looks, claims, and lets a driver do the rest."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Unpack

from holdfast.agents.tools.shell import probe_once
from holdfast.artifact_schema import ArtifactSchemaRegistry
from holdfast.binding import BackendAvailability, Binding, PersonaConsentStore
from holdfast.config import Config
from holdfast.engine.approvals.decisions import check_action, check_open, decide_overdue, write_decision, write_top_up
from holdfast.engine.approvals.questions import UNSET, ApprovalDecision, to_question
from holdfast.engine.conversation.end import end_unchanged
from holdfast.engine.phase.artifact import check_edited
from holdfast.engine.results import RunResult
from holdfast.engine.run.binder import RunBinder, to_availability
from holdfast.engine.run.change import ChangeOptions, ChangeRequest, RunChange, write_change, write_unchanged
from holdfast.engine.run.create import RunOptions, RunOrder, RunRequest, new_run_id, write_new
from holdfast.engine.run.fork import Fork, ForkRequest, plan_fork
from holdfast.engine.run.job import JobWriter, job_of_new, job_of_run
from holdfast.engine.run.load import LoadedRun, RunId, check_not_over, get_run, read_result
from holdfast.engine.run.recovery import recover_runs
from holdfast.engine.run.restoration import RestoredFiles, restore_files
from holdfast.engine.run.start import DueStart, NewStart, ResumeStart, RetryStart, check_failed, stays_paused
from holdfast.engine.run.stop_request import see_cancelled, wait_until_paused
from holdfast.engine.run_owner import RunOwner
from holdfast.engine.scope import ApprovalCallback
from holdfast.enums import ApprovalDecisionAction, Backend, RiskLevel
from holdfast.errors import RunBusy
from holdfast.images import Image
from holdfast.persistence.admission import check_not_passed
from holdfast.persistence.db import Database
from holdfast.persistence.runs import find_approval
from holdfast.persona import AgentPersona
from holdfast.runtime.checkpoint.base import Claim, Statement
from holdfast.runtime.events import Event, EventKind, create_event
from holdfast.runtime.journal import Journal
from holdfast.runtime.step import SameCommit
from holdfast.workflow import WorkflowTemplate
from holdfast.workspace import SandboxProbe


class WorkflowEngine:
    """Runs workflows on repositories. Making one resumes nothing; each verb touches only the run it names."""

    jobs: JobWriter | None = None  # of runs that are made or answered here for others; none where no others drive

    def __init__(
        self,
        *,
        db: Database,
        config: Config,
        persona_pool: Iterable[AgentPersona],
        artifact_registry: ArtifactSchemaRegistry,
        consent_store: PersonaConsentStore | None = None,
        available_backends: BackendAvailability | Iterable[Backend] | None = None,
        approval_callback: ApprovalCallback | None = None,
        find_sandbox: Callable[[], SandboxProbe] = probe_once,
    ) -> None:
        self._db = db
        self._config = config
        personas = tuple(persona_pool)
        available = to_availability(available_backends)
        self._binder = RunBinder(config, personas, artifact_registry, consent_store, available)
        self._owner = RunOwner(db, config, personas, artifact_registry, approval_callback, find_sandbox)

    async def run(
        self,
        template: WorkflowTemplate,
        *,
        repo_path: str | Path,
        base_branch: str | None = "main",
        requirements_md: str = "",
        pre_allocated_run_id: RunId | None = None,
        persona_overrides: Mapping[str, str] | None = None,
        budget_usd: float | Decimal | None = None,
        title: str = "",
        started_by: str = "",
        is_unsandboxed: bool = False,
        images: Sequence[Image] = (),
        order: RunOrder = RunOrder(),  # noqa: B008 - frozen
    ) -> RunResult:
        """Start a run and drive it until it is over or waits. Raises, with nothing written, if it cannot start.

        It starts from `base_branch` as it is now; `None`: the one that is checked out. Every phase gets the `images`.
        With `is_unsandboxed` its commands run without a sandbox, and the journal says that `started_by` chose so.
        """
        request = RunRequest(
            template,
            repo_path=repo_path,
            base_branch=base_branch,
            requirements_md=requirements_md,
            pre_allocated_run_id=pre_allocated_run_id,
            persona_overrides=persona_overrides,
            budget_usd=budget_usd,
            title=title,
            started_by=started_by,
            is_unsandboxed=is_unsandboxed,
            images=images,
            order=order,
        )
        new = await self._binder.bind_new(request)
        async with self._owner.owning(new.run_id) as (journal, claim):
            await write_new(self._db, journal, claim, new, config=self._config)
            await self._owner.drive(journal, claim, NewStart())
        return await self.result(new.run_id)

    async def check(self, template: WorkflowTemplate, **options: Unpack[RunOptions]) -> None:
        """Raise what keeps a run from being made now, with nothing written; options as for `run`."""
        await self._binder.bind_new(RunRequest(template, **options))

    async def create(
        self,
        template: WorkflowTemplate,
        *,
        beside: Sequence[Statement] = (),
        then: Sequence[Event] = (),
        **options: Unpack[RunOptions],
    ) -> str:
        """Write a pending run, bound and ready to be driven by anyone, and return its id; options as for `run`.

        Rows `beside` it and the events that come `then` are written in the same transaction; if a row is refused, so is
        the run.
        """
        new = await self._binder.bind_new(RunRequest(template, **options))
        if new.order.due_at is not None:
            await check_not_passed(self._db, new.order.due_at)
        also = SameCommit(then, [*beside, *job_of_new(self.jobs, new.run_id, new.order)])
        async with self._owner.owning(new.run_id) as (journal, claim):
            await write_new(self._db, journal, claim, new, config=self._config, also=also)
        return new.run_id

    async def resume(
        self,
        run_id: RunId,
        *,
        accept_drift: bool = False,
        **change: Unpack[ChangeOptions],
    ) -> RunResult:
        """Go on with a run that is running without an owner, pending, or paused.

        With `accept_drift` what was recorded counts even if system prompt, tools or model are others by now. With other
        personas or requirements, as `change` has them, a phase under way with what is different starts a new attempt.

        Raises, in this order: `RunNotFound`, `RunAlreadyTerminal`, `RunMetadataMissing`, `TemplateLoadFailed`, then
        `RunBusy`.
        """
        await self.drive(run_id, accept_drift=accept_drift, **change)
        return await self.result(run_id)

    async def drive(self, run_id: RunId, *, accept_drift: bool = False, **change: Unpack[ChangeOptions]) -> None:
        """Do what `resume` does, and raise what it raises, without a look at where the run then stands."""
        loaded = await self._owner.load(run_id)
        async with self._owner.owning(loaded.run_id) as (journal, claim):
            if request := ChangeRequest(**change):
                await self._write_change(journal, claim, request)
            await self._go_on(journal, claim, ResumeStart(accept_drift))

    async def drive_due(self, run_id: str) -> None:
        """Do what `drive` does with a run that was just listed as due: that there is one need not be found out again.

        Raises `RunBusy` before what else `drive` raises, and `RunNotInState` if it was paused since.
        """
        async with self._owner.owning(run_id) as (journal, claim):
            await self._go_on(journal, claim, DueStart())

    async def _go_on(self, journal: Journal, claim: Claim, start: ResumeStart) -> None:
        await decide_overdue(self._db, journal, run_id=claim.run_id)
        await self._owner.drive(journal, claim, start)

    async def retry(
        self,
        run_id: RunId,
        **change: Unpack[ChangeOptions],
    ) -> RunResult:
        """Open a failed run again at the phase that failed, with other personas or requirements if they are given.

        Raises `RunNotInState` if it has not failed.
        """
        stored = await get_run(self._db, run_id)
        check_failed(stored)
        async with self._owner.owning(stored.run.id) as (journal, claim):
            if request := ChangeRequest(**change):
                await self._write_change(journal, claim, request, is_retry=True)
            await self._owner.drive(journal, claim, RetryStart())
        return await self.result(stored.run.id)

    async def change(
        self,
        run_id: RunId,
        *,
        is_retry: bool = False,
        beside: Sequence[Statement] = (),
        then: Sequence[Event] = (),
        **change: Unpack[ChangeOptions],
    ) -> RunChange:
        """Give a run other personas or requirements before it is resumed, or retried. The journal says who did.

        All of it is written or nothing, with rows `beside` it and the events that come `then`, also where those are all
        there is. Raises what `resume` (or `retry`) raises, `PersonaIneligible`, `ConsentRequired`.
        """
        stored = await get_run(self._db, run_id)
        request, also = ChangeRequest(**change), SameCommit(then, beside)
        if not request:
            await self._load_to_change(stored.run.id, is_retry=is_retry)
            async with self._owner.journal() as journal:
                return await write_unchanged(journal, stored.run.id, also)
        async with self._owner.owning(stored.run.id) as (journal, claim):
            return await self._write_change(journal, claim, request, is_retry=is_retry, also=also)

    async def restore_files(self, run_id: RunId, *, before: int, by: str = "") -> RestoredFiles:
        """Put a run's files back as they were before one of its events; a phase under way starts anew from them.

        What lay there is kept under a ref. Raises `RunBusy` while someone drives the run, `RunNotInState` if a phase
        was completed since, and what `resume` raises.
        """
        loaded = await self._owner.load(run_id)
        async with self._owner.owning(loaded.run_id) as (journal, claim):
            return await restore_files(self._owner, journal, claim, before=before, by=by)

    async def abort(self, run_id: RunId, reason: str = "", *, by: str = "") -> RunResult:
        """Cancel a run: here if nobody drives it, else by asking its owner and waiting for it to act."""
        stored = await get_run(self._db, run_id)
        check_not_over(stored)
        request = create_event(stored.run.id, EventKind.RUN_CANCEL_REQUESTED, reason=reason, by=by)
        async with self._owner.journal() as journal:
            (requested,) = await journal.append(stored.run.id, [request])
            # crash: the request stands; whoever drives the run next ends it.
            await see_cancelled(self._owner, journal, stored.run.id, after=requested.seq)
        return await self.result(stored.run.id)

    async def pause(self, run_id: RunId, *, by: str = "") -> RunResult:
        """Pause a run until it is resumed: here if nobody drives it, else by asking its owner and waiting for it."""
        stored = await get_run(self._db, run_id)
        check_not_over(stored)
        if not stays_paused(stored.run):
            request = create_event(stored.run.id, EventKind.RUN_PAUSE_REQUESTED, by=by)
            async with self._owner.journal() as journal:
                (requested,) = await journal.append(stored.run.id, [request])
                try:
                    await self._owner.pause(stored.run.id)
                except RunBusy:
                    await wait_until_paused(journal, stored.run.id, requested.seq)
        return await self.result(stored.run.id)

    async def end_conversation(self, run_id: RunId) -> RunResult:
        """Complete a conversation that has answered all and changed no file; any other stays as it is."""
        stored = await get_run(self._db, run_id)
        await end_unchanged(self._owner, stored.run.id)
        return await self.result(stored.run.id)

    async def fork(
        self,
        run_id: RunId,
        phase_key: str,
        *,
        title: str = "",
        started_by: str = "",
        **change: Unpack[ChangeOptions],
    ) -> RunResult:
        """Start a new run from the state before a phase, files included; the original stays as it is.

        Other personas, requirements and images count in the new run, from this phase on.
        """
        request = ForkRequest(phase_key, new_run_id(None), title, started_by)
        fork = await self._plan_fork(run_id, request, ChangeRequest(**change))
        async with self._owner.owning(fork.run_id) as (journal, claim):
            await journal.append(fork.run_id, fork.events, claim=claim, rows=fork.rows)
            await self._owner.drive(journal, claim, NewStart())
        return await self.result(fork.run_id)

    async def create_fork(
        self,
        run_id: RunId,
        phase_key: str,
        *,
        title: str = "",
        started_by: str = "",
        pre_allocated_run_id: RunId | None = None,
        beside: Sequence[Statement] = (),
        **change: Unpack[ChangeOptions],
    ) -> str:
        """Write a fork as a pending run, ready to be driven by anyone, and return its id; `beside` as for `create`."""
        request = ForkRequest(phase_key, new_run_id(pre_allocated_run_id), title, started_by)
        fork = await self._plan_fork(run_id, request, ChangeRequest(**change))
        async with self._owner.owning(fork.run_id) as (journal, claim):
            job = job_of_new(self.jobs, fork.run_id, fork.order)
            await journal.append(fork.run_id, fork.events, claim=claim, rows=[*fork.rows, *beside, *job])
        return fork.run_id

    async def _plan_fork(self, run_id: RunId, request: ForkRequest, change: ChangeRequest) -> Fork:
        loaded = await self._owner.load(run_id, may_be_over=True)
        bindings = self._binder.bind_changed(loaded, change)
        request = replace(request, bindings=bindings, change=change)
        return await plan_fork(self._db, self._config, loaded, request)

    async def decide(
        self,
        run_id: RunId,
        approval_id: str,
        action: ApprovalDecisionAction | str,
        comment: str = "",
        by: str = "",
        digest: str | None = None,
        *,
        is_identified: bool = False,
        result: Any = UNSET,
        args: Mapping[str, Any] | None = None,
        artifact: str | None = None,
        is_for_kind: bool = False,
        beside: Sequence[Statement] = (),
        then: Sequence[Event] = (),
    ) -> None:
        """Answer an approval; the first answer counts. Resume the run to go on.

        Of a call whose outcome is unknown, `approve` makes it again, `reject` fails its phase, and a `result` says that
        it was made and what it gave. A tool call is approved with other `args` if they are given, and with
        `is_for_kind` for every call of its kind in this run. A phase is approved with another text of its `artifact`,
        which must be valid by its schema (`ArtifactInvalid`). Raises `ApprovalNotFound` (unknown, another run's, or
        answered by someone faster) and `ApprovalStale`. If it is known who `by` is, a critical phase needs the approval
        of two different people: the first leaves it open, and the same person again is `SecondPersonNeeded`. `beside`
        and `then` are as for `create`; of an answer that leaves it open they are not written.
        """
        checked = check_action(action)
        stored = await get_run(self._db, run_id)
        await self.decide_overdue(stored.run.id)  # an answer after the deadline is too late
        row = check_open(await find_approval(self._db, str(approval_id)), stored.run.id, str(approval_id))
        loaded = await self._owner.load(stored.run.id)
        needs_two = is_identified and loaded.template.phase(row.phase_key).risk is RiskLevel.CRITICAL
        question = to_question(row, subject=await self._owner.find_subject(loaded, row.phase_key), needs_two=needs_two)
        answer = ApprovalDecision(checked, comment, by, digest, result, args, is_for_kind, artifact)
        question.check(answer)
        if artifact is not None:
            registry = self._owner.registry.with_pinned(loaded.schemas)
            await asyncio.to_thread(check_edited, artifact, loaded.template.phase(row.phase_key), registry)
        async with self._owner.journal() as journal:
            also = SameCommit(then, [*beside, *job_of_run(self.jobs, stored.run)])
            await write_decision(self._db, journal, question, answer, also=also)

    async def decide_overdue(self, run_id: str | None = None) -> list[str]:
        """Answer approvals whose deadline has passed with their template's default; the ids of the runs concerned."""
        async with self._owner.journal() as journal:
            return await decide_overdue(self._db, journal, run_id=run_id)

    async def top_up(
        self,
        run_id: RunId,
        amount_usd: float | Decimal,
        *,
        by: str = "",
        beside: Sequence[Statement] = (),
        then: Sequence[Event] = (),
    ) -> None:
        """Raise a run's budget. Resume the run to go on; `beside` and `then` as for `create`."""
        stored = await get_run(self._db, run_id)
        check_not_over(stored)
        async with self._owner.journal() as journal:
            await write_top_up(journal, stored.run.id, amount_usd, by=by, also=SameCommit(then, beside))

    async def recover(self) -> list[str]:
        """Drive every run that should be running and has no owner, all at once, in a program without a server.

        Returns their ids. Approvals whose deadline has passed are answered first. No other verb resumes runs by itself.
        """
        await self.decide_overdue()
        return await recover_runs(self._db, self.resume)

    def drain(self, run_id: str) -> bool:
        """Begin no more calls in a run that is driven here; true if one is in flight, which is worth waiting for."""
        return self._owner.drain(run_id)

    async def result(self, run_id: RunId) -> RunResult:
        """Read where a run stands now. Raises `RunNotFound`."""
        return await read_result(self._db, run_id)

    async def _write_change(
        self,
        journal: Journal,
        claim: Claim,
        change: ChangeRequest,
        *,
        is_retry: bool = False,
        also: SameCommit = SameCommit(),  # noqa: B008 - frozen
    ) -> RunChange:
        async def load() -> tuple[LoadedRun, Mapping[str, Binding]]:
            loaded = await self._load_to_change(claim.run_id, is_retry=is_retry)
            return loaded, self._binder.bind_changed(loaded, change)

        return await write_change(self._db, journal, claim, change, load=load, also=also)

    async def _load_to_change(self, run_id: str, *, is_retry: bool) -> LoadedRun:
        loaded = await self._owner.load(run_id, may_be_over=is_retry)
        if is_retry:
            check_failed(loaded.stored)
        return loaded
