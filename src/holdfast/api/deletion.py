"""Deleting a run for good: `holdfast runs rm` over HTTP."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from holdfast.api.auth import Admin
from holdfast.api.params import RunIdPath, ServerDep
from holdfast.api.responses import WRITE_ONE
from holdfast.engine.retention.cleanup import Skipped, remove_runs
from holdfast.engine.run.load import get_run
from holdfast.errors import HoldfastError, RunBusy, RunNotInState, UnmergedResult

router = APIRouter(prefix="/api/runs", tags=["runs"])


class DeletedRun(BaseModel):
    run_id: str = Field(examples=["3f2a7c1e-0d4b-4a68-9f1e-5c2d8b7a6e90"])
    size_bytes: int = Field(description="About how much it took on disk and in the database.", examples=[412000])


@router.delete("/{run_id}", responses=WRITE_ONE, summary="Delete a run for good")
async def delete(
    run_id: RunIdPath,
    server: ServerDep,
    _identity: Admin,
    unmerged: Annotated[bool, Query(description="Also if its result is not merged; it is lost then.")] = False,
) -> DeletedRun:
    """Journal, rows, files and refs of a run that is over. Branches of the user's are not touched.

    Refused while someone works on it, while it is not over, and if another run was forked from it.
    """
    stored = await get_run(server.db, run_id)
    done = await server.undertakings.finish(
        remove_runs(server.db, server.config, [stored.run.id], now=datetime.now(UTC), can_lose_unmerged=unmerged)
    )
    if stored.run.id not in done.deleted_runs:
        raise _to_error(stored.run.id, done.skipped)
    return DeletedRun(run_id=stored.run.id, size_bytes=done.size_bytes)


def _to_error(run_id: str, skipped: list[Skipped]) -> HoldfastError:
    told = f"Run {run_id} was not deleted: {'; '.join(item.reason for item in skipped)}."
    codes = {item.code for item in skipped}
    if "run_busy" in codes:
        return RunBusy(told, run_id=run_id)
    if "unmerged_result" in codes:
        return UnmergedResult(told, hint="Merge it first, or say `unmerged=true` to lose it.")
    return RunNotInState(told)
