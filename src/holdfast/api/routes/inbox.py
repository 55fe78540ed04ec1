"""What waits for a person: decisions, and runs that stopped."""

from fastapi import APIRouter
from pydantic import BaseModel, Field

from holdfast.api.http.auth import Viewer
from holdfast.api.http.openapi import READ
from holdfast.api.serialize import to_heading, to_question
from holdfast.api.server.server import ServerDep
from holdfast.enums import RunStatus
from holdfast.persistence.listings import RunFilter, list_page
from holdfast.persistence.runs import list_waiting
from holdfast.presentation.status import describe_question, find_pause

router = APIRouter(tags=["runs"])
_MOST_PAUSED = 200


class WaitingItem(BaseModel):
    """Something that a person must decide or look at."""

    run_id: str
    heading: str = Field(description="What the run is called.", examples=["Add a --verbose flag"])
    question: str = Field(examples=["Approve “plan”?"])
    requested_at: str
    is_decision: bool = Field(description="An approval that is answered; else the run needs money or a look.")


class WaitingList(BaseModel):
    items: list[WaitingItem] = Field(description="The oldest first.")


@router.get("/api/inbox", responses=READ, summary="What waits for a person, decisions and stopped runs")
async def show_inbox(server: ServerDep, _identity: Viewer) -> WaitingList:
    paused = await list_page(server.db, RunFilter(state=RunStatus.PAUSED), limit=_MOST_PAUSED)
    headings = {item.run.id: to_heading(item.run) for item in paused}
    decisions = [
        WaitingItem(
            run_id=row.run_id,
            heading=headings.get(row.run_id) or str(question.details.get("workflow") or ""),
            question=describe_question(question),
            requested_at=row.requested_at,
            is_decision=True,
        )
        for row in await list_waiting(server.db)
        for question in (to_question(row),)
    ]
    stopped = [
        WaitingItem(
            run_id=item.run.id,
            heading=headings[item.run.id],
            question=question,
            requested_at=item.run.updated_at,
            is_decision=False,
        )
        for item in paused
        if (question := find_pause(item.run.pause_reason).question)
    ]
    return WaitingList(items=sorted([*decisions, *stopped], key=lambda item: item.requested_at))
