"""What a merge would do, before anybody says yes: which files, where to, and under which commit message."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.config import Config
from holdfast.engine.conversation.journal import is_conversation
from holdfast.engine.patch import order_trees, own_paths
from holdfast.engine.run.load import get_run, read_template
from holdfast.engine.run.local_files import bring_files
from holdfast.persistence.db import Database
from holdfast.persistence.runs import StoredRun
from holdfast.workflow import WorkflowTemplate
from holdfast.workspace import FileChange, Git, Workspace, is_named, open_workspace, summarize_diff
from holdfast.workspace.diff import read_change_kinds
from holdfast.workspace.result import find_merged, list_base_commits

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
    others: str = ""
    """What else the branch would get, since the run started from commits that it does not have."""


async def preview_merge(db: Database, config: Config, run_id: str) -> MergePreview:
    """Return what merging a run's result as it stands would bring: what was changed since the last merge, if any.

    Raises `RunNotFound` and `TemplateLoadFailed`.
    """
    stored = await get_run(db, run_id)
    await bring_files(db, config, stored.run, [row.tree for row in stored.phases.values() if row.tree])
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
    branch = into or workspace.base_branch
    tip = _find_tip(workspace, branch)
    start = find_merged(workspace, branch, tip) or workspace.base_commit
    kinds = read_change_kinds(workspace.repo, start, trees[-1])
    kinds = {path: kind for path, kind in kinds.items() if not is_named(own, path)}
    summary = summarize_diff(workspace.repo, start, trees[-1])
    files = tuple(file for file in summary.files if file.path in kinds)
    message = f"{describe_change(kinds)}\n\nConversation {stored.run.id}.\n"
    missing = () if tip is None or workspace.is_private else list_base_commits(workspace, tip)
    others = describe_base_commits(missing, branch, workspace.base_branch, is_done=False).strip()
    return MergePreview(target, files, kinds, message, others)


def _find_tip(workspace: Workspace, branch: str) -> str | None:
    return Git(git_dir=workspace.repo).find("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}^{{commit}}")


def describe_base_commits(subjects: Sequence[str], branch: str, base_branch: str, *, is_done: bool) -> str:
    """Say which commits a branch gets because the run started from them, as a sentence to append; nothing if none."""
    if not subjects:
        return ""
    names = ", ".join(f"“{subject}”" for subject in subjects[:_MOST_NAMES])
    more = f" and {len(subjects) - _MOST_NAMES} more" if len(subjects) > _MOST_NAMES else ""
    whose = f" of {base_branch}" if base_branch != branch else ""
    verb = "also got" if is_done else "would also get"
    what = f"{len(subjects)} commit{'' if len(subjects) == 1 else 's'}"
    return f" {branch} {verb} {what}{whose} that the run started from: {names}{more}."


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
