"""Runs: list, start, look, delete. The verbs that move one are in `run/control.py`."""

import hashlib
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from holdfast.api.flow_schemas import FlowRunDetail
from holdfast.api.flow_serialize import to_flow_detail
from holdfast.api.http.auth import Admin, Operator, Viewer
from holdfast.api.http.openapi import READ, READ_ONE, WRITE, WRITE_ONE
from holdfast.api.http.problems import naming_fields
from holdfast.api.schemas import (
    IdempotencyKey,
    Kind,
    RunDetail,
    RunIdPath,
    RunPage,
    RunRef,
    ShortText,
    StartRun,
    TagQuery,
    Text,
)
from holdfast.api.serialize import RunRecord, to_detail
from holdfast.api.server.flow_requests import explain, find_driven, find_flow
from holdfast.api.server.run_page import BY_CREATION, begin, from_cursor, read_page
from holdfast.api.server.run_requests import start_run
from holdfast.api.server.server import ServerDep
from holdfast.engine.retention.cleanup import Skipped, remove_runs
from holdfast.engine.run.load import get_run
from holdfast.enums import RunStatus
from holdfast.errors import HoldfastError, RunBusy, RunNotInState, UnmergedResult
from holdfast.flows.answers import delete_in_journal
from holdfast.persistence.event_feed import needs_positions
from holdfast.persistence.listings import RunFilter
from holdfast.persistence.run_order import ListOrder
from holdfast.persistence.runs import read_approvals, read_artifacts, read_spent
from holdfast.persistence.statements import forget_positions
from holdfast.persistence.statements.table import to_time_text
from holdfast.runtime.flow_filter import FlowFilter

router = APIRouter(prefix="/api/runs", tags=["runs"])
_LAST_EVENTS = 20


@router.get("", responses=READ, summary="List runs")
async def list_runs(
    server: ServerDep,
    _identity: Viewer,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    state: Annotated[RunStatus | None, Query()] = None,
    kind: Annotated[Kind | None, Query(description="Only runs of workflows, or only those of flows.")] = None,
    workflow: Annotated[ShortText | None, Query()] = None,
    flow: Annotated[ShortText | None, Query()] = None,
    tag: TagQuery = None,
    text: Annotated[
        ShortText | None,
        Query(description="In the title or the requirements, or how its id begins; of a flow in its name, id or tags."),
    ] = None,
    repo: Annotated[Text | None, Query(max_length=4000, description="In the repository's path.")] = None,
    person: Annotated[ShortText | None, Query(description="Who started it.")] = None,
    since: Annotated[datetime | None, Query(description="Created then or later.")] = None,
    until: Annotated[datetime | None, Query(description="Created before.")] = None,
    order: Annotated[
        ListOrder, Query(description="Which come first; `longest` and `shortest` by how long they took.")
    ] = (ListOrder.NEWEST),
    cursor: Annotated[str | None, Query(max_length=1000, description="next_cursor of the page before.")] = None,
) -> RunPage:
    """List runs of workflows and of flows, the newest first unless another order is asked for.

    A filter, or an order by cost or time, that only one of both knows lists only that one. A cursor counts for the
    order it came with.
    """
    has_flows = kind != "workflow" and not (workflow or repo or person) and order in BY_CREATION
    has_workflows = kind != "flow" and not (flow or tag)
    status = None if state is None else state.value
    matching = RunFilter(status, workflow, text, repo, person, _to_row_time(since), _to_row_time(until))
    matching_flows = FlowFilter(status, flow, text, tag or (), _to_epoch(since), _to_epoch(until))
    return await read_page(
        server,
        matching if has_workflows else None,
        matching_flows if has_flows else None,
        limit=limit,
        places=from_cursor(cursor, order) if cursor else begin(order),
    )


