"""Approvals: what waits for a person, what it would change, and their answers."""

import asyncio
import glob
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from holdfast.api.flow_serialize import to_flow_approval
from holdfast.api.http.auth import Approver, Viewer
from holdfast.api.http.openapi import READ, READ_ONE, WRITE_ONE
from holdfast.api.results import (
    Changes,
    find_artifact,
    read_stored_patch,
    read_trees,
    to_changes,
    to_comparison,
)
from holdfast.api.schemas import ApprovalIdPath, ApprovalItem, ApprovalList, Decide, Decided
from holdfast.api.serialize import cursor_error, from_cursor, to_approval, to_cursor
from holdfast.api.server.flow_questions import AskingFlow
from holdfast.api.server.flow_requests import decide_by_id
from holdfast.api.server.run_requests import decide
from holdfast.api.server.server import Server, ServerDep
from holdfast.engine.run.load import get_run
from holdfast.errors import ApprovalNotFound, ArtifactNotFound
from holdfast.persistence.models import ApprovalRow
from holdfast.persistence.runs import find_approval, list_approvals_page, list_waiting, read_artifacts
from holdfast.presentation.artifact_document import ArtifactDocument, to_document
from holdfast.workspace import find_cut
from holdfast.workspace.diff import PatchLook

router = APIRouter(prefix="/api/approvals")


@router.get("", tags=["approvals"], responses=READ, summary="What waits for a person")
async def list_approvals(
    server: ServerDep,
    _identity: Viewer,
    state: Annotated[Literal["pending", "decided", "all"], Query()] = "pending",
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(max_length=1000, description="next_cursor of the page before.")] = None,
) -> ApprovalList:
    """List what is pending with the oldest first, and otherwise the newest first; also what flows ask."""
    after = from_cursor(cursor) if cursor else None
    if state == "pending":
        found = [to_approval(row) for row in await list_waiting(server.db, limit=limit + 1, after=after)]
        found += [item for item in await _list_open_of_flows(server) if after is None or _to_place(item) > after]
        found.sort(key=_to_place)
    else:
        rows = await list_approvals_page(
            server.db, state=None if state == "all" else state, limit=limit + 1, after=after
        )
        of_flows = await _list_answered_of_flows(server, limit=limit + 1, after=after)
        of_flows += await _list_open_of_flows(server) if state == "all" else []
        found = [to_approval(row) for row in rows]
        found += [item for item in of_flows if after is None or _to_place(item) < after]
        found.sort(key=_to_place, reverse=True)
    page = found[:limit]
    return ApprovalList(items=page, next_cursor=to_cursor(*_to_place(page[-1])) if len(found) > limit else None)


def _to_place(approval: ApprovalItem) -> tuple[str, str]:
    return approval.requested_at, approval.approval_id


async def _list_open_of_flows(server: Server) -> list[ApprovalItem]:
    return [_to_item(each) for each in await server.flow_questions.list_open()]


async def _list_answered_of_flows(server: Server, *, limit: int, after: tuple[str, str] | None) -> list[ApprovalItem]:
    # A place has milliseconds; what was asked within that one is looked at by its name.
    before = {} if after is None else {"before": _to_epoch_s(after[0]) + 0.001}
    while True:
        found = [_to_item(each) for each in await server.flow_questions.list_answered(limit=limit, **before)]
        is_all, page = len(found) < limit, [item for item in found if after is None or _to_place(item) < after]
        if is_all or len(page) >= limit:
            return page
        limit *= 2  # many of one millisecond


def _to_epoch_s(time_text: str) -> float:
    try:
        return datetime.fromisoformat(time_text).timestamp()
    except (ValueError, OverflowError) as error:
        raise cursor_error() from error


def _to_item(asking: AskingFlow) -> ApprovalItem:
    return to_flow_approval(asking.row.run_id, asking.row.flow, asking.question)


