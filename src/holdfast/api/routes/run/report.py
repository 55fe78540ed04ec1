"""The final report of a run."""

import asyncio
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from holdfast.api.http.auth import Viewer
from holdfast.api.http.openapi import READ_ONE, files
from holdfast.api.results import to_download_headers
from holdfast.api.schemas import RunIdPath
from holdfast.api.server.server import ServerDep
from holdfast.engine.report import to_json_text, to_markdown
from holdfast.engine.run.load import get_run
from holdfast.errors import HoldfastError, ReportMissing
from holdfast.persistence.carried_files import find_report

router = APIRouter(prefix="/api/runs", tags=["results"])
_REPORT = {
    **READ_ONE,
    **files(
        {"application/json": {"runId": "3f2a", "state": "completed"}, "text/markdown": "# Final report\n"},
        description="The final report.",
    ),
}


@router.get("/{run_id}/report", responses=_REPORT, response_class=Response, summary="The final report")
async def read_report(
    run_id: RunIdPath,
    server: ServerDep,
    _identity: Viewer,
    kind: Annotated[Literal["json", "md"], Query(alias="format")] = "json",
) -> Response:
    stored = await get_run(server.db, run_id)
    report = await find_report(server.db, stored.run.id)
    if report is None:  # of a run that ended before reports were rows
        content = await asyncio.to_thread(_report, server.config.data_dir, stored.run.id, kind)
    else:
        content = (to_json_text(report) if kind == "json" else to_markdown(report)).encode(errors="replace")
    media_type = "application/json" if kind == "json" else "text/markdown"
    return Response(content, headers=to_download_headers(f"final-report.{kind}"), media_type=media_type)


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
