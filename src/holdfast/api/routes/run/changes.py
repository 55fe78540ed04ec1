"""What a run changed in the repository, taken apart for reading."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query

from holdfast.api.http.auth import Viewer
from holdfast.api.http.openapi import READ_ONE, problems
from holdfast.api.results import Changes, LeftOutItem, find_own, read_stored_patch, read_trees, to_changes
from holdfast.api.schemas import RunIdPath, ShortText
from holdfast.api.server.server import ServerDep
from holdfast.engine.patch import find_left_out, record_requests
from holdfast.engine.run.load import get_run
from holdfast.workspace.diff import PatchLook

router = APIRouter(tags=["results"])

Split = Annotated[bool, Query(description="As rows of two columns instead of lines.")]


@router.get(
    "/api/runs/{run_id}/changes", responses={**READ_ONE, **problems(409)}, summary="What a run changed, file by file"
)
async def list_changes(
    run_id: RunIdPath,
    server: ServerDep,
    _identity: Viewer,
    phase: Annotated[ShortText | None, Query(description="Only what this phase changed.")] = None,
    split: Split = False,
    context: Annotated[int, Query(ge=0, le=1000, description="Lines around each changed one.")] = 3,
) -> Changes:
    stored = await get_run(server.db, run_id)
    trees = await read_trees(server, stored)
    look = PatchLook(has_renames=True, context=context)
    patch = await asyncio.to_thread(read_stored_patch, server, stored, trees, phase, with_own=True, look=look)
    own = await asyncio.to_thread(find_own, server, stored)
    changes = await asyncio.to_thread(to_changes, patch, own, is_split=split)
    groups = await asyncio.to_thread(find_left_out, server.config.data_dir, stored.run.id, trees)
    return changes.model_copy(update={"left_out": [LeftOutItem(**facts) for facts in record_requests(groups)]})
