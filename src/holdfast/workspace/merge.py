"""Brings a run's result to the user's branch as proper commits, without the engine's own files.

Everything is computed in git's objects first. Only when it fits is one ref moved, and before it the files of a checkout
that has the branch, if the user has no changes in them. A refusal changes nothing; a kill in the middle is finished by
the next merge.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from holdfast.errors import WorkspaceConflict, WorkspaceError
from holdfast.workspace.checkout import drop_index, few, move_branch
from holdfast.workspace.diffs import DiffSummary, changed_paths, is_named, summarize_diff
from holdfast.workspace.files import hold_lock
from holdfast.workspace.git import HOLDFAST, Author, Git, identity
from holdfast.workspace.refs import result_ref
from holdfast.workspace.repository import is_empty_start
from holdfast.workspace.worktree import Workspace


@dataclass(frozen=True)
class ResultStep:
    """One commit to be: a tree or commit that the run recorded, and what it did."""

    tree: str
    message: str


class MergeAction(StrEnum):
    """What `merge_result` did to the branch."""

    CREATED = "created"
    FAST_FORWARDED = "fast_forwarded"
    MERGED = "merged"
    NOTHING_TO_DO = "nothing_to_do"


@dataclass(frozen=True)
class Merged:
    """`checkout` is the folder whose files moved with the branch; `None` if no checkout has it."""

    action: MergeAction
    branch: str
    commit: str
    checkout: Path | None
    summary: DiffSummary


@dataclass(frozen=True)
class ResultBranch:
    """A branch that holds the result and can be pushed."""

    name: str
    commit: str


def merge_result(
    workspace: Workspace,
    steps: Sequence[ResultStep],
    *,
    target_branch: str,
    at: datetime,
    author: Author | None = None,
    without: Sequence[str] = (),
) -> Merged:
    """Bring the steps, as commits on the run's base, to `target_branch`, which is made if there is none.

    `without` names the engine's own files (paths, folders or globs): they stay what they were at the base. May be
    repeated. Raises `WorkspaceConflict` with the paths, and changes nothing, if branch or checkout do not fit.
    """
    with hold_lock(workspace.lock_path):
        git = Git(git_dir=workspace.repo, is_exact=False)
        tip = git.find("rev-parse", "--verify", "--quiet", f"refs/heads/{target_branch}^{{commit}}")
        result = _make_result(workspace, steps, at=at, author=author, without=without, tip=tip)
        if result is None or (tip and _is_ancestor(git, result, tip)):
            return Merged(MergeAction.NOTHING_TO_DO, target_branch, tip or "", None, DiffSummary(()))
        commit = result
        if tip and not _is_ancestor(git, tip, result):
            commit = _join(workspace, git, tip, result, target_branch=target_branch, at=at, author=author)
        start = tip or git.line("mktree")
        summary = summarize_diff(workspace.repo, start, commit)
        paths = changed_paths(workspace.repo, f"{start}^{{tree}}", f"{commit}^{{tree}}")
        checkout = move_branch(git, target_branch, tip, commit, paths=paths, state=workspace.state_dir)
        action = MergeAction.CREATED if not tip else _action(commit, result)
        return Merged(action, target_branch, commit, checkout, summary)


def make_branch(
    workspace: Workspace,
    steps: Sequence[ResultStep],
    *,
    at: datetime,
    name: str | None = None,
    author: Author | None = None,
    without: Sequence[str] = (),
) -> ResultBranch:
    """Put the result on a branch to push, by default the run's own. Another branch that exists is not moved."""
    with hold_lock(workspace.lock_path):
        git = Git(git_dir=workspace.repo)
        branch = name or workspace.branch
        commit = _make_result(workspace, steps, at=at, author=author, without=without) or workspace.base_commit
        old = git.find("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}")
        if old == commit:
            return ResultBranch(branch, commit)
        if old and branch != workspace.branch:
            raise WorkspaceError(f"There is a branch {branch!r} already.", hint="Name another one.", branch=branch)
        git.run("check-ref-format", "--branch", branch)
        git.run("update-ref", f"refs/heads/{branch}", commit, old or "0" * len(commit))
        if branch == workspace.branch and workspace.git_dir.is_dir():
            workspace.git.run("read-tree", "HEAD")  # so that `git status` there goes on telling the truth
        return ResultBranch(branch, commit)


