"""What a request to start a run or to go on with one comes to: checks, then rows and events that say so."""

import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel

from holdfast.api.image_data import to_images
from holdfast.api.schemas import Decide, ForkRun, ResumeRun, RetryRun, StartRun, TopUp
from holdfast.api.server.server import Server
from holdfast.engine.approvals.questions import UNSET, to_question
from holdfast.engine.run.change import ChangeRequest
from holdfast.engine.run.create import RunOrder
from holdfast.engine.run.job import job_of_run
from holdfast.engine.run.load import get_run, load_run
from holdfast.engine.workflow_engine import WorkflowEngine
from holdfast.enums import PauseReason, RunStatus
from holdfast.errors import (
    ApprovalNotFound,
    IdempotencyKeyReused,
    RowRefused,
    RunBusy,
    RunNotInState,
    UnsandboxedNotAllowed,
)
from holdfast.fleet.job_rows import make_job_writer
from holdfast.persistence.access import find_answer, remember_answer
from holdfast.persistence.models import ApprovalRow, IdempotencyRow, RunRow
from holdfast.persistence.runs import StoredRun, find_approval
from holdfast.persistence.statements import ask_resume, ask_retry, set_wake, to_time_text
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.events import Event, EventKind, create_event
from holdfast.workspace.transfer.remotes import to_folder


@dataclass(frozen=True)
class RequestKey:
    """What makes two requests one: who sent them, their `Idempotency-Key`, and what they are about beside the body."""

    by: str
    key: str | None
    about: str = ""

    def to_hash(self, body: BaseModel) -> str:
        return hashlib.sha256((self.about + body.model_dump_json()).encode()).hexdigest()


class Maker(Protocol):
    """Writes a new run under this id, with these rows in the same transaction."""

    async def __call__(self, run_id: str, /, beside: Sequence[Statement]) -> object: ...


async def start_run(server: Server, body: StartRun, *, by: str, key: str | None = None) -> str:
    """Write a pending run and return its id; with a key that was used before, the id of the run it made then.

    Raises `RepositoryNotAllowed`, `UnsandboxedNotAllowed`, `IdempotencyKeyReused`, and whatever keeps a run from being
    made.
    """
    if body.unsandboxed and not server.config.allow_unsandboxed:
        raise UnsandboxedNotAllowed(
            "This server starts no run whose commands are without a sandbox.",
            hint="Start it with `holdfast run --unsandboxed`, or set allow_unsandboxed on the server.",
        )

    images = to_images(body.images)
    order = RunOrder(body.queue, body.priority, None if body.at is None else to_time_text(body.at))

    async def make(run_id: str, beside: Sequence[Statement]) -> None:
        repo = await server.engines.resolve_repository(body.repo_path)
        template, agreed = await server.engines.check_trust(
            repo.folder, body.workflow, is_simulated=body.simulate, overrides=body.persona_overrides
        )
        engine = await server.engines.for_repository(repo.folder, is_simulated=body.simulate, agreed=agreed)
        await engine.create(
            template,
            repo_path=repo.name,
            base_branch=body.base_branch,
            requirements_md=body.requirements_md,
            pre_allocated_run_id=run_id,
            persona_overrides=body.persona_overrides,
            budget_usd=body.budget_usd,
            title=body.title,
            started_by=by,
            is_unsandboxed=body.unsandboxed,
            images=images,
            order=order,
            beside=beside,
        )

    return await start_once(server, body, make, RequestKey(by, key))


async def fork_run(server: Server, run_id: str, body: ForkRun, *, by: str, key: str | None) -> str:
    """Write a fork as a pending run and return its id; raises what `WorkflowEngine.create_fork` raises."""
    stored = await get_run(server.db, run_id)
    change = to_change(body, by=by)
    engine = await _engine_for_change(server, stored, change)

    async def make(new_id: str, beside: Sequence[Statement]) -> None:
        await engine.create_fork(
            *(stored.run.id, body.phase_key),
            title=body.title,
            started_by=by,
            pre_allocated_run_id=new_id,
            beside=beside,
            persona_overrides=change.persona_overrides,
            requirements_md=change.requirements_md,
            images=change.images,
        )

    return await start_once(server, body, make, RequestKey(by, key, about=f"fork {stored.run.id}"))


