"""Flows: the runs of durable functions in this server's store, what they ask, and their end."""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from holdfast.api.flow_schemas import AnswerFlow, FlowAnswered, FlowDetail, FlowIdPath, FlowItem, FlowList
from holdfast.api.http.auth import Approver, Operator, Viewer
from holdfast.api.http.openapi import READ, READ_ONE, WRITE_ONE
from holdfast.api.schemas import AbortRun, RunRef, ShortText, TagQuery
from holdfast.api.server.flow_requests import answer_flow, cancel, explain, find_driven, find_flow
from holdfast.api.server.server import Server, ServerDep
from holdfast.enums import RunStatus
from holdfast.errors import RunNotFound
from holdfast.presentation.flow_run import describe_flow_now, to_wire, view_flow
from holdfast.runtime import flow_rows
from holdfast.runtime.flow_filter import FlowFilter
from holdfast.runtime.flow_rows import FlowRow

router = APIRouter(prefix="/api/flows", tags=["flows"])


@router.get("", responses=READ, summary="List flow runs")
async def list_flows(
    server: ServerDep,
    _identity: Viewer,
    state: Annotated[RunStatus | None, Query()] = None,
    flow: Annotated[ShortText | None, Query()] = None,
    tag: TagQuery = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> FlowList:
    """List the newest first."""
    matching = FlowFilter(None if state is None else state.value, flow, tags=tag or ())
    rows = await server.journal.query(lambda store: flow_rows.read_page(store, matching, limit=limit))
    return FlowList(items=[FlowItem(**facts) for facts in await _to_facts(server, rows)])


@router.get("/{run_id}", responses=READ_ONE, summary="One flow run: steps, values, waits")
async def get_flow(run_id: FlowIdPath, server: ServerDep, _identity: Viewer) -> FlowDetail:
    row = await find_flow(server, run_id)
    if row is None:
        raise RunNotFound(f"There is no flow run {run_id!r}.", run_id=run_id)
    (facts,) = await _to_facts(server, [row])
    events = await server.journal.read(run_id)
    more = {"reason": await explain(server, row, is_driven=facts["is_driven"]), "seq": events[-1].seq if events else 0}
    return FlowDetail(**{**to_wire(view_flow(run_id, events)), **facts, **more})


@router.post("/{run_id}/answer", responses=WRITE_ONE, summary="Answer what a flow asks")
async def answer(run_id: FlowIdPath, body: AnswerFlow, server: ServerDep, identity: Approver) -> FlowAnswered:
    """Record an answer. The first one counts, and whoever drives the flow goes on with it."""
    said = {"comment": body.comment, "by": identity.name, "result": body.result}
    await answer_flow(server, run_id, body.key, body.action, digest=body.digest, **said)
    return FlowAnswered(run_id=run_id, key=body.key, action=body.action)


@router.post("/{run_id}/abort", status_code=202, responses=WRITE_ONE, summary="Cancel a flow run")
async def abort_flow(run_id: FlowIdPath, server: ServerDep, identity: Operator, body: AbortRun | None = None) -> RunRef:
    """Cancel it at once if nobody drives it, else as soon as its owner sees the request."""
    return await cancel(server, run_id, body.reason if body else "", by=identity.name)


async def _to_facts(server: Server, rows: list[FlowRow]) -> list[dict[str, Any]]:
    driven, failures = await find_driven(server, rows), await server.flow_failures.describe(rows)
    listed = [{**to_wire(row), "state": row.status, "is_driven": row.run_id in driven} for row in rows]
    return [{**facts, "now": describe_flow_now(facts) or failures.get(facts["run_id"], "")} for facts in listed]
