"""What a run changed in its repository, as a patch: in all or by one phase, without what set-up made, and by default
without the engine's files.

What waits for an approval or is under way is a part of it; a merge brings only what is completed.
Plain values come in, so that the command line can read a patch without an ORM and without validating a template.
"""

import glob
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.errors import RunNotInState, WorkspaceError
from holdfast.persistence.statements import to_time_text
from holdfast.workspace import (
    LeftOutGroup,
    Workspace,
    diff,
    has_object,
    leave_out,
    open_workspace,
    read_setup,
    write_tree,
)
from holdfast.workspace.diff import GIT_LOOK, PatchLook

UNFINISHED = ("running", "awaiting_approval")  # states of phases whose change is not complete, or not accepted
_MOST_NAMED = 5
_REASONS = {"setup": "Left out, made by setup", "copy": "Left out, copied in"}


@dataclass(frozen=True)
class RecordedFiles:
    """What a run left: the files at the end of each phase, in the order of their ends, and the stored template."""

    run_id: str
    trees: Mapping[str, str]
    definition: Any


def read_patch(
    data_dir: Path,
    files: RecordedFiles,
    phase: str | None = None,
    *,
    with_own: bool = False,
    look: PatchLook = GIT_LOOK,
) -> str:
    """Return the change as `git apply` takes it. Raises `RunNotInState` for a phase that has handed nothing in."""
    run_id, trees, definition = files.run_id, files.trees, files.definition
    keys = list(trees)
    if phase is not None and phase not in keys:
        hint = f"There are snapshots of {', '.join(keys) or 'no phase yet'}."
        raise RunNotInState(f"Run {run_id} has no snapshot of a phase of that name.", hint=hint)
    if not trees:
        return ""
    workspace = open_workspace(data_dir, run_id)
    place = len(keys) - 1 if phase is None else keys.index(phase)
    before = trees[keys[place - 1]] if phase is not None and place else workspace.base_commit
    own = () if with_own else own_paths(workspace, find_artifact_paths(definition))
    setup = read_setup(workspace)
    if not setup.made:
        return diff(workspace.repo, before, trees[keys[place]], without=own, look=look)
    # As the commits of a merge would have it: what a phase changes of it is the phase's from there on.
    cleaned = [leave_out(workspace, tree, own, setup=setup) for tree in (before, trees[keys[place]])]
    return diff(workspace.repo, *cleaned, look=look)


def compare_results(data_dir: Path, first: RecordedFiles, second: RecordedFiles) -> str:
    """Return what leads from the result of one run to that of another, without the engine's files, as a patch.

    Raises `RunNotInState` if their files are in two repositories, as those of runs on different projects.
    """
    repos, trees = [], []
    for side in (first, second):
        workspace = open_workspace(data_dir, side.run_id)
        own = own_paths(workspace, find_artifact_paths(side.definition))
        last = next(reversed(list(side.trees.values())), workspace.base_commit)
        repos.append(workspace.repo)
        trees.append(leave_out(workspace, last, own))
    if not has_object(repos[0], trees[1]):
        message = f"The files of runs {first.run_id} and {second.run_id} are in different repositories."
        raise RunNotInState(message, hint="Forks of one run, and runs on one repository, can be compared.")
    return diff(repos[0], *trees)


def find_left_out(data_dir: Path, run_id: str, trees: Mapping[str, str]) -> list[LeftOutGroup]:
    """List what the run's result leaves out because set-up made it or it was copied in; `trees` as for `read_patch`."""
    try:
        workspace = open_workspace(data_dir, run_id)
        return read_setup(workspace).list_left_out(workspace, next(reversed(list(trees.values())), None))
    except WorkspaceError:
        return []


def describe_left_out(groups: Iterable[LeftOutGroup]) -> list[str]:
    """Say what is left out, in one line for each reason."""
    lines = []
    known = list(groups)
    for reason, words in _REASONS.items():
        names = [_name(group) for group in known if group.reason == reason]
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        lines += [f"{words}: {', '.join(names[:_MOST_NAMED])}{more}"] if names else []
    return lines


def _name(group: LeftOutGroup) -> str:
    if not group.path.endswith("/"):
        return group.path
    return f"{group.path} ({group.files:,} {'file' if group.files == 1 else 'files'})"


def record_requests(groups: Iterable[LeftOutGroup]) -> list[dict[str, Any]]:
    """Return the groups as JSON has them; what is no Unicode in a name is replaced."""
    return [
        {"path": group.path.encode(errors="replace").decode(), "files": group.files, "reason": group.reason}
        for group in groups
    ]


def read_edits(data_dir: Path, run_id: str, tree: str) -> str:
    """Return how a run's worktree differs from a recorded tree, as a patch; nothing if that cannot be seen from here.

    A person may edit what waits for their approval.
    """
    try:
        workspace = open_workspace(data_dir, run_id)
        return diff(workspace.repo, tree, write_tree(workspace).tree_id)
    except (WorkspaceError, OSError):
        return ""


def find_unfinished(
    data_dir: Path, run_id: str, recorded: Mapping[str, tuple[str, float]], phase_keys: Iterable[str]
) -> dict[str, tuple[str, float]]:
    """Return the files of these phases that were recorded last, and when.

    Those that the repository no longer has are left out: only a waiting phase's are sure to be in it.
    """
    found = {key: recorded[key] for key in phase_keys if key in recorded}
    if not found:
        return {}
    repo = open_workspace(data_dir, run_id).repo
    return {key: item for key, item in found.items() if has_object(repo, item[0])}


def order_trees(
    rows: Iterable[tuple[str, str | None, str | None]], unfinished: Mapping[str, tuple[str, float]] | None = None
) -> dict[str, str]:
    """Order by their ends the trees that phases left, by phase; rows are key, tree and end of each phase.

    `unfinished` has the files of phases that wait or are under way, as far as they were recorded, and when that was.
    """
    ends = [(ended_at or "", key, tree) for key, tree, ended_at in rows if tree and key not in (unfinished or {})]
    ends += [
        (to_time_text(datetime.fromtimestamp(recorded_at, UTC)), key, tree)
        for key, (tree, recorded_at) in (unfinished or {}).items()
    ]
    return {key: tree for _ended_at, key, tree in sorted(ends)}


def own_paths(workspace: Workspace, artifacts: Sequence[str]) -> list[str]:
    """Return the engine's own files as globs from the worktree on: artifacts, and what was moved aside for them."""
    prefix = workspace.root.relative_to(workspace.worktree)
    paths = [glob.escape((prefix / path).as_posix()) for path in artifacts]
    return [*paths, *(f"{path}.before-*" for path in paths)]


def find_artifact_paths(definition: Any) -> list[str]:
    """Return where the phases of a stored template hand in; of one that is damaged, those that can be found."""
    phases = definition.get("phases") if isinstance(definition, dict) else None
    artifacts = [each.get("expected_artifact") for each in phases or () if isinstance(each, dict)]
    return [each["path"] for each in artifacts if isinstance(each, dict) and isinstance(each.get("path"), str)]
