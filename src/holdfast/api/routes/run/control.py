"""The verbs that move a run: resume, retry, pause, abort, fork."""

from fastapi import APIRouter

from holdfast.api.http.auth import Operator
from holdfast.api.http.openapi import WRITE_ONE
from holdfast.api.schemas import AbortRun, ForkRun, IdempotencyKey, ResumeRun, RetryRun, RunIdPath, RunRef
from holdfast.api.server.flow_requests import (
    cancel,
    find_flow,
    fork_flow_run,
    refuse_flow,
    resume_flow_run,
    retry_flow_run,
)
from holdfast.api.server.run_requests import change_and_go_on, check_can_resume, check_failed, fork_run, to_change
from holdfast.api.server.server import ServerDep
from holdfast.engine.run.load import get_run
from holdfast.enums import RunStatus

router = APIRouter(prefix="/api/runs", tags=["runs"])


@router.post("/{run_id}/resume", status_code=202, responses=WRITE_ONE, summary="Go on with a run")
async def resume(run_id: RunIdPath, server: ServerDep, identity: Operator, body: ResumeRun | None = None) -> RunRef:
    """Resume a run; where other personas or requirements concern a phase under way, it starts a new attempt.

    A flow goes on by itself, unless it was paused because its processes died with it; it takes nothing else.
    """
    if await find_flow(server, run_id) is not None:
        return await resume_flow_run(server, run_id, body, by=identity.name)
    stored = await check_can_resume(server, run_id)
    body = body or ResumeRun()
    drift = {"accept_drift": True} if body.accept_drift else {}
    await change_and_go_on(server, stored, to_change(body, by=identity.name), verb="resume", **drift)
    return RunRef(run_id=stored.run.id, state=RunStatus(stored.run.state))


@router.post("/{run_id}/retry", status_code=202, responses=WRITE_ONE, summary="Open a failed run again")
async def retry(run_id: RunIdPath, server: ServerDep, identity: Operator, body: RetryRun | None = None) -> RunRef:
    """Open the run at the phase that failed, with other personas or requirements if they are given.

    A flow goes on at the step that failed, where its code is; it takes nothing else.
    """
    if await find_flow(server, run_id) is not None:
        return await retry_flow_run(server, run_id, body, by=identity.name)
    stored = await check_failed(server, run_id)
    await change_and_go_on(server, stored, to_change(body or RetryRun(), by=identity.name), verb="retry")
    return RunRef(run_id=stored.run.id, state=RunStatus(stored.run.state))


@router.post("/{run_id}/pause", status_code=202, responses=WRITE_ONE, summary="Pause a run until it is resumed")
async def pause(run_id: RunIdPath, server: ServerDep, identity: Operator) -> RunRef:
    await refuse_flow(server, run_id, "be paused")
    stored = await get_run(server.db, run_id)
    engine = await server.engines.for_repository(None)
    result = await engine.pause(stored.run.id, by=identity.name)
    return RunRef(run_id=stored.run.id, state=result.state)


@router.post("/{run_id}/abort", status_code=202, responses=WRITE_ONE, summary="End a run for good")
async def abort(run_id: RunIdPath, server: ServerDep, identity: Operator, body: AbortRun | None = None) -> RunRef:
    reason = body.reason if body else ""
    if await find_flow(server, run_id) is not None:
        return await cancel(server, run_id, reason, by=identity.name)
    stored = await get_run(server.db, run_id)
    engine = await server.engines.for_repository(None)
    result = await engine.abort(stored.run.id, reason, by=identity.name)
    return RunRef(run_id=stored.run.id, state=result.state)


@router.post("/{run_id}/fork", status_code=202, responses=WRITE_ONE, summary="Start a new run from before a phase")
async def fork(
    run_id: RunIdPath, body: ForkRun, server: ServerDep, identity: Operator, idempotency_key: IdempotencyKey = None
) -> RunRef:
    """Start a fork; other personas or requirements count in it, and the original is untouched.

    The same `Idempotency-Key` again gives the same fork. Of a flow `phase_key` is the key of a step, and nothing else
    counts.
    """
    if await find_flow(server, run_id) is not None:
        return await fork_flow_run(server, run_id, body, key=idempotency_key)
    forked = await fork_run(server, run_id, body, by=identity.name, key=idempotency_key)
    return RunRef(run_id=forked, state=RunStatus.PENDING)
