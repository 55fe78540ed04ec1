"""The engine's verbs: run, resume, retry, abort, fork, decide. Each looks, claims, and lets a driver do the rest."""

import asyncio
import contextlib
import math
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from holdfast.artifact_schema import ArtifactSchemaRegistry
from holdfast.binding import BackendAvailability, PersonaConsentStore, bind_personas
from holdfast.config import Config
from holdfast.engine.approvals import check_action, check_fresh, check_open, decision
from holdfast.engine.creation import NewRun, creation_rows
from holdfast.engine.phase import current_subject
from holdfast.engine.results import PhaseResult, RunError, RunResult
from holdfast.engine.runner import RunDriver
from holdfast.engine.scope import ApprovalCallback, RunScope
from holdfast.enums import ApprovalDecisionAction, Backend, RunPhaseState, RunStatus
from holdfast.errors import (
    ApprovalNotFound,
    ConfigInvalid,
    HoldfastError,
    RowRefused,
    RunAlreadyTerminal,
    RunBusy,
    RunMetadataMissing,
    RunNotFound,
    RunNotInState,
    TemplateLoadFailed,
)
from holdfast.persistence.db import Database
from holdfast.persistence.models import RunPhaseRow
from holdfast.persistence.rows import now_text
from holdfast.persistence.runs import (
    StoredRun,
    find_approval,
    find_run,
    list_orphans,
    read_artifacts,
    read_spent,
)
from holdfast.persona import AgentPersona
from holdfast.runtime.checkpoint.base import Claim, Statement
from holdfast.runtime.durable import RunLog
from holdfast.runtime.events import Event, EventKind, create_event
from holdfast.runtime.journal import Journal
from holdfast.runtime.records import Records
from holdfast.runtime.stores import open_journal
from holdfast.workflow import WorkflowTemplate, check_schemas
from holdfast.workspace import open_workspace

RunId = UUID | str


@dataclass(frozen=True)
class _Loaded:
    """A stored run whose parts could all be read."""

    stored: StoredRun
    template: WorkflowTemplate
    personas: Mapping[str, AgentPersona]