def find_author(repo: Path) -> Author | None:
    """Who the user is by their git configuration."""
    git = Git(git_dir=repo, is_exact=False)
    name, email = (git.find("config", "--get", key) for key in ("user.name", "user.email"))
    return Author(name, email) if name and email else None


def _make_result(
    workspace: Workspace,
    steps: Sequence[ResultStep],
    *,
    at: datetime,
    author: Author | None,
    without: Sequence[str],
    tip: str | None = None,
) -> str | None:
    """The steps as commits on the base, kept under the run's result ref; `None` if they change nothing.

    What the branch at `tip` got from an earlier merge is not made again: the rest goes on top of it.
    """
    git = Git(git_dir=workspace.repo)
    trees = [leave_out(workspace, step.tree, without) for step in steps]
    is_unborn = is_empty_start(git, workspace.base_commit)
    before = git.line("rev-parse", f"{workspace.base_commit}^{{tree}}")
    known = git.find("rev-parse", "--verify", "--quiet", result_ref(workspace.run_id))
    is_merged = bool(known and tip and _is_ancestor(git, known, tip))
    if not trees or (trees[-1] == before and not is_merged):
        return None
    if known and git.line("rev-parse", f"{known}^{{tree}}") == trees[-1]:
        return known
    writer = Git(git_dir=workspace.repo, env=identity(author or find_author(workspace.repo) or HOLDFAST, at))
    commit = "" if is_unborn else workspace.base_commit
    made = list(zip(trees, steps, strict=True))
    if known and is_merged:
        commit, before = known, git.line("rev-parse", f"{known}^{{tree}}")
        made = made[trees.index(before) + 1 :] if before in trees else made[-1:]
    for tree, step in made:
        if tree != before:
            parent = ("-p", commit) if commit else ()
            commit, before = writer.line("commit-tree", tree, *parent, stdin=step.message.encode()), tree
    # crash: the same commits are found and used again, so a repeated merge recognises what the branch already has.
    git.run("update-ref", result_ref(workspace.run_id), commit)
    return commit


def leave_out(workspace: Workspace, tree: str, without: Sequence[str]) -> str:
    """The tree with the engine's own files as they were at the base."""
    index = workspace.state_dir / "index.merge"
    drop_index(index)
    git = Git(git_dir=workspace.repo, index=index)
    git.run("read-tree", f"{tree}^{{tree}}")
    ours = [
        path
        for path in changed_paths(workspace.repo, f"{workspace.base_commit}^{{tree}}", f"{tree}^{{tree}}")
        if is_named(without, path)
    ]
    zeros = "0" * len(workspace.base_commit)
    gone = "".join(f"0 {zeros}\t{path}\0" for path in ours)
    base = git.run("ls-tree", "-r", "-z", "--full-tree", workspace.base_commit).names
    back = "".join(f"{entry}\0" for entry in base if entry.split("\t", 1)[1] in set(ours))
    git.run("update-index", "-z", "--index-info", stdin=(gone + back).encode("utf-8", "surrogateescape"))
    return git.line("write-tree")


def _is_ancestor(git: Git, older: str, newer: str) -> bool:
    return git.run("merge-base", "--is-ancestor", older, newer, ok=(0, 1)).exit_code == 0


def _action(commit: str, result: str) -> MergeAction:
    return MergeAction.FAST_FORWARDED if commit == result else MergeAction.MERGED


def _join(
    workspace: Workspace, git: Git, tip: str, result: str, *, target_branch: str, at: datetime, author: Author | None
) -> str:
    options = ("--write-tree", "--name-only", "--no-messages", "-z", "--allow-unrelated-histories")
    merged = git.run("merge-tree", *options, tip, result, ok=(0, 1))
    tree, *conflicts = merged.names
    if merged.exit_code:
        paths = tuple(sorted(set(conflicts)))
        raise WorkspaceConflict(
            f"The result conflicts with branch {target_branch!r} in {few(paths)}; nothing was changed.",
            paths=paths,
            hint="Make a branch of the result and merge it by hand.",
        )
    message = f"Merge the result of run {workspace.run_id} into {target_branch}\n"
    writer = Git(git_dir=workspace.repo, env=identity(author or find_author(workspace.repo) or HOLDFAST, at))
    return writer.line("commit-tree", tree, "-p", tip, "-p", result, stdin=message.encode())
