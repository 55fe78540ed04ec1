"""Where the time of one run went: its timeline, for the pages to draw as it is."""

import asyncio
import time
from typing import Annotated

from fastapi import APIRouter, Query

from holdfast.api.http.auth import Viewer
from holdfast.api.http.openapi import READ_ONE
from holdfast.api.schemas import RunIdPath, Text
from holdfast.api.serialize import find_template, record_requests
from holdfast.api.server.server import ServerDep
from holdfast.engine.run.load import get_run
from holdfast.persistence.runs import StoredRun, read_artifacts
from holdfast.presentation.model_call import ModelCallDetail, describe_model_call
from holdfast.presentation.timeline import PhaseDetails, Timeline, draw_timeline

router = APIRouter(prefix="/api/runs", tags=["runs"])


@router.get("/{run_id}/timeline", responses=READ_ONE, summary="Where the time of a run went")
async def show_timeline(
    run_id: RunIdPath,
    server: ServerDep,
    _identity: Viewer,
    opened: Annotated[
        Text,
        Query(
            alias="open", max_length=4000, description="Phases whose calls are wanted, with commas between; `*`: all."
        ),
    ] = "",
) -> Timeline:
    """Draw rows of bars in seconds since 1970, at most 5,000 calls for each opened phase."""
    stored = await get_run(server.db, run_id)
    accepted = [row for row in await read_artifacts(server.db, stored.run.id) if row.state == "accepted"]
    return draw_timeline(
        record_requests(stored.run, stored.phases.values()),
        await server.traces.get(stored.run.id),
        PhaseDetails(
            template=find_template(stored),
            workers={role: _name_worker(stored, role) for role in stored.bindings},
            artifacts={row.phase_key: row.path for row in accepted},
        ),
        opened=set(opened.split(",")),
        now=time.time(),
    )


@router.get("/{run_id}/model-call", responses=READ_ONE, summary="What a model was sent, and what it answered")
async def show_model_call(
    run_id: RunIdPath,
    server: ServerDep,
    _identity: Viewer,
    key: Annotated[Text, Query(max_length=1000, description="The key of the call, as its events have it.")],
) -> ModelCallDetail:
    """Put one model call together from the journal; `note` says why, where nothing is known of what was sent."""
    stored = await get_run(server.db, run_id)
    events = await server.journal.read(stored.run.id)
    return await asyncio.to_thread(describe_model_call, events, key)


def _name_worker(stored: StoredRun, role: str) -> str:
    persona = stored.bindings[role][1]
    model = persona.definition.get("model") if persona and isinstance(persona.definition, dict) else ""
    return " · ".join(filter(None, (persona.name if persona else "", str(model or ""))))