def _to_epoch(at: datetime | None) -> float | None:
    return None if at is None else (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _to_row_time(at: datetime | None) -> str | None:
    return None if at is None else to_time_text(at if at.tzinfo else at.replace(tzinfo=UTC))


@router.post("", status_code=202, responses={**WRITE, **WRITE_ONE}, summary="Start a run")
async def start(
    body: StartRun,
    server: ServerDep,
    identity: Operator,
    idempotency_key: IdempotencyKey = None,
) -> RunRef:
    """Write the run and return at once; the server drives it. The same `Idempotency-Key` again gives the same run."""
    with naming_fields():
        run_id = await start_run(server, body, by=identity.name, key=idempotency_key)
    return RunRef(run_id=run_id, state=RunStatus.PENDING)


@router.get("/{run_id}", responses={**READ_ONE, 304: {"description": "Not changed."}}, summary="Look at a run")
async def show(run_id: RunIdPath, request: Request, server: ServerDep, identity: Viewer) -> RunDetail | FlowRunDetail:
    """Look at a run of a workflow or of a flow; `kind` says which it is."""
    if (row := await find_flow(server, run_id)) is not None:
        events = await server.journal.read(run_id)
        is_driven = run_id in await find_driven(server, [row])
        reason = await explain(server, row, is_driven=is_driven)
        return _with_etag(  # type: ignore[return-value]  # as below
            to_flow_detail(row, events, is_driven=is_driven, reason=reason, role=identity.role), request
        )
    known = await get_run(server.db, run_id)
    # The number before the rows: whoever follows the events from there misses nothing that the rows do not show.
    head = await server.journal.read_head(known.run.id)
    stored = await get_run(server.db, known.run.id)
    events = await server.journal.read(stored.run.id, max(0, head - _LAST_EVENTS))
    record = RunRecord(
        stored,
        artifacts=await read_artifacts(server.db, stored.run.id),
        approvals=await read_approvals(server.db, run_id=stored.run.id),
        spent=await read_spent(server.db, stored.run.id),
        events=[event for event in events if event.seq <= head],
    )
    trace = await server.traces.get(stored.run.id)
    detail = to_detail(record, reason=await server.explain(stored.run.id), trace=trace, role=identity.role)
    return _with_etag(detail, request)  # type: ignore[return-value]  # a response as it is; the schema is the document's


def _with_etag(detail: RunDetail | FlowRunDetail, request: Request) -> Response:
    body = detail.model_dump_json().encode(errors="replace")
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache, private"}
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if etag in known or known == ["*"]:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


class DeletedRun(BaseModel):
    run_id: str = Field(examples=["3f2a7c1e-0d4b-4a68-9f1e-5c2d8b7a6e90"])
    size_bytes: int = Field(description="About how much it took on disk and in the database.", examples=[412000])


@router.delete("/{run_id}", responses=WRITE_ONE, summary="Delete a run for good")
async def delete(
    run_id: RunIdPath,
    server: ServerDep,
    _identity: Admin,
    unmerged: Annotated[bool, Query(description="Also if its result is not merged; it is lost then.")] = False,
) -> DeletedRun:
    """Delete the journal, rows, files and refs of a run that is over. Branches of the user's are not touched.

    Refused while someone works on it, while it is not over, if another run was forked from it, and while the flow that
    began it is not over.
    """
    if await find_flow(server, run_id) is not None:
        rows = [forget_positions(run_id)] if needs_positions(server.db) else []
        return DeletedRun(run_id=run_id, size_bytes=await delete_in_journal(server.journal, run_id, rows=rows))
    stored = await get_run(server.db, run_id)
    done = await server.tasks.run_shielded(
        remove_runs(server.db, server.config, [stored.run.id], now=datetime.now(UTC), can_lose_unmerged=unmerged)
    )
    if stored.run.id not in done.deleted_runs:
        raise _to_error(stored.run.id, done.skipped)
    return DeletedRun(run_id=stored.run.id, size_bytes=done.size_bytes)


def _to_error(run_id: str, skipped: list[Skipped]) -> HoldfastError:
    message = f"Run {run_id} was not deleted: {'; '.join(item.reason for item in skipped)}."
    codes = {item.code for item in skipped}
    if "run_busy" in codes:
        return RunBusy(message, run_id=run_id)
    if "unmerged_result" in codes:
        return UnmergedResult(message, hint="Merge it first, or say `unmerged=true` to lose it.")
    return RunNotInState(message)
