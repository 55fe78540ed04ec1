"""Approvals: what waits for a person, and their answers."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from holdfast.api.http.auth import Approver, Viewer
from holdfast.api.http.openapi import READ, WRITE_ONE
from holdfast.api.schemas import ApprovalIdPath, ApprovalList, Decide, Decided, ServerDep
from holdfast.api.serialize import to_approval
from holdfast.api.server.run_requests import decide
from holdfast.persistence.runs import list_waiting, read_approvals

router = APIRouter(prefix="/api/approvals", tags=["approvals"])


@router.get("", responses=READ, summary="What waits for a person")
async def list_approvals(
    server: ServerDep, _identity: Viewer, state: Annotated[Literal["pending", "decided", "all"], Query()] = "pending"
) -> ApprovalList:
    if state == "pending":
        rows = await list_waiting(server.db)
    else:
        rows = await read_approvals(server.db, state=None if state == "all" else state)
    return ApprovalList(items=[to_approval(row) for row in rows])


@router.post("/{approval_id}", responses=WRITE_ONE, summary="Answer an approval")
async def answer(approval_id: ApprovalIdPath, body: Decide, server: ServerDep, identity: Approver) -> Decided:
    """Record an answer. The first one counts, and the run goes on with it; a critical phase needs two people."""
    row = await decide(server, approval_id, body, by=identity.name, is_identified=identity.is_person)
    return Decided(approval_id=row.id, run_id=row.run_id, state=row.state, action=row.action)
