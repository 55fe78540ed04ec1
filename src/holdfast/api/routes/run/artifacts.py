"""The artifacts that a run handed in, whole or in part."""

import json
import re
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi import Path as PathParam
from starlette.responses import Response

from holdfast.api.http.auth import Viewer
from holdfast.api.http.openapi import READ_ONE, files, problems
from holdfast.api.results import get_artifact, to_download_headers
from holdfast.api.schemas import RunIdPath, Text
from holdfast.api.server.server import ServerDep
from holdfast.errors import RangeInvalid

router = APIRouter(prefix="/api/runs", tags=["results"])

_ARTIFACT = {
    **READ_ONE,
    **problems(416),
    **files(
        {"application/json": {"phaseKey": "plan", "steps": ["Add the flag."]}, "text/plain": "# Notes\n"},
        description="The artifact as it was written.",
    ),
    206: {"description": "A part of it."},
}


@router.get("/{run_id}/artifacts/{name:path}", responses=_ARTIFACT, response_class=Response, summary="Read an artifact")
async def read_artifact(
    run_id: RunIdPath,
    name: Annotated[Text, PathParam(description="A phase's key, or the artifact's file name or path.")],
    server: ServerDep,
    _identity: Viewer,
    attempt: Annotated[int | None, Query(ge=1, le=10_000, description="Of this attempt.")] = None,
    byte_range: Annotated[str | None, Header(alias="Range", max_length=200)] = None,
) -> Response:
    """Read the newest version that was accepted, else the newest there is."""
    row = await get_artifact(server, run_id, name, attempt)
    content = row.content.encode(errors="replace")
    response = Response(content, headers=to_download_headers(Path(row.path).name), media_type=_media_type(row.content))
    return to_ranged(response, content, byte_range)


def _media_type(text: str) -> str:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return "text/plain"
    return "application/json"


_ONE_RANGE = re.compile(r"bytes=(\d{0,15})-(\d{0,15})", re.ASCII)


def to_ranged(response: Response, content: bytes, byte_range: str | None) -> Response:
    """Return the part that a `Range` header names, as 206; the whole if it is none we know. Raises `RangeInvalid`."""
    found = _ONE_RANGE.fullmatch(byte_range.strip()) if byte_range else None
    if found is None or found.group(0) == "bytes=-":
        return response
    first, last = _to_ends(found.group(1), found.group(2), len(content))
    headers = {key: value for key, value in response.headers.items() if key != "content-length"}
    headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
    return Response(content[first : last + 1], 206, headers)


def _to_ends(start: str, end: str, size: int) -> tuple[int, int]:
    first = int(start) if start else max(0, size - int(end))
    last = min(int(end), size - 1) if start and end else size - 1
    if first >= size or first > last:
        raise RangeInvalid(f"The file has {size} bytes.")
    return first, last
