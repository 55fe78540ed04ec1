"""What a merge would do, before anybody says yes: which files, where to, and under which commit message."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.config import Config
from holdfast.engine.conversation.journal import is_conversation
from holdfast.engine.patch import order_trees, own_paths
from holdfast.engine.run.load import get_run, read_template
from holdfast.persistence.db import Database
from holdfast.persistence.runs import StoredRun
from holdfast.workflow import WorkflowTemplate
from holdfast.workspace import FileChange, Git, Workspace, is_named, open_workspace, summarize_diff
from holdfast.workspace.diff import read_change_kinds
from holdfast.workspace.result import find_merged

_VERBS = {"A": "Add", "D": "Remove"}
_MOST_NAMES = 3
_SUBJECT_CHARS = 72


@dataclass(frozen=True)
class MergePreview:
    """`target` is a branch, or the folder that a run without git was copied from."""

    target: str
    files: tuple[FileChange, ...]
    kinds: Mapping[str, str]
    """By path `A`, `M` or `D`: added, modified, deleted."""
    message: str


async def preview_merge(db: Database, config: Config, run_id: str) -> MergePreview:
    """Return what merging a run's result as it stands would bring: what was changed since the last merge, if any.

    Raises `RunNotFound` and `TemplateLoadFailed`.
    """
    stored = await get_run(db, run_id)
    return await asyncio.to_thread(preview_stored, config, stored, read_template(stored))


def preview_stored(
    config: Config, stored: StoredRun, template: WorkflowTemplate, into: str | None = None
) -> MergePreview:
    workspace = open_workspace(config.data_dir, stored.run.id)
    trees = list(order_trees((row.phase_key, row.tree, row.ended_at) for row in stored.phases.values()).values())
    target = str(workspace.source) if workspace.is_private else into or workspace.base_branch
    if not trees:
        return MergePreview(target, (), {}, "")
    own = own_paths(workspace, template.artifact_paths)
    start = _find_start(workspace, into or workspace.base_branch)
    kinds = read_change_kinds(workspace.repo, start, trees[-1])
    kinds = {path: kind for path, kind in kinds.items() if not is_named(own, path)}
    summary = summarize_diff(workspace.repo, start, trees[-1])
    files = tuple(file for file in summary.files if file.path in kinds)
    return MergePreview(target, files, kinds, f"{describe_change(kinds)}\n\nConversation {stored.run.id}.\n")


def _find_start(workspace: Workspace, branch: str) -> str:
    """Return what the branch has of the run: its base, or what an earlier merge brought."""
    tip = Git(git_dir=workspace.repo).find("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}^{{commit}}")
    return find_merged(workspace, branch, tip) or workspace.base_commit


def default_message(
    config: Config, stored: StoredRun, template: WorkflowTemplate, into: str | None = None
) -> str | None:
    """Return the message for a conversation's commit, made from its files; `None` for other workflows."""
    return preview_stored(config, stored, template, into).message if is_conversation(template) else None


def describe_change(kinds: Mapping[str, str]) -> str:
    """Make a commit's subject from its files: `Change calc.py`, `Add a.py and b.py`, `Change 7 files in src/app`."""
    verb = next((verb for kind, verb in _VERBS.items() if set(kinds.values()) == {kind}), "Change")
    paths = sorted(kinds)
    for names in (paths, [path.rpartition("/")[2] for path in paths]):
        subject = f"{verb} {_enumerate(names)}"
        if len(paths) <= _MOST_NAMES and len(subject) <= _SUBJECT_CHARS and subject.isprintable():
            return subject
    folder = os.path.commonpath([path.rpartition("/")[0] or "." for path in paths]) if paths else ""
    where = f" in {folder}" if folder not in ("", ".") and folder.isprintable() else ""
    return f"{verb} {len(paths)} file{'s' if len(paths) != 1 else ''}{where}"


def _enumerate(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "nothing"