@router.post("/{approval_id:path}", tags=["approvals"], responses=WRITE_ONE, summary="Answer an approval")
async def answer(approval_id: ApprovalIdPath, body: Decide, server: ServerDep, identity: Approver) -> Decided:
    """Record an answer. The first one counts, and the run goes on with it; a critical phase needs two people.

    An approval of a flow is called by its run and key, `RUN:KEY`.
    """
    if ":" in approval_id and (decided := await decide_by_id(server, approval_id, body, by=identity.name)) is not None:
        return decided
    row = await decide(server, approval_id, body, by=identity.name, is_identified=identity.is_person)
    return Decided(approval_id=row.id, run_id=row.run_id, state=row.state, action=row.action)


@router.get(
    "/{approval_id}/changes",
    tags=["results"],
    responses=READ_ONE,
    summary="What is to be approved, as a difference",
    operation_id="list_asked_changes_api_approvals__approval_id__changes_get",  # as generated clients know it
)
async def list_approval_changes(
    approval_id: ApprovalIdPath,
    server: ServerDep,
    _identity: Viewer,
    of: Annotated[
        Literal["files", "asked", "answer"],
        Query(
            description="All `files` since the last accepted state, or what changed since it was `asked` the first "
            "time, or since the last `answer` refused it."
        ),
    ] = "files",
    since: Annotated[
        int | None, Query(ge=1, le=10_000, description="The artifact, compared with this attempt's.")
    ] = None,
) -> Changes:
    row = await _get_approval(server, approval_id)
    subject = _read_subject(row)
    if since is None:
        since_answer = subject.get("since_answer") or {}
        patches = {"files": subject.get("diff"), "asked": subject.get("diff_since"), "answer": since_answer.get("diff")}
        patch = str(patches[of] or "")
        if of == "files" and find_cut(patch):
            patch = await _read_whole(server, row, subject) or patch
        own = [glob.escape(str(subject.get("artifact") or ""))]
        return await asyncio.to_thread(to_changes, patch, own, is_split=False)
    before = find_artifact(await read_artifacts(server.db, row.run_id), row.phase_key, since)
    if before is None:
        raise ArtifactNotFound(f"Phase {row.phase_key} handed nothing in at attempt {since}.")
    return await asyncio.to_thread(to_comparison, before.path, before.content, str(subject.get("content") or ""))


@router.get(
    "/{approval_id}/document",
    tags=["results"],
    responses=READ_ONE,
    summary="The artifact to be approved, taken apart for reading",
)
async def read_approval_document(approval_id: ApprovalIdPath, server: ServerDep, _identity: Viewer) -> ArtifactDocument:
    row = await _get_approval(server, approval_id)
    content = str(_read_subject(row).get("content") or "")
    artifact = find_artifact(await read_artifacts(server.db, row.run_id), row.phase_key, row.attempt)
    # A long one is kept with the question only in part; whole it is in the artifact, if that is still the same.
    is_whole = artifact is not None and artifact.content.startswith(content)
    text = artifact.content if artifact is not None and is_whole else content
    return await asyncio.to_thread(to_document, artifact.schema_id if artifact is not None else "", text)


async def _read_whole(server: Server, row: ApprovalRow, subject: Mapping[str, Any]) -> str | None:
    """Read the whole change of which a part is kept with the question; nothing if its files are others by now."""
    stored = await get_run(server.db, row.run_id)
    trees = await read_trees(server, stored)
    if trees.get(row.phase_key) != (subject.get("subject") or {}).get("tree"):
        return None
    return await asyncio.to_thread(
        read_stored_patch, server, stored, trees, row.phase_key, with_own=True, look=PatchLook(has_renames=True)
    )


async def _get_approval(server: Server, approval_id: str) -> ApprovalRow:
    row = await find_approval(server.db, approval_id)
    if row is None:
        raise ApprovalNotFound(f"There is no approval {approval_id}.")
    return row


def _read_subject(row: ApprovalRow) -> dict[str, Any]:
    return row.shown if isinstance(row.shown, dict) else {}
