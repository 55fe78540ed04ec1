"""What waits for a person: decisions, runs that stopped or failed, and conversations that have answered."""

from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from holdfast.api.flow_serialize import to_flow_approval, to_flow_heading
from holdfast.api.http.auth import Identity, Viewer
from holdfast.api.http.openapi import READ
from holdfast.api.schemas import Kind
from holdfast.api.serialize import record_requests, to_heading, to_question
from holdfast.api.server.flow_questions import AskingFlow
from holdfast.api.server.server import Server, ServerDep
from holdfast.enums import PauseReason, RunStatus
from holdfast.persistence.flow_listings import to_time
from holdfast.persistence.listings import ListedRun, RunFilter, list_page
from holdfast.persistence.runs import list_waiting
from holdfast.persistence.statements import to_time_text
from holdfast.presentation.flow_run import describe_flow_crashes
from holdfast.presentation.inbox import (
    WaitingEntry,
    to_entry,
    to_failed_entry,
    to_flow_entry,
    to_stopped_entry,
    to_turn_entry,
)
from holdfast.presentation.status import Note, describe_in_list
from holdfast.runtime import flow_rows
from holdfast.runtime.flow_filter import FlowFilter

router = APIRouter(tags=["runs"])
_MOST_PAUSED = 200
_MOST_FAILED = 50
_FAILED_DAYS = 7


class WaitingItem(BaseModel):
    """Something that a person must decide or look at."""

    run_id: str
    kind: Kind = Field(default="workflow", description="Of what the run is one.")
    approval_id: str | None = Field(default=None, description="Of a decision.")
    heading: str = Field(description="What the run is called.", examples=["Add a --verbose flag"])
    question: str = Field(examples=["Approve “plan”?"])
    summary: str = Field(description="The command or the summary, in one line.", examples=["$ git push origin main"])
    mark: Note = Field(description="What it is, in a word or two.")
    requested_at: str
    is_decision: bool = Field(description="An approval that is answered; else the run needs money or a look.")
    is_yours: bool = Field(description="Whether whoever asks can do it.")
    why_not: str = Field(description="Why it waits for somebody else.", examples=[""])
    until: str = Field(description="Of what needs only a look: by what the look is remembered.", examples=[""])


class WaitingList(BaseModel):
    items: list[WaitingItem] = Field(description="The most dangerous first, then the oldest.")


@router.get("/api/inbox", responses=READ, summary="What waits for a person, decisions and stopped runs")
async def show_inbox(server: ServerDep, identity: Viewer) -> WaitingList:
    """List decisions, runs that stopped, what failed in the last seven days, and your conversations that answered."""
    paused = await list_page(server.db, RunFilter(state=RunStatus.PAUSED), limit=_MOST_PAUSED)
    failed = await list_page(server.db, RunFilter(state=RunStatus.FAILED), limit=_MOST_FAILED)
    headings = {item.run.id: to_heading(item.run) for item in paused}
    found: list[tuple[WaitingEntry, WaitingItem]] = []
    for row in await list_waiting(server.db):
        question = to_question(row)
        heading = headings.get(row.run_id) or str(question.details.get("workflow") or "")
        facts: dict[str, Any] = {"run_id": row.run_id, "heading": heading, "requested_at": row.requested_at}
        entry = to_entry(question, role=identity.role, name=identity.name)
        found.append((entry, _to_item(entry, approval_id=row.id, **facts)))
    since = to_time_text(datetime.now(UTC) - timedelta(days=_FAILED_DAYS))
    for item in [*paused, *(item for item in failed if (item.run.ended_at or "") >= since)]:
        if (look := _to_look(item, identity)) is not None:
            facts = {"run_id": item.run.id, "heading": to_heading(item.run), "requested_at": item.run.updated_at}
            found.append((look, _to_item(look, **facts)))
    found += [_to_flow_question(asking, identity) for asking in await server.flow_questions.list_open()]
    found += await _list_failed_flows(server, since)
    found += await _list_crashing_flows(server, identity)
    found.sort(key=lambda each: (each[0].danger, each[1].requested_at))
    return WaitingList(items=[item for _entry, item in found])


def _to_flow_question(asking: AskingFlow, identity: Identity) -> tuple[WaitingEntry, WaitingItem]:
    entry = to_flow_entry(asking.question, asking.row.flow, role=identity.role)
    approval = to_flow_approval(asking.row.run_id, asking.row.flow, asking.question)
    facts = {"run_id": approval.run_id, "approval_id": approval.approval_id, "requested_at": approval.requested_at}
    return entry, _to_item(entry, **facts, kind="flow", heading=to_flow_heading(asking.row))


async def _list_failed_flows(server: Server, since: str) -> list[tuple[WaitingEntry, WaitingItem]]:
    """List flow runs that failed since then; a child's failure is its parent's business."""
    matching = FlowFilter(RunStatus.FAILED)
    rows = await server.journal.query(lambda store: flow_rows.read_page(store, matching, limit=_MOST_FAILED))
    failures = await server.flow_failures.describe(rows)
    found = []
    for row in rows:
        ended_at = to_time(row.updated_at) or ""
        if row.parent_run_id is None and ended_at >= since:
            entry = to_failed_entry(failures[row.run_id] or f"flow {row.flow}", ended_at)
            facts = {"run_id": row.run_id, "requested_at": ended_at, "heading": to_flow_heading(row)}
            found.append((entry, _to_item(entry, **facts, kind="flow")))
    return found


async def _list_crashing_flows(server: Server, identity: Identity) -> list[tuple[WaitingEntry, WaitingItem]]:
    """List flow runs that wait because they kill whoever drives them."""
    rows = await server.journal.query(lambda store: flow_rows.read_crashing(store, limit=_MOST_FAILED))
    found = []
    for row in rows:
        facts = {"state": row.status, "waits_for": row.waits_for, "run_id": row.run_id}
        entry = to_stopped_entry(PauseReason.CRASHING, describe_flow_crashes(facts), role=identity.role)
        if entry is not None:
            where = {"run_id": row.run_id, "requested_at": to_time(row.updated_at), "heading": to_flow_heading(row)}
            found.append((entry, _to_item(entry, **where, kind="flow")))
    return found


def _to_look(item: ListedRun, identity: Identity) -> WaitingEntry | None:
    """Say what a run needs that asks no question."""
    run = item.run
    now = describe_in_list(record_requests(run, ()))
    if run.state == RunStatus.FAILED:
        return to_failed_entry(now, run.ended_at)
    if run.started_by == identity.name and (turn := to_turn_entry(run.pause_reason, run.updated_at)) is not None:
        return turn
    return to_stopped_entry(run.pause_reason, now, role=identity.role)


def _to_item(entry: WaitingEntry, **facts: Any) -> WaitingItem:
    return WaitingItem(
        question=entry.question,
        summary=entry.summary,
        mark=entry.mark,
        is_decision="approval_id" in facts,
        is_yours=not entry.why_not,
        why_not=entry.why_not,
        until=entry.until,
        **facts,
    )
