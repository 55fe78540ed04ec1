"""An artifact taken apart for reading, by its schema."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query

from holdfast.api.http.auth import Viewer
from holdfast.api.http.openapi import READ_ONE
from holdfast.api.results import get_artifact
from holdfast.api.schemas import RunIdPath, ShortText
from holdfast.api.server.server import ServerDep
from holdfast.presentation.artifact_document import ArtifactDocument, to_document

router = APIRouter(prefix="/api/runs", tags=["results"])


@router.get("/{run_id}/document", responses=READ_ONE, summary="An artifact, taken apart for reading")
async def read_document(
    run_id: RunIdPath,
    server: ServerDep,
    _identity: Viewer,
    phase: Annotated[ShortText, Query(description="Whose artifact.")],
    attempt: Annotated[int | None, Query(ge=1, le=10_000, description="Of this attempt.")] = None,
) -> ArtifactDocument:
    """Take the version apart that reading the artifact gives; the artifact itself has every byte."""
    row = await get_artifact(server, run_id, phase, attempt)
    return await asyncio.to_thread(to_document, row.schema_id, row.content)