class WorkflowEngine:
    """Runs workflows on repositories. Making one resumes nothing; each verb touches only the run it names."""

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
    ) -> None:
        self._db = db
        self._config = config
        self._personas = tuple(persona_pool)
        self._registry = artifact_registry
        self._consent = consent_store
        self._available = _to_availability(available_backends)
        self._callback = approval_callback

    # -- verbs --------------------------------------------------------------------------------------------------------

    async def run(
        self,
        template: WorkflowTemplate,
        *,
        repo_path: str | Path,
        base_branch: str = "main",
        requirements_md: str = "",
        pre_allocated_run_id: RunId | None = None,
        persona_overrides: Mapping[str, str] | None = None,
        budget_usd: float | Decimal | None = None,
        title: str = "",
        started_by: str = "",
    ) -> RunResult:
        """Start a run and drive it until it is over or waits. Raises, with nothing written, if it cannot start."""
        run_id = await self.create(
            template,
            repo_path=repo_path,
            base_branch=base_branch,
            requirements_md=requirements_md,
            pre_allocated_run_id=pre_allocated_run_id,
            persona_overrides=persona_overrides,
            budget_usd=budget_usd,
            title=title,
            started_by=started_by,
        )
        return await self._drive(run_id, _begin_new)

    async def create(
        self,
        template: WorkflowTemplate,
        *,
        repo_path: str | Path,
        base_branch: str = "main",
        requirements_md: str = "",
        pre_allocated_run_id: RunId | None = None,
        persona_overrides: Mapping[str, str] | None = None,
        budget_usd: float | Decimal | None = None,
        title: str = "",
        started_by: str = "",
    ) -> str:
        """Write a pending run, bound and ready to be driven by anyone, and return its id."""
        path = Path(repo_path).expanduser().absolute()
        if not path.is_dir():
            raise ConfigInvalid(
                f"{path} is no folder.", hint="Name a repository or a folder with files.", key="repo_path"
            )
        check_schemas(template, self._registry)
        bindings = bind_personas(
            template, self._personas, self._available, overrides=persona_overrides, consent_store=self._consent
        )
        limit = budget_usd if budget_usd is not None else self._config.run_budget_usd
        new = NewRun(
            run_id=str(pre_allocated_run_id or uuid.uuid4()),
            template=template,
            bindings=bindings,
            repo_path=str(path),
            base_branch=base_branch,
            requirements_md=requirements_md,
            budget_micros=None if limit is None else round(Decimal(str(limit)) * 1_000_000),
            title=title,
            started_by=started_by,
        )
        await self._write_new(new)
        return new.run_id

    async def resume(self, run_id: RunId) -> RunResult:
        """Go on with a run that is running without an owner, pending, or paused.

        Raises, in this order: `RunNotFound`, `RunAlreadyTerminal`, `RunMetadataMissing`, `TemplateLoadFailed`, then
        `RunBusy`.
        """
        loaded = await self._load(str(run_id))
        if loaded.stored.run.state == RunStatus.PENDING:
            return await self._drive(str(run_id), _begin_new)
        return await self._drive(str(run_id), _begin_resumed)

    async def retry(self, run_id: RunId) -> RunResult:
        """Open a failed run again at the phase that failed. Raises `RunNotInState` if it has not failed."""
        stored = await self._get(str(run_id))
        if stored.run.state != RunStatus.FAILED:
            raise RunNotInState(
                f"Run {run_id} is {stored.run.state}; only a failed run is retried.",
                hint="Resume a run that is paused or was interrupted.",
            )
        return await self._drive(str(run_id), _begin_retried)

    async def abort(self, run_id: RunId, reason: str = "", *, by: str = "") -> RunResult:
        """Cancel a run: here if nobody drives it, else by asking its owner and waiting for it to act."""
        stored = await self._get(str(run_id))
        _check_not_over(stored)
        async with self._journal() as journal:
            request = create_event(str(run_id), EventKind.RUN_CANCEL_REQUESTED, reason=reason, by=by)
            await journal.append(str(run_id), [request])
            # crash: the request stands; whoever drives the run next ends it.
            try:
                await self._drive(str(run_id), None)
            except RunBusy:
                await self._wait_until_over(journal, str(run_id))
        return await self.result(run_id)

    async def pause(self, run_id: RunId, *, by: str = "") -> RunResult:
        """Pause a run until it is resumed: here if nobody drives it, else by asking its owner and waiting for it to act."""
        stored = await self._get(str(run_id))
        _check_not_over(stored)
        if stored.run.state == RunStatus.PAUSED:
            return await self.result(run_id)
        async with self._journal() as journal:
            request = create_event(str(run_id), EventKind.RUN_PAUSE_REQUESTED, by=by)
            await journal.append(str(run_id), [request])
            try:
                await self._pause_here(journal, str(run_id))
            except RunBusy:
                await self._wait_until_over(journal, str(run_id), or_paused_after=request.ts)
        return await self.result(run_id)

    async def _pause_here(self, journal: Journal, run_id: str) -> None:
        async with _claimed(journal, run_id) as claim:
            scope = self._scope(journal, claim, await self._load(run_id), Records(await journal.read(run_id)))
            await RunDriver(scope).pause_for_person()

    async def fork(self, run_id: RunId, phase_key: str, *, title: str = "", started_by: str = "") -> RunResult:
        """Start a new run from the state before a phase, files included; the original stays as it is."""
        from holdfast.engine.forking import fork_run

        loaded = await self._load(str(run_id), may_be_over=True)
        new_id = await fork_run(
            self._db,
            self._config,
            loaded.stored,
            loaded.template,
            phase_key,
            write=self._append_as_owner,
            personas=loaded.personas,
            title=title,
            started_by=started_by,
        )
        return await self._drive(new_id, _begin_new)

    async def decide(
        self,
        run_id: RunId,
        approval_id: str,
        action: ApprovalDecisionAction | str,
        comment: str = "",
        by: str = "",
        digest: str | None = None,
    ) -> None:
        """Answer an approval; the first answer counts. Resume the run to go on.

        Raises `ApprovalNotFound` (unknown, another run's, or answered by someone faster) and `ApprovalStale`.
        """
        checked = check_action(action)
        row = check_open(await find_approval(self._db, approval_id), str(run_id), approval_id)
        loaded = await self._load(str(run_id))
        subject = await asyncio.to_thread(self._subject_now, loaded, row.phase_key)
        check_fresh(row, digest, subject)
        async with self._journal() as journal:
            records = Records(await journal.read(str(run_id)))
            key = _key_of(records, approval_id)
            lane = f"{row.phase_key}/{row.attempt}"
            event, rows = decision(str(run_id), approval_id, key, lane, checked, comment=comment, by=by)
            try:
                await journal.append(str(run_id), [event], rows=rows)
            except RowRefused:
                check_open(await find_approval(self._db, approval_id), str(run_id), approval_id)
                raise

    async def top_up(self, run_id: RunId, amount_usd: float | Decimal, *, by: str = "") -> None:
        """Raise a run's budget. Resume the run to go on."""
        amount = round(Decimal(str(amount_usd)) * 1_000_000)
        if amount <= 0:
            raise ConfigInvalid("A top-up is more than 0 dollars.", key="amount_usd")
        _check_not_over(await self._get(str(run_id)))
        event = create_event(str(run_id), EventKind.BUDGET_RAISED, amount_micros=amount, by=by)
        raised = Statement(
            "UPDATE runs SET budget_micros = budget_micros + :amount WHERE id = :id AND budget_micros IS NOT NULL",
            {"amount": amount, "id": str(run_id)},
            expect=None,
        )
        async with self._journal() as journal:
            await journal.append(str(run_id), [event], rows=[raised])

    async def recover(self) -> list[str]:
        """Drive every run that should be running and has no owner, all at once; returns their ids.

        Called by `serve` and `worker` at their start and every few seconds; nothing else resumes runs by itself.
        """
        recovered: list[str] = []

        async def try_one(run_id: str) -> None:
            with contextlib.suppress(RunBusy, RunAlreadyTerminal):
                await self.resume(run_id)
                recovered.append(run_id)

        await asyncio.gather(*(try_one(run_id) for run_id in await list_orphans(self._db)))
        return recovered

    async def result(self, run_id: RunId) -> RunResult:
        """Where a run stands now. Raises `RunNotFound`."""
        stored = await self._get(str(run_id))
        accepted = {
            row.phase_key: row.path for row in await read_artifacts(self._db, str(run_id)) if row.state == "accepted"
        }
        spent = await read_spent(self._db, str(run_id))
        return RunResult(
            run_id=_to_uuid(stored.run.id),
            state=RunStatus(stored.run.state),
            error=RunError.from_row(stored.run.error),
            phases=tuple(_to_phase_result(row, accepted) for row in stored.phases.values()),
            final_report_path=stored.run.final_report_path,
            cost_micros=spent.total_micros,
            waiting_for=stored.run.pause_reason,
        )

    # -- inside -------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _journal(self) -> AsyncIterator[Journal]:
        async with open_journal(self._db.store) as journal:
            yield journal

    async def _get(self, run_id: str) -> StoredRun:
        stored = await find_run(self._db, run_id)
        if stored is None:
            raise RunNotFound(f"There is no run {run_id}.", run_id=run_id)
        return stored

    async def _load(self, run_id: str, *, may_be_over: bool = False) -> _Loaded:
        """Read a run and everything it was bound to; the checks come in the order that the contract gives."""
        stored = await self._get(run_id)
        if not may_be_over:
            _check_not_over(stored)
        if not stored.bindings:
            raise RunMetadataMissing(f"Run {run_id} has no bindings.", hint="Start a new run.", run_id=run_id)
        template = _load_template(stored)
        missing = [role.id for role in template.roles if role.id not in stored.bindings]
        if missing:
            raise RunMetadataMissing(f"Run {run_id} has no binding for {', '.join(missing)}.", hint="Start a new run.")
        return _Loaded(stored, template, {role: self._persona(stored, role) for role in stored.bindings})

    def _persona(self, stored: StoredRun, role_id: str) -> AgentPersona:
        binding, row = stored.bindings[role_id]
        if row is not None and isinstance(row.definition, dict):
            with contextlib.suppress(ValidationError):
                return AgentPersona.model_validate(row.definition)
        for persona in self._personas:
            if persona.content_hash == binding.persona_hash or (row is not None and persona.name == row.name):
                return persona
        raise RunMetadataMissing(
            f"The persona of role {role_id} in run {stored.run.id} cannot be read.", hint="Start a new run."
        )

    async def _write_new(self, new: NewRun) -> None:
        if await find_run(self._db, new.run_id) is not None:
            raise RunNotInState(f"There is a run {new.run_id} already.", hint="Resume it, or take another id.")
        created = create_event(new.run_id, EventKind.RUN_CREATED, **new.created_facts())
        await self._append_as_owner(new.run_id, [created], creation_rows(new))

    async def _append_as_owner(self, run_id: str, events: list[Event], rows: list[Statement]) -> None:
        async with self._journal() as journal, _claimed(journal, run_id) as claim:
            await journal.append(run_id, events, claim=claim, rows=rows)

    async def _drive(self, run_id: str, begin: Any) -> RunResult:
        """Claim a run, say how it begins (`None`: it does not, it is only to be ended), and drive it."""
        async with self._journal() as journal, _claimed(journal, run_id) as claim:
            loaded = await self._load(run_id, may_be_over=begin is _begin_retried)
            scope = self._scope(journal, claim, loaded, Records(await journal.read(run_id)))
            scope.log.records.pause_request = None  # this is the person's, or a worker's, newer word
            if begin is not None and scope.log.records.cancel_request is None:
                await begin(scope, loaded.stored)
            await RunDriver(scope).drive()
        return await self.result(run_id)

    def _scope(self, journal: Journal, claim: Claim, loaded: _Loaded, records: Records) -> RunScope:
        return RunScope(
            db=self._db,
            config=self._config,
            registry=self._registry,
            approval_callback=self._callback,
            journal=journal,
            log=RunLog(journal, claim, records),
            run=loaded.stored.run,
            template=loaded.template,
            personas=loaded.personas,
        )

    def _subject_now(self, loaded: _Loaded, phase_key: str) -> Any:
        """What the approval is about by what lies in the workspace; `None` if that cannot be seen from here."""
        try:
            workspace = open_workspace(self._config.data_dir, loaded.stored.run.id)
            scope = self._scope(None, Claim(loaded.stored.run.id, 0, 0), loaded, Records())  # type: ignore[arg-type]
            scope.workspace = workspace
            return current_subject(scope, loaded.template.phase(phase_key))
        except (HoldfastError, KeyError):
            return None

    async def _wait_until_over(self, journal: Journal, run_id: str, *, or_paused_after: float = math.inf) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(10):
                async for event in journal.follow(run_id):
                    if event.is_terminal or (event.kind == EventKind.RUN_PAUSED and event.ts >= or_paused_after):
                        return


