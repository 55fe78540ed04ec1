"""What a run changed in its repository, as a patch: in all or by one phase, and by default without the engine's files.

Plain values come in, so that the command line can read a patch without an ORM and without validating a template.
"""

import glob
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import RunNotInState
from holdfast.workspace import Workspace, diff, open_workspace


def read_patch(
    data_dir: Path,
    run_id: str,
    trees: Mapping[str, str],
    definition: Any,
    phase: str | None = None,
    *,
    with_own: bool = False,
) -> str:
    """The change as `git apply` takes it. Raises `RunNotInState` for a phase that has handed nothing in.

    `trees` are the files at the end of each phase, in the order of their ends; `definition` is the stored template.
    """
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
    return diff(workspace.repo, before, trees[keys[place]], without=own)


def order_trees(rows: Iterable[tuple[str, str | None, str | None]]) -> dict[str, str]:
    """By phase the tree it left, in the order of their ends; rows are key, tree and end of each phase."""
    kept = sorted((ended_at or "", key, tree) for key, tree, ended_at in rows if tree)
    return {key: tree for _ended_at, key, tree in kept}


def own_paths(workspace: Workspace, artifacts: Sequence[str]) -> list[str]:
    """The engine's own files as globs from the worktree on: artifacts, and what was moved aside for them."""
    prefix = workspace.root.relative_to(workspace.worktree)
    paths = [glob.escape((prefix / path).as_posix()) for path in artifacts]
    return [*paths, *(f"{path}.before-*" for path in paths)]


def find_artifact_paths(definition: Any) -> list[str]:
    """Where the phases of a stored template hand in; of one that is damaged, those that can be found."""
    phases = definition.get("phases") if isinstance(definition, dict) else None
    asked = [each.get("expected_artifact") for each in phases or () if isinstance(each, dict)]
    return [each["path"] for each in asked if isinstance(each, dict) and isinstance(each.get("path"), str)]
