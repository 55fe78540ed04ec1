"""What workflows took and cost so far, from the newest runs; and what that lets one expect of the next."""

from fastapi import APIRouter
from pydantic import BaseModel, Field

from holdfast.api.http.auth import Viewer
from holdfast.api.http.openapi import READ
from holdfast.api.server.server import ServerDep
from holdfast.api.workflow_statistics import WorkflowStatistics, to_statistics
from holdfast.persistence.statistics import RECENT_RUNS, read_past_runs

router = APIRouter(tags=["catalog"])


class Statistics(BaseModel):
    looked_at: int = Field(description="How many of the newest runs the figures come from.", examples=[500])
    items: list[WorkflowStatistics]


@router.get("/api/statistics", responses=READ, summary="What workflows took and cost so far")
async def show_statistics(server: ServerDep, _identity: Viewer) -> Statistics:
    past = await read_past_runs(server.db, limit=RECENT_RUNS)
    return Statistics(looked_at=len(past), items=to_statistics(past))
