"""What a run made: artifacts, the change to the repository, the report.

Rule: an agent wrote these. They are never sent as something a browser would run, and always as a download.
"""

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query
from fastapi import Path as PathParam
from starlette.responses import Response

from holdfast.api.http.auth import Viewer
from holdfast.api.http.openapi import READ_ONE, files, problems
from holdfast.api.schemas import RunIdPath, ServerDep, ShortText, Text
from holdfast.api.server.server import Server
from holdfast.engine.patch import UNFINISHED, find_unfinished, order_trees, read_patch
from holdfast.engine.run.load import get_run
from holdfast.errors import ArtifactNotFound, HoldfastError, RangeInvalid, ReportMissing
from holdfast.persistence.models import ArtifactRow
from holdfast.persistence.runs import StoredRun, read_artifacts

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
_DIFF = {
    **READ_ONE,
    **problems(409),
    **files(
        {"text/plain": "diff --git a/cli.py b/cli.py\n--- a/cli.py\n+++ b/cli.py\n@@ -1 +1 @@\n-old\n+new\n"},
        description="A patch that `git apply` takes.",
    ),
}
_REPORT = {
    **READ_ONE,
    **files(
        {"application/json": {"runId": "3f2a", "state": "completed"}, "text/markdown": "# Final report\n"},
        description="The final report.",
    ),
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
    stored = await get_run(server.db, run_id)
    row = find_artifact(await read_artifacts(server.db, stored.run.id), name, attempt)
    if row is None:
        raise ArtifactNotFound(f"Run {stored.run.id} has no artifact of that name.", hint="Its details list them.")
    content = row.content.encode(errors="replace")
    response = Response(content, headers=_download(Path(row.path).name), media_type=_media_type(row.content))
    return to_ranged(response, content, byte_range)


def find_artifact(rows: list[ArtifactRow], name: str, attempt: int | None) -> ArtifactRow | None:
    """Find an artifact by comparison with what is recorded; the name never becomes a path."""
    named = [
        row for row in rows if name in (row.phase_key, row.path, Path(row.path).name) and attempt in (None, row.attempt)
    ]
    accepted = [row for row in named if row.state == "accepted"]
    return next(reversed(accepted or named), None)


def _media_type(text: str) -> str:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return "text/plain"
    return "application/json"


def _download(name: str) -> dict[str, str]:
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name) or "file"
    return {"Content-Disposition": f'attachment; filename="{plain[:100]}"', "Accept-Ranges": "bytes"}


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
    headers = _download(f"{stored.run.id}.diff")
    return Response(text.encode(errors="replace"), headers=headers, media_type="text/plain")


async def read_trees(server: Server, stored: StoredRun) -> dict[str, str]:
    """Read the files each phase left, in the order of their ends, with what waits or is under way."""
    data_dir, run_id = server.config.data_dir, stored.run.id
    is_open = stored.run.state in ("running", "paused")
    keys = [row.phase_key for row in stored.phases.values() if is_open and row.state in UNFINISHED]
    recorded = (await server.traces.get(run_id)).trees if keys else {}
    unfinished = await asyncio.to_thread(find_unfinished, data_dir, run_id, recorded, keys)
    return order_trees([(row.phase_key, row.tree, row.ended_at) for row in stored.phases.values()], unfinished)


def read_stored_patch(
    server: Server, stored: StoredRun, trees: Mapping[str, str], phase: str | None, *, with_own: bool
) -> str:
    """Read the patch of a run. Raises what `read_patch` raises."""
    definition = stored.template.definition if stored.template else None
    return read_patch(server.config.data_dir, stored.run.id, trees, definition, phase, with_own=with_own)


@router.get("/{run_id}/report", responses=_REPORT, response_class=Response, summary="The final report")
async def read_report(
    run_id: RunIdPath,
    server: ServerDep,
    _identity: Viewer,
    kind: Annotated[Literal["json", "md"], Query(alias="format")] = "json",
) -> Response:
    stored = await get_run(server.db, run_id)
    content = await asyncio.to_thread(_report, server.config.data_dir, stored.run.id, kind)
    media_type = "application/json" if kind == "json" else "text/markdown"
    return Response(content, headers=_download(f"final-report.{kind}"), media_type=media_type)


def _report(data_dir: Path, run_id: str, kind: str) -> bytes:
    folder = data_dir / "reports"
    path = folder / run_id / f"final-report.{kind}"
    missing: HoldfastError = ReportMissing(f"Run {run_id} has no report here.")
    if path.resolve() != folder.resolve() / run_id / path.name:
        raise missing
    try:
        return path.read_bytes()
    except OSError as error:
        raise missing from error
