"""What became different, taken apart for reading: files of a repository, and versions of an artifact."""

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from holdfast.api.http.auth import Viewer
from holdfast.api.http.openapi import READ_ONE, problems
from holdfast.api.routes.artifacts import find_artifact, read_stored_patch, read_trees
from holdfast.api.routes.merge import LeftOutItem
from holdfast.api.schemas import ApprovalIdPath, RunIdPath, ServerDep, ShortText
from holdfast.engine.patch import find_left_out, to_facts
from holdfast.engine.run.load import get_run
from holdfast.errors import ApprovalNotFound, ArtifactNotFound
from holdfast.persistence.runs import find_approval, read_artifacts
from holdfast.presentation.diff import FileChange, Line, Pair, compare, parse_patch, to_pairs

router = APIRouter(tags=["results"])

Split = Annotated[bool, Query(description="As rows of two columns instead of lines.")]
Attempt = Annotated[int, Query(ge=1, le=10_000)]


class ChangedFile(BaseModel):
    path: str
    was: str = Field(description="The name before it was renamed.")
    kind: str = Field(description="`changed`, `added`, `deleted` or `renamed`.", examples=["changed"])
    added: int
    removed: int
    is_binary: bool
    is_own: bool = Field(description="What the engine itself asked for; such files come last.")
    lines: list[Line]
    pairs: list[Pair] = Field(description="With `split` these, and no `lines`.")


class Changes(BaseModel):
    files: list[ChangedFile]
    left_out: list[LeftOutItem] = Field(
        default_factory=list, description="What is no part of the result, because set-up made it or it was copied in."
    )


@router.get(
    "/api/runs/{run_id}/changes", responses={**READ_ONE, **problems(409)}, summary="What a run changed, file by file"
)
async def list_changes(
    run_id: RunIdPath,
    server: ServerDep,
    _identity: Viewer,
    phase: Annotated[ShortText | None, Query(description="Only what this phase changed.")] = None,
    split: Split = False,
) -> Changes:
    stored = await get_run(server.db, run_id)
    trees = await read_trees(server, stored)
    patch = await asyncio.to_thread(read_stored_patch, server, stored, trees, phase, with_own=True)
    changes = await asyncio.to_thread(_to_changes, patch, is_split=split)
    groups = await asyncio.to_thread(find_left_out, server.config.data_dir, stored.run.id, trees)
    return changes.model_copy(update={"left_out": [LeftOutItem(**facts) for facts in to_facts(groups)]})


@router.get("/api/runs/{run_id}/difference", responses=READ_ONE, summary="The artifacts of two attempts, compared")
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
    return await asyncio.to_thread(_to_comparison, after.path, before.content, after.content)


@router.get(
    "/api/approvals/{approval_id}/changes", responses=READ_ONE, summary="What is to be approved, as a difference"
)
async def list_approval_changes(
    approval_id: ApprovalIdPath,
    server: ServerDep,
    _identity: Viewer,
    of: Annotated[
        Literal["files", "asked", "answer"],
        Query(
            description="All `files` since the last accepted state, or what changed since it was `asked` the first "
            "time, or since the last `answer` refused it."
        ),
    ] = "files",
    since: Annotated[
        int | None, Query(ge=1, le=10_000, description="The artifact, compared with this attempt's.")
    ] = None,
) -> Changes:
    row = await find_approval(server.db, approval_id)
    if row is None:
        raise ApprovalNotFound(f"There is no approval {approval_id}.")
    subject = row.shown if isinstance(row.shown, dict) else {}
    if since is None:
        since_answer = subject.get("since_answer") or {}
        patches = {"files": subject.get("diff"), "asked": subject.get("diff_since"), "answer": since_answer.get("diff")}
        patch = str(patches[of] or "")
        return await asyncio.to_thread(_to_changes, patch, is_split=False)
    before = find_artifact(await read_artifacts(server.db, row.run_id), row.phase_key, since)
    if before is None:
        raise ArtifactNotFound(f"Phase {row.phase_key} handed nothing in at attempt {since}.")
    return await asyncio.to_thread(_to_comparison, before.path, before.content, str(subject.get("content") or ""))


def _to_changes(patch: str, *, is_split: bool) -> Changes:
    return Changes(files=[_to_file(file, is_split=is_split) for file in parse_patch(patch)])


def _to_comparison(path: str, before: str, after: str) -> Changes:
    return Changes(files=[_to_file(compare(path, before, after), is_split=False)])


def _to_file(file: FileChange, *, is_split: bool) -> ChangedFile:
    return ChangedFile(
        path=file.path,
        was=file.was,
        kind=file.kind,
        added=file.added,
        removed=file.removed,
        is_binary=file.is_binary,
        is_own=file.is_own,
        lines=[] if is_split else file.lines,
        pairs=to_pairs(file.lines) if is_split else [],
    )