@contextlib.asynccontextmanager
async def _claimed(journal: Journal, run_id: str) -> AsyncIterator[Claim]:
    claim = await journal.claim(run_id)
    try:
        yield claim
    finally:
        await journal.release(claim)


async def _begin_new(scope: RunScope, stored: StoredRun) -> None:
    row = scope.set_run(state=RunStatus.RUNNING, started_at=now_text())
    await scope.log.append(scope.log.event(EventKind.RUN_STARTED), rows=[row])


async def _begin_resumed(scope: RunScope, stored: StoredRun) -> None:
    skipped = [
        scope.log.event(EventKind.PHASE_SKIPPED, f"{key}/{row.attempt}", phase=key)
        for key, row in stored.phases.items()
        if row.state == RunPhaseState.COMPLETED
    ]
    row = scope.set_run(state=RunStatus.RUNNING, pause_reason=None)
    resumed = scope.log.event(EventKind.RUN_RESUMED, after=stored.run.state)
    await scope.log.append(resumed, *skipped, rows=[row])


async def _begin_retried(scope: RunScope, stored: StoredRun) -> None:
    rows = [
        scope.set_phase(key, state=RunPhaseState.PENDING, error=None)
        for key, row in stored.phases.items()
        if row.state == RunPhaseState.FAILED
    ]
    rows.append(scope.set_run(state=RunStatus.RUNNING, error=None, ended_at=None, final_report_path=None))
    skipped = [
        scope.log.event(EventKind.PHASE_SKIPPED, f"{key}/{row.attempt}", phase=key)
        for key, row in stored.phases.items()
        if row.state == RunPhaseState.COMPLETED
    ]
    await scope.log.append(scope.log.event(EventKind.RUN_RESUMED, after="failed"), *skipped, rows=rows)
    scope.run.error = None