async def top_up(server: Server, run_id: str, body: TopUp, *, by: str, key: str | None) -> StoredRun:
    """Raise a run's limit once for a key, and let it go on if it waits for that.

    Raises what `WorkflowEngine.top_up` raises.
    """
    stored = await get_run(server.db, run_id)
    engine = await server.engines.for_repository(None)
    is_waiting = stored.run.pause_reason == PauseReason.BUDGET
    resume = [_resume_requested(stored.run.id, by=by, verb="resume")] if is_waiting else []
    wake = _wake_rows(server, stored.run) if is_waiting else []

    async def make(_run_id: str, beside: Sequence[Statement]) -> None:
        await engine.top_up(stored.run.id, body.amount_usd, by=by, beside=[*beside, *wake], then=resume)

    request = RequestKey(by, key, about=f"top up {stored.run.id}")
    await start_once(server, body, make, request, run_id=stored.run.id)
    return stored


async def start_once(
    server: Server,
    body: BaseModel,
    make: Maker,
    request: RequestKey,
    *,
    run_id: str | None = None,
) -> str:
    """Make a run for a request and return its id, or that of the run that was made for it before under its key.

    `run_id` is the run that the request is about, if none is made. Raises `IdempotencyKeyReused`.
    """
    by, key = request.by, request.key
    request_hash = request.to_hash(body)
    if key is not None and (answer := await find_answer(server.db, by, key)) is not None:
        return _same(answer, request_hash)
    run_id = run_id or str(uuid.uuid4())
    try:
        key_row = () if key is None else (remember_answer(by, key, request_hash, run_id),)
        await make(run_id, key_row)
    except RowRefused:
        # Key and run are one transaction: if the same request was faster elsewhere, this one has written nothing.
        if key is None or (answer := await find_answer(server.db, by, key)) is None:
            raise
        return _same(answer, request_hash)
    server.wake()
    return run_id


def _same(answer: IdempotencyRow, request_hash: str) -> str:
    if answer.request_hash != request_hash:
        raise IdempotencyKeyReused(f"This key was used for another request, about run {answer.run_id}.")
    return answer.run_id


async def check_can_resume(server: Server, run_id: str) -> StoredRun:
    """Check what `WorkflowEngine.resume` does, and raise what it would, without a claim."""
    loaded = await load_run(server.db, run_id, ())
    run = loaded.stored.run
    owned = await server.journal.query(lambda store: store.find_owned([run.id]))
    if run.state == RunStatus.RUNNING and owned:
        raise RunBusy(f"Run {run_id} is being driven.", run_id=run_id)
    return loaded.stored


async def check_failed(server: Server, run_id: str) -> StoredRun:
    """Check that a run can be retried. Raises `RunNotFound`, `RunNotInState`."""
    stored = await get_run(server.db, run_id)
    if stored.run.state != RunStatus.FAILED:
        raise RunNotInState(
            f"Run {run_id} is {stored.run.state}; only a failed run is retried.",
            hint="Resume a run that is paused or was interrupted.",
        )
    return stored


async def request_resume(server: Server, run: RunRow, *, by: str, verb: str, **facts: Any) -> None:
    """Record who wants the run to go on, durably, and look at once whether somebody can drive it."""
    event = _resume_requested(run.id, by=by, verb=verb, **facts)
    await server.journal.append(run.id, [event], rows=_request_rows(server, run, verb))
    server.wake()


