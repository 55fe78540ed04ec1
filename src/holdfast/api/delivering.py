"""Bringing a run's result to where it belongs: `holdfast merge` over HTTP."""

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from holdfast.api.auth import Operator
from holdfast.api.params import BranchName, RunIdPath, ServerDep
from holdfast.api.responses import WRITE_ONE
from holdfast.engine.delivery import merge_run
from holdfast.engine.loading import get_run

router = APIRouter(prefix="/api/runs", tags=["results"])


class MergeRun(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"into": "main"}]})
    into: BranchName | None = Field(default=None, description="The branch to bring it to; else the run's base.")


class MergedRun(BaseModel):
    """Where the result is now: on a branch, or in a folder without git that the run had copied."""

    run_id: str
    message: str = Field(examples=["main: fast forwarded, 2 files, +10 −1, now at 4be1c90a77."])
    action: str | None = Field(
        default=None,
        description="`created`, `fast_forwarded`, `merged` or `nothing_to_do`.",
        examples=["fast_forwarded"],
    )
    branch: str | None = Field(default=None, examples=["main"])
    commit: str | None = Field(default=None, examples=["4be1c90a77f2d5c8e1f0a343f2a0b9e6c1d4e8f9"])
    folder: str | None = Field(default=None, examples=[None])
    paths: list[str] | None = Field(default=None, description="The files written there.", examples=[None])


@router.post("/{run_id}/merge", responses=WRITE_ONE, summary="Bring a run's result to a branch")
async def merge(run_id: RunIdPath, server: ServerDep, identity: Operator, body: MergeRun | None = None) -> MergedRun:
    """What the completed phases made becomes commits, without holdfast's own files. May be repeated.

    Refused while someone drives the run, and, with the files in `paths` and nothing changed, where it does not fit.
    """
    stored = await get_run(server.db, run_id)
    await server.engines.resolve_repository(stored.run.repo_path)  # the command line starts runs elsewhere too
    into = body.into if body else None
    merged = await server.undertakings.finish(
        merge_run(server.db, server.config, stored.run.id, into=into, by=identity.name)
    )
    return MergedRun.model_validate({**merged, "paths": _to_text(merged.get("paths"))})


def _to_text(paths: list[str] | None) -> list[str] | None:
    """File names need not be Unicode; JSON must be."""
    return None if paths is None else [path.encode(errors="replace").decode() for path in paths]
