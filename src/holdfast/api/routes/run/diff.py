"""What became different: the patch of a run, and the artifacts of two attempts."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from holdfast.api.http.auth import Viewer
from holdfast.api.http.openapi import READ_ONE, files, problems
from holdfast.api.results import (
    Changes,
    find_artifact,
    read_stored_patch,
    read_trees,
    to_comparison,
    to_download_headers,
)
from holdfast.api.schemas import RunIdPath, ShortText
from holdfast.api.server.server import ServerDep
from holdfast.engine.run.load import get_run
from holdfast.errors import ArtifactNotFound
from holdfast.persistence.runs import read_artifacts

router = APIRouter(prefix="/api/runs", tags=["results"])
_DIFF = {
    **READ_ONE,
    **problems(409),
    **files(
        {"text/plain": "diff --git a/cli.py b/cli.py\n--- a/cli.py\n+++ b/cli.py\n@@ -1 +1 @@\n-old\n+new\n"},
        description="A patch that `git apply` takes.",
    ),
}


@router.get("/{run_id}/diff", responses=_DIFF, response_class=Response, summary="What the run changed")
async def read_diff(
    run_id: RunIdPath,
    server: ServerDep,
    _identity: Viewer,
    phase: Annotated[ShortText | None, Query(description="Only what this phase changed.")] = None,
    artifacts: Annotated[bool, Query(description="With holdfast's own files, which no merge brings anywhere.")] = False,
) -> Response:
    stored = await get_run(server.db, run_id)
    trees = await read_trees(server, stored)
    text = await asyncio.to_thread(read_stored_patch, server, stored, trees, phase, with_own=artifacts)
    headers = to_download_headers(f"{stored.run.id}.diff")
    return Response(text.encode(errors="replace"), headers=headers, media_type="text/plain")


Attempt = Annotated[int, Query(ge=1, le=10_000)]


@router.get("/{run_id}/difference", responses=READ_ONE, summary="The artifacts of two attempts, compared")
async def compare_attempts(
    run_id: RunIdPath,
    server: ServerDep,
    _identity: Viewer,
    phase: Annotated[ShortText, Query(description="Whose artifact.")],
    attempt: Attempt,
    since: Attempt,
) -> Changes:
    stored = await get_run(server.db, run_id)
    rows = await read_artifacts(server.db, stored.run.id)
    before, after = find_artifact(rows, phase, since), find_artifact(rows, phase, attempt)
    if before is None or after is None:
        raise ArtifactNotFound(f"Run {stored.run.id} has no artifact of these attempts.")
    return await asyncio.to_thread(to_comparison, after.path, before.content, after.content)
