"""What set-up made, so that a run's result can leave it out unless a phase has changed it.

The files after set-up are kept as a commit on top of those before it, under a ref of the run. What differs between the
two is set-up's, tracked files too, for as long as its content is the same. Folders that a tool fills are left out whole
(`tool_folders`), and copied files are in no tree at all (`copies`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import PurePosixPath
from typing import Literal

from holdfast.workspace.copied_files import read_copied
from holdfast.workspace.files import hold_lock
from holdfast.workspace.git import HOLDFAST, Git, identity
from holdfast.workspace.refs import setup_refs
from holdfast.workspace.snapshot import DEFAULT_RULES, build_tree, open_index
from holdfast.workspace.tool_folders import add_tool_folders, find_tool_folders
from holdfast.workspace.worktree import Workspace

_GONE = ""


@dataclass(frozen=True)
class LeftOutGroup:
    """A file, or a folder with '/' at its end and the number of files in it, that is no part of the result."""

    path: str
    files: int
    reason: Literal["setup", "copy"]


@dataclass(frozen=True)
class SetupFiles:
    """By path the contents that set-up gave it, the folders it filled, and the files that were copied."""

    made: Mapping[str, frozenset[str]] = field(default_factory=dict)
    folders: Mapping[str, int] = field(default_factory=dict)
    copied: tuple[str, ...] = ()

    def find_unchanged(self, workspace: Workspace, tree: str) -> set[str]:
        """Find the paths that the tree holds as set-up made them."""
        if not self.made:
            return set()
        changed = _read_changes(Git(git_dir=workspace.repo), workspace.base_commit, tree)
        return {path for path, content in changed.items() if content in self.made.get(path, ())}

    def list_left_out(self, workspace: Workspace, tree: str | None) -> list[LeftOutGroup]:
        """List what a result of this tree leaves out; files in a folder that git did not know are one entry."""
        groups = {f"{path}/": count for path, count in self.folders.items()}
        unchanged = self.find_unchanged(workspace, tree) if tree else set()
        known = _read_folders(workspace) if unchanged else set()
        for path in unchanged:
            name = _find_new_folder(path, known) or path
            groups[name] = groups.get(name, 0) + 1
        copied = [LeftOutGroup(path, 1, "copy") for path in self.copied]
        return [LeftOutGroup(path, count, "setup") for path, count in sorted(groups.items())] + copied


def record_setup(workspace: Workspace, *, before: str, at: datetime) -> dict[str, object]:
    """Keep what the worktree holds now, right after set-up, on top of the tree `before` it. May happen twice."""
    with hold_lock(workspace.lock_path):
        folders = find_tool_folders(open_index(workspace), workspace.worktree)
        # crash: listed before the first tree is built, so none ever holds them; the caller does all of it again.
        add_tool_folders(workspace, folders)
        tree = build_tree(workspace, DEFAULT_RULES).tree_id
        git = Git(git_dir=workspace.repo, env=identity(HOLDFAST, at))
        first = git.line("commit-tree", git.line("rev-parse", f"{before}^{{tree}}"), "-m", "Before set-up")
        message = json.dumps({"folders": folders}).encode()
        commit = git.line("commit-tree", tree, "-p", first, stdin=message)
        _keep(git, workspace.run_id, commit)
        return {"commit": commit, "setup_tree": tree, "folders": folders}


def inherit_setup(workspace: Workspace, origin_run_id: str) -> None:
    """Let a fork know what the set-up of the run it came from made: it starts with those files. May be repeated."""
    git = Git(git_dir=workspace.repo)
    for commit in _list_commits(git, origin_run_id):
        _keep(git, workspace.run_id, commit)


def read_setup(workspace: Workspace) -> SetupFiles:
    """Read what every set-up of the run has made."""
    git = Git(git_dir=workspace.repo)
    made: dict[str, set[str]] = {}
    folders: dict[str, int] = {}
    for commit in _list_commits(git, workspace.run_id):
        for path, content in _read_changes(git, f"{commit}^", commit).items():
            made.setdefault(path, set()).add(content)
        folders |= json.loads(git.line("log", "-1", "--format=%B", commit)).get("folders", {})
    copied = tuple(sorted(read_copied(workspace)))
    return SetupFiles({path: frozenset(contents) for path, contents in made.items()}, folders, copied)


def _keep(git: Git, run_id: str, commit: str) -> None:
    git.run("update-ref", f"{setup_refs(run_id)}/{commit[:20]}", commit)


def _list_commits(git: Git, run_id: str) -> list[str]:
    return git.line("for-each-ref", "--sort=creatordate", "--format=%(objectname)", setup_refs(run_id)).split()


def _read_changes(git: Git, before: str, after: str) -> dict[str, str]:
    """Return the mode and content that `after` has of each changed path; a path that is gone has none."""
    names = git.run("diff-tree", "-r", "-z", "--no-renames", f"{before}^{{tree}}", f"{after}^{{tree}}").names
    changes = {}
    for facts, path in zip(names[::2], names[1::2], strict=True):
        _old_mode, mode, _old_blob, blob, status = facts.lstrip(":").split(" ")
        changes[path] = _GONE if status == "D" else f"{mode} {blob}"
    return changes


def _read_folders(workspace: Workspace) -> set[str]:
    listing = ("ls-tree", "-r", "-d", "-z", "--name-only", "--full-tree", workspace.base_commit)
    return set(Git(git_dir=workspace.repo).run(*listing).names)


def _find_new_folder(path: str, known: set[str]) -> str | None:
    """Find the topmost folder of a path that git did not know."""
    parents = [parent.as_posix() for parent in reversed(PurePosixPath(path).parents)][1:]
    return next((f"{folder}/" for folder in parents if folder not in known), None)
