"""What a run made, as the routes that answer with it share it: its files, their differences, its artifacts.

Rule: an agent wrote these. They are never sent as something a browser would run, and always as a download.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, Field

from holdfast.api.server.server import Server
from holdfast.engine.patch import (
    UNFINISHED,
    RecordedFiles,
    find_artifact_paths,
    find_unfinished,
    order_trees,
    own_paths,
    read_patch,
)
from holdfast.engine.run.load import get_run
from holdfast.engine.run.local_files import bring_files
from holdfast.enums import RunStatus
from holdfast.errors import ArtifactNotFound, WorkspaceError
from holdfast.persistence.models import ArtifactRow
from holdfast.persistence.runs import StoredRun, read_artifacts
from holdfast.presentation.diff import DiffLine, FileDiff, Pair, compare, parse_patch, to_pairs
from holdfast.presentation.diff_marks import add_marks, is_generated
from holdfast.presentation.format import plural
from holdfast.workspace import find_cut, open_workspace
from holdfast.workspace.diff import GIT_LOOK, PatchLook


class LeftOutItem(BaseModel):
    """What is no part of the result."""

    path: str = Field(description="A folder ends with `/`.", examples=[".venv/"])
    files: int = Field(examples=[1204])
    reason: str = Field(description="`setup` made it, or it was copied in (`copy`).", examples=["setup"])


class ChangedFile(BaseModel):
    path: str
    was: str = Field(description="The name before it was renamed.")
    kind: str = Field(description="`changed`, `added`, `deleted` or `renamed`.", examples=["changed"])
    added: int
    removed: int
    is_binary: bool
    is_generated: bool = Field(default=False, description="A lock file or the like: folded.")
    is_own: bool = Field(description="What the engine itself asked for; such files come last.")
    digest: str = Field(default="", description="Which content it had and has.", examples=["8ab686e..2f1c0d3"])
    note: str = Field(default="", description="What is left out of its colours, if anything is.")
    lines: list[DiffLine]
    pairs: list[Pair] = Field(description="With `split` these, and no `lines`.")


class Changes(BaseModel):
    summary: str = Field(default="", description="How much changed, in words.", examples=["3 files, +120 −4"])
    cut: str = Field(default="", description="What of it is missing here, in words; nothing if it is whole.")
    files: list[ChangedFile]
    left_out: list[LeftOutItem] = Field(
        default_factory=list, description="What is no part of the result, because set-up made it or it was copied in."
    )


def to_changes(patch: str, own: Sequence[str] = (), *, is_split: bool) -> Changes:
    """Take a patch apart; of the engine's own files, which fit the globs `own`, the summary says only how many."""
    files = parse_patch(patch, own)
    add_marks(files)
    missing = find_cut(patch)
    cut = f"This is not all: {missing:,} characters of the change are not kept with the question." if missing else ""
    return Changes(summary=_summarize(files), cut=cut, files=[_to_file(file, is_split=is_split) for file in files])


def _summarize(files: Sequence[FileDiff]) -> str:
    theirs = [file for file in files if not file.is_own]
    added, removed = sum(file.added for file in theirs), sum(file.removed for file in theirs)
    changed = f"{plural(len(theirs), 'file')}, +{added:,} −{removed:,}"
    return changed + (f", and {plural(count, 'artifact')}" if (count := len(files) - len(theirs)) else "")


def find_own(server: Server, stored: StoredRun) -> list[str]:
    """Return the engine's own files of a run as globs; of a run without a workspace here, none."""
    definition = stored.template.definition if stored.template else None
    try:
        return own_paths(open_workspace(server.config.data_dir, stored.run.id), find_artifact_paths(definition))
    except WorkspaceError:
        return []


def to_comparison(path: str, before: str, after: str) -> Changes:
    return Changes(files=[_to_file(compare(path, before, after), is_split=False)])


def _to_file(file: FileDiff, *, is_split: bool) -> ChangedFile:
    return ChangedFile(
        path=file.path,
        was=file.was,
        kind=file.kind,
        added=file.added,
        removed=file.removed,
        is_binary=file.is_binary,
        is_generated=is_generated(file.path),
        is_own=file.is_own,
        digest=file.digest,
        note=file.note,
        lines=[] if is_split else file.lines,
        pairs=to_pairs(file.lines) if is_split else [],
    )


def find_artifact(rows: list[ArtifactRow], name: str, attempt: int | None) -> ArtifactRow | None:
    """Find an artifact by comparison with what is recorded; the name never becomes a path."""
    named = [
        row for row in rows if name in (row.phase_key, row.path, Path(row.path).name) and attempt in (None, row.attempt)
    ]
    accepted = [row for row in named if row.state == "accepted"]
    return next(reversed(accepted or named), None)


async def get_artifact(server: Server, run_id: str, name: str, attempt: int | None) -> ArtifactRow:
    """Return an artifact by its phase, path or file name. Raises `ArtifactNotFound`, or `RunNotFound`."""
    stored = await get_run(server.db, run_id)
    row = find_artifact(await read_artifacts(server.db, stored.run.id), name, attempt)
    if row is None:
        raise ArtifactNotFound(f"Run {stored.run.id} has no artifact of that name.", hint="Its details list them.")
    return row


def to_download_headers(name: str) -> dict[str, str]:
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name) or "file"
    return {"Content-Disposition": f'attachment; filename="{plain[:100]}"', "Accept-Ranges": "bytes"}


async def read_trees(server: Server, stored: StoredRun) -> dict[str, str]:
    """Read the files each phase left, in the order of their ends, with what waits or is under way."""
    data_dir, run_id = server.config.data_dir, stored.run.id
    is_open = stored.run.state in (RunStatus.RUNNING, RunStatus.PAUSED)
    keys = [row.phase_key for row in stored.phases.values() if is_open and row.state in UNFINISHED]
    recorded = (await server.traces.get(run_id)).trees if keys else {}
    done = [row.tree for row in stored.phases.values() if row.tree]
    under_way = [recorded[key][0] for key in keys if key in recorded]
    if done or under_way:
        await bring_files(server.db, server.config, stored.run, [*done, *under_way])
    unfinished = await asyncio.to_thread(find_unfinished, data_dir, run_id, recorded, keys)
    return order_trees([(row.phase_key, row.tree, row.ended_at) for row in stored.phases.values()], unfinished)


def read_stored_patch(
    server: Server,
    stored: StoredRun,
    trees: Mapping[str, str],
    phase: str | None,
    *,
    with_own: bool,
    look: PatchLook = GIT_LOOK,
) -> str:
    """Read the patch of a run. Raises what `read_patch` raises."""
    definition = stored.template.definition if stored.template else None
    files = RecordedFiles(stored.run.id, trees, definition)
    return read_patch(server.config.data_dir, files, phase, with_own=with_own, look=look)