async def change_and_go_on(
    server: Server, stored: StoredRun, change: ChangeRequest, *, verb: str, **facts: Any
) -> None:
    """Change a run and record who wants it to go on, both or neither. Raises what `WorkflowEngine.change` raises."""
    if not change:
        await request_resume(server, stored.run, by=change.by, verb=verb, **facts)
        return
    engine = await _engine_for_change(server, stored, change)
    event = _resume_requested(stored.run.id, by=change.by, verb=verb, **facts)
    await engine.change(
        stored.run.id,
        persona_overrides=change.persona_overrides,
        requirements_md=change.requirements_md,
        images=change.images,
        by=change.by,
        is_retry=verb == "retry",
        then=[event],
        beside=_request_rows(server, stored.run, verb),
    )
    server.wake()


def to_change(body: ResumeRun | RetryRun | ForkRun, *, by: str) -> ChangeRequest:
    return ChangeRequest(body.persona_overrides, body.requirements_md, to_images(body.images), by)


async def _engine_for_change(server: Server, stored: StoredRun, change: ChangeRequest) -> WorkflowEngine:
    """Return an engine that knows the personas of the run's repository. Raises `ConsentRequired`."""
    if not change.persona_overrides:
        return await server.engines.for_repository(None)
    repo = await server.engines.resolve_repository(stored.run.repo_path)
    agreed = await server.engines.check_persona_trust(repo.folder, change.persona_overrides.values())
    is_simulated = bool(stored.run.is_simulated)
    return await server.engines.for_repository(repo.folder, is_simulated=is_simulated, agreed=agreed)


def _resume_requested(run_id: str, **facts: Any) -> Event:
    return create_event(run_id, EventKind.RUN_RESUME_REQUESTED, **facts)


def _request_rows(server: Server, run: RunRow, verb: str) -> list[Statement]:
    ask = ask_retry if verb == "retry" else ask_resume
    return [ask(run.id), *job_of_run(make_job_writer(server.db), run)]


def _wake_rows(server: Server, run: RunRow) -> list[Statement]:
    return [set_wake(run.id), *job_of_run(make_job_writer(server.db), run)]


async def write_and_wake(server: Server, run: RunRow, event: Event, beside: Sequence[Statement] = ()) -> int:
    """Append what somebody has to act on, see that somebody does, and return the event's number."""
    (stored,) = await server.journal.append(run.id, [event], rows=[*_wake_rows(server, run), *beside])
    server.wake()
    return stored.seq


async def decide(server: Server, approval_id: str, body: Decide, *, by: str, is_identified: bool) -> ApprovalRow:
    """Record an answer and wake the run. Raises what `WorkflowEngine.decide` raises."""
    row = _get(await find_approval(server.db, approval_id), approval_id)
    stored = await get_run(server.db, row.run_id)
    engine = await server.engines.for_repository(to_folder(stored.run.repo_path))
    await engine.decide(
        row.run_id,
        approval_id,
        body.action,
        comment=body.comment,
        by=by,
        digest=body.digest,
        is_identified=is_identified,
        result=body.result if _has_result(body, row) else UNSET,
        args=body.args,
        is_for_kind=body.allow_kind,
        artifact=None if body.artifact is None else to_artifact_text(body.artifact),
        # crash: the answer is there with the request and the job, or none of them; the engine writes the job.
        beside=[set_wake(stored.run.id)],
        then=[_resume_requested(stored.run.id, by=by, verb="resume")],
    )
    server.wake()
    return _get(await find_approval(server.db, approval_id), approval_id)


def to_artifact_text(artifact: dict[str, Any]) -> str:
    """Return an artifact as agents write it to its file."""
    return json.dumps(artifact, ensure_ascii=False, indent=2) + "\n"


def _has_result(body: Decide, row: ApprovalRow) -> bool:
    """Tell whether an answer brings a result; `null` is one only of a call that may have given it."""
    return "result" in body.model_fields_set and (body.result is not None or to_question(row).about == "outcome")


def _get(row: ApprovalRow | None, approval_id: str) -> ApprovalRow:
    if row is None:
        raise ApprovalNotFound(f"There is no approval {approval_id}.", hint="List the approvals to see what waits.")
    return row
