"""What the pages show beside the list of runs: how many are in which state, and of which workflows."""

from collections import Counter

from fastapi import APIRouter
from pydantic import BaseModel, Field

from holdfast.api.http.auth import Viewer
from holdfast.api.http.openapi import READ
from holdfast.api.server.server import ServerDep
from holdfast.persistence.listings import count_by_state, list_workflow_names
from holdfast.runtime import flow_rows

router = APIRouter(tags=["runs"])


class Overview(BaseModel):
    counts: dict[str, int] = Field(description="How many runs are in each state, of workflows and of flows.")
    workflows: list[str] = Field(description="The workflows that have runs.")


@router.get("/api/overview", responses=READ, summary="How many runs are in which state")
async def show_overview(server: ServerDep, _identity: Viewer) -> Overview:
    of_flows = await server.journal.query(flow_rows.count_by_status)
    counts = dict(Counter(await count_by_state(server.db)) + Counter(of_flows))
    return Overview(counts=counts, workflows=await list_workflow_names(server.db))