def _check_not_over(stored: StoredRun) -> None:
    if stored.run.state in (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED):
        hint = "Retry it to open it again at the phase that failed." if stored.run.state == RunStatus.FAILED else ""
        raise RunAlreadyTerminal(f"Run {stored.run.id} is {stored.run.state}.", hint=hint, run_id=stored.run.id)


def _load_template(stored: StoredRun) -> WorkflowTemplate:
    try:
        if stored.template is None:
            raise ValueError("its row is missing")
        return WorkflowTemplate.model_validate(stored.template.definition)
    except (ValidationError, ValueError) as error:
        raise TemplateLoadFailed(
            f"The stored template of run {stored.run.id} cannot be read: {str(error).splitlines()[0]}.",
            hint="Restore the database from a backup, or start a new run.",
            run_id=stored.run.id,
        ) from error


def _key_of(records: Records, approval_id: str) -> str:
    for record in records.by_key.values():
        if record.type == "approval" and record.result == approval_id:
            return record.key
    raise ApprovalNotFound(f"Approval {approval_id} is not in the journal of its run.")


def _to_phase_result(row: RunPhaseRow, accepted: Mapping[str, str]) -> PhaseResult:
    artifact = accepted.get(row.phase_key) if row.state == RunPhaseState.COMPLETED else None
    return PhaseResult(row.phase_key, RunPhaseState(row.state), row.attempt, artifact, RunError.from_row(row.error))


def _to_availability(given: BackendAvailability | Iterable[Backend] | None) -> BackendAvailability:
    if isinstance(given, BackendAvailability):
        return given
    return BackendAvailability(available_backends=frozenset(given or ()))


def _to_uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        return uuid.uuid5(uuid.NAMESPACE_OID, text)
