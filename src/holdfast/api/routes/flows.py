"""Flows: the runs of durable functions in this server's store, what they ask, and their end."""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from holdfast.api.flow_schemas import AnswerFlow, FlowAnswered, FlowDetail, FlowIdPath, FlowItem, FlowList
from holdfast.api.http.auth import Approver, Operator, Viewer
from holdfast.api.http.openapi import READ, READ_ONE, WRITE_ONE
from holdfast.api.schemas import AbortRun, RunRef, ShortText
from holdfast.api.server.server import Server, ServerDep
from holdfast.enums import RunStatus
from holdfast.errors import ApprovalStale, RunNotFound
from holdfast.fleet.stillness import explain_flow
from holdfast.flows.answers import cancel_flow, decide
from holdfast.flows.service.handle import FlowHandle
from holdfast.presentation.flow_run import to_wire, view_flow
from holdfast.runtime import flow_rows
from holdfast.runtime.flow_rows import FlowRow

router = APIRouter(prefix="/api/flows", tags=["flows"])


@router.get("", responses=READ, summary="List flow runs")
async def list_flows(
    server: ServerDep,
    _identity: Viewer,
    state: Annotated[RunStatus | None, Query()] = None,
    flow: Annotated[ShortText | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> FlowList:
    """List the newest first."""
    status = None if state is None else state.value
    rows = await server.journal.query(lambda store: flow_rows.read_rows(store, status=status, flow=flow, limit=limit))
    return FlowList(items=[FlowItem(**facts) for facts in await _to_facts(server, rows)])


@router.get("/{run_id}", responses=READ_ONE, summary="One flow run: steps, values, waits")
async def get_flow(run_id: FlowIdPath, server: ServerDep, _identity: Viewer) -> FlowDetail:
    row = await server.journal.query(lambda store: flow_rows.read_row(store, run_id))
    if row is None:
        raise RunNotFound(f"There is no flow run {run_id!r}.", run_id=run_id)
    (facts,) = await _to_facts(server, [row])
    view = to_wire(view_flow(run_id, await server.journal.read(run_id)))
    if server.flows is not None:
        reason = server.flows.find_reason(run_id)
    else:
        reason = await explain_flow(server.db, row, is_owned=facts["is_driven"])
    return FlowDetail(**{**view, **facts, "reason": reason})


@router.post("/{run_id}/answer", responses=WRITE_ONE, summary="Answer what a flow asks")
async def answer_flow(run_id: FlowIdPath, body: AnswerFlow, server: ServerDep, identity: Approver) -> FlowAnswered:
    """Record an answer. The first one counts, and whoever drives the flow goes on with it."""
    store = server.journal.store
    await _check_digest(server, run_id, body)
    await decide(run_id, body.key, body.action, store=store, comment=body.comment, by=identity.name, result=body.result)
    return FlowAnswered(run_id=run_id, key=body.key, action=body.action)


@router.post("/{run_id}/abort", status_code=202, responses=WRITE_ONE, summary="Cancel a flow run")
async def abort_flow(run_id: FlowIdPath, server: ServerDep, identity: Operator, body: AbortRun | None = None) -> RunRef:
    """Cancel it at once if nobody drives it, else as soon as its owner sees the request."""
    store = server.journal.store
    await cancel_flow(run_id, store=store, reason=body.reason if body else "", by=identity.name)
    return RunRef(run_id=run_id, state=await FlowHandle[Any](run_id, store).status())


async def _check_digest(server: Server, run_id: str, body: AnswerFlow) -> None:
    """Raise `ApprovalStale` if the answer is about something else than is asked now."""
    if body.digest is None:
        return
    view = view_flow(run_id, await server.journal.read(run_id))
    digests = [question.digest for question in view.questions if question.key == body.key]
    if digests and body.digest not in digests:
        raise ApprovalStale(
            f"What {body.key!r} of run {run_id} shows has changed.", hint="Look at it again, then answer."
        )


async def _to_facts(server: Server, rows: list[FlowRow]) -> list[dict[str, Any]]:
    owned = await server.journal.query(lambda store: store.find_owned([row.run_id for row in rows]))
    return [{**to_wire(row), "state": row.status, "is_driven": row.run_id in owned} for row in rows]
