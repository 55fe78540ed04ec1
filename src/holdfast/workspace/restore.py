"""Puts an earlier tree into the worktree, and takes a worktree away. Both keep first what no ref reaches.

Ignored files and copied ones are left where they are by `restore`. `remove_workspace` removes ignored files with the
folder: they were declared to be reproducible; nothing else goes that is not kept.
"""

import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from holdfast.errors import WorkspaceError
from holdfast.workspace.copied_files import read_copied
from holdfast.workspace.files import find_occupants, hold_lock, remove_folder
from holdfast.workspace.git import Git
from holdfast.workspace.refs import rescue_ref, run_refs
from holdfast.workspace.snapshot import (
    DEFAULT_RULES,
    LeftOut,
    LeftOutReason,
    SnapshotRules,
    build_tree,
    commit_tree,
    index_git,
    index_path,
    list_ignored,
    stage,
)
from holdfast.workspace.worktree import Workspace
from holdfast.workspace.worktree_registration import forget_worktree


@dataclass(frozen=True)
class Restored:
    """`tree_before` lay in the worktree until now; `rescue_ref` keeps it, if nothing else did."""

    tree_id: str
    tree_before: str
    rescue_ref: str | None


def restore(
    workspace: Workspace,
    tree_id: str,
    *,
    at: datetime,
    rules: SnapshotRules = DEFAULT_RULES,
    can_discard: bool = False,
) -> Restored:
    """Make the worktree hold exactly that tree. What was there is kept under a rescue ref first, unless a ref reaches
    it or `can_discard` says that it may go. May be repeated after a kill."""
    with hold_lock(workspace.lock_path):
        target = _tree_of(workspace.git, tree_id)
        before = build_tree(workspace, rules)
        index = _copy_index(workspace)
        git = index_git(workspace, index)
        # What the target would overwrite although the tree does not hold it: ignored, or too big for a snapshot.
        endangered = [*_in_the_way(workspace, git, target), *_changed_but_left_out(git, before.left_out)]
        if endangered:
            stage(git, endangered)
        held = git.line("write-tree")
        rescue = None if can_discard else _keep(workspace, held, at=at)
        # crash: the worktree is a mixture of both trees and the rescue ref holds the earlier one; restore again.
        git.run("read-tree", "-m", "-u", held, target)
        index.replace(index_path(workspace))
        return Restored(target, before.tree_id, rescue)


def _copy_index(workspace: Workspace) -> Path:
    """Make an index to put more into than trees may hold; if a failure leaves it behind, nobody reads it."""
    index = workspace.state_dir / "index.work"
    for left in (index, index.with_name("index.work.lock")):
        left.unlink(missing_ok=True)
    if index_path(workspace).exists():
        shutil.copy2(index_path(workspace), index)
    return index


def _tree_of(git: Git, tree_id: str) -> str:
    found = git.find("rev-parse", "--verify", "--quiet", "--end-of-options", f"{tree_id}^{{tree}}")
    if found is None:
        raise WorkspaceError(f"The tree {tree_id} is not in the repository.", tree_id=tree_id)
    return found


def _in_the_way(workspace: Workspace, git: Git, target: str) -> list[str]:
    indexed = set(git.run("ls-files", "-z").names)
    target_paths = set(git.run("ls-tree", "-r", "-z", "--name-only", "--full-tree", target).names)
    found = {path for name in target_paths - indexed for path in find_occupants(workspace.worktree, name)} - indexed
    copied = sorted(found & read_copied(workspace))
    if copied:
        raise WorkspaceError(
            f"The tree holds {copied[0]!r}, which was copied into this workspace.",
            hint="Take it off the template's copy list, or move it away.",
            paths=tuple(copied),
        )
    return sorted(found)


def _changed_but_left_out(git: Git, left_out: tuple[LeftOut, ...]) -> list[str]:
    big = {item.path for item in left_out if item.reason is LeftOutReason.TOO_BIG}
    return sorted(big & set(git.run("ls-files", "-z").names)) if big else []


def _keep(workspace: Workspace, tree_id: str, *, at: datetime) -> str | None:
    """Make the tree reachable; `None` if a ref of the run reaches it already."""
    git = workspace.git
    refs = ("for-each-ref", "--format=%(tree)", run_refs(workspace.run_id), f"refs/heads/{workspace.branch}")
    head = git.line("rev-parse", "HEAD")
    is_head_reachable = bool(git.line("for-each-ref", "--count=1", "--contains", head))
    if is_head_reachable and tree_id in (*git.line(*refs).split(), git.line("rev-parse", "HEAD^{tree}")):
        return None
    ref = rescue_ref(workspace.run_id, tree_id)
    commit = commit_tree(workspace, tree_id, "Kept before the worktree was overwritten or removed", at=at)
    git.run("update-ref", ref, commit)
    return ref


@dataclass(frozen=True)
class Removed:
    """What `remove_workspace` kept first, and the ignored files that went with the folder (folders end with '/')."""

    rescue_refs: tuple[str, ...]
    ignored: tuple[str, ...]


def remove_workspace(workspace: Workspace, *, at: datetime, can_discard_nested: bool = False) -> Removed:
    """Take the worktree away once everything in it is reachable from a ref; branch and refs stay. May be repeated.

    Raises `WorkspaceError`, and removes nothing, while it holds what git cannot keep: a nested repository, work inside
    a submodule, a file that cannot be read.
    """
    with hold_lock(workspace.lock_path):
        rescue_refs: list[str] = []
        ignored: tuple[str, ...] = ()
        if workspace.worktree.is_dir() and workspace.git_dir.is_dir():
            ignored = list_ignored(workspace)
            rescue_refs = _keep_all(workspace, at=at, can_discard_nested=can_discard_nested)
        elif workspace.worktree.is_dir():
            raise WorkspaceError(
                f"The repository no longer knows the worktree {workspace.worktree}.",
                hint="Resume the run, which registers it again, then remove it.",
            )
        trash = workspace.state_dir / "removed"
        if trash.is_dir():
            remove_folder(trash)  # of a call that was killed; the worktree may have been made again since
        if workspace.worktree.is_dir():
            workspace.worktree.rename(trash)  # crash: all it holds is reachable; `prepare_workspace` makes it again
        if trash.is_dir():
            remove_folder(trash)
        forget_worktree(Git(git_dir=workspace.repo), workspace.worktree)
        index_path(workspace).unlink(missing_ok=True)
        return Removed(tuple(rescue_refs), ignored)


def _keep_all(workspace: Workspace, *, at: datetime, can_discard_nested: bool) -> list[str]:
    tree = build_tree(workspace, SnapshotRules(max_file_bytes=None), index=_copy_index(workspace))
    lost = [item for item in tree.left_out if not can_discard_nested or item.reason is LeftOutReason.UNREADABLE]
    if lost:
        names = ", ".join(f"{item.path} ({item.reason.value.replace('_', ' ')})" for item in lost[:5])
        raise WorkspaceError(
            f"The worktree is not removed: no ref can keep {names}.",
            hint="Move it to a place of your own first.",
            paths=tuple(item.path for item in lost),
        )
    # What was staged in the worktree's own index and is not in its files any more.
    staged = workspace.git.find("write-tree")
    trees = [tree.tree_id] if staged is None else [tree.tree_id, staged]
    return [ref for ref in (_keep(workspace, tree_id, at=at) for tree_id in trees) if ref]
