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

from holdfast.errors import TargetBranchMissing, WorkspaceConflict, WorkspaceError
from holdfast.workspace.branch_checkout import check_files, few, move_branch
from holdfast.workspace.diff import DiffSummary, changed_paths, summarize_diff
from holdfast.workspace.files import hold_lock
from holdfast.workspace.git import Author, Git
from holdfast.workspace.refs import find_name_fault, is_own_branch
from holdfast.workspace.repository import Repository, is_empty_start, list_branches
from holdfast.workspace.result import (
    ResultCommit,
    ResultStep,
    commit_on,
    find_merged,
    find_squashed,
    is_ancestor,
    keep_result,
    keep_squashed,
    list_base_commits,
    list_commits,
    make_result,
    read_commit,
)
from holdfast.workspace.transfer.remotes import is_mirror
from holdfast.workspace.worktree import Workspace


class MergeAction(StrEnum):
    """What `merge_result` did to the branch."""

    CREATED = "created"
    FAST_FORWARDED = "fast_forwarded"
    MERGED = "merged"
    SQUASHED = "squashed"
    NOTHING_TO_DO = "nothing_to_do"


@dataclass(frozen=True)
class Merged:
    """`checkout` is the folder whose files moved with the branch; `None` if no checkout has it.

    `commits` are the subjects of the commits that the branch got, `base_commits` of those that it got because the run
    started from them and it did not have them. `is_empty` says that the run changed no file.
    """

    action: MergeAction
    branch: str
    commit: str
    checkout: Path | None
    summary: DiffSummary
    commits: tuple[str, ...] = ()
    is_empty: bool = False
    base_commits: tuple[str, ...] = ()


@dataclass(frozen=True)
class ResultBranch:
    """A branch that holds the result and can be pushed."""

    name: str
    commit: str


@dataclass(frozen=True)
class MergeOptions:
    """How a result is brought to a branch: as one commit, with a message of its own, to a branch yet to be made."""

    is_squashed: bool = False
    message: str = ""
    can_create: bool = True
    is_dry_run: bool = False
    author: Author | None = None
    """Of the commits; the user's own by default."""
    is_elsewhere: bool = False
    """The branch is a remote's, at `tip`: no branch here is moved, and whoever asks pushes the commit."""
    tip: str | None = None


@dataclass
class _Merge:
    """One result on its way to one branch."""

    workspace: Workspace
    branch: str
    at: datetime
    author: Author | None
    commits: Sequence[ResultCommit] = ()
    """What is to be brought; nothing if the branch has it all."""
    tip: str | None = None
    is_elsewhere: bool = False

    def __post_init__(self) -> None:
        self.git = Git(git_dir=self.workspace.repo, is_exact=False)
        if not self.is_elsewhere:
            self.tip = self.git.find("rev-parse", "--verify", "--quiet", f"refs/heads/{self.branch}^{{commit}}")
        self.since = find_merged(self.workspace, self.branch, self.tip)

    @property
    def tree(self) -> str:
        return self.commits[-1].tree

    @property
    def is_squashed_before(self) -> bool:
        """Whether the branch has an earlier part of the result as one commit."""
        return bool(self.since and self.tip and not is_ancestor(self.git, self.since, self.tip))

    def commit(self, tree: str, message: str, *parents: str) -> str:
        return commit_on(self.workspace, tree, message, parents=parents, at=self.at, author=self.author)


def merge_result(
    workspace: Workspace,
    steps: Sequence[ResultStep],
    *,
    target_branch: str,
    at: datetime,
    without: Sequence[str] = (),
    options: MergeOptions | None = None,
) -> Merged:
    """Bring the steps, as commits on the run's base, to `target_branch`.

    `without` names the engine's own files (paths, folders or globs): they stay what they were at the base. May be
    repeated. Raises `WorkspaceConflict` with the paths if branch or checkout do not fit, and `TargetBranchMissing`
    for a branch that is not there and may not be made; then nothing is changed. A dry run changes nothing either.
    """
    options = options or MergeOptions()
    with hold_lock(workspace.lock_path):
        merge = _Merge(workspace, target_branch, at, options.author, tip=options.tip, is_elsewhere=options.is_elsewhere)
        if is_own_branch(target_branch):
            _check_name(merge)
        merge.commits = list_commits(workspace, steps, without=without, message=options.message, since=merge.since)
        if not merge.commits and not merge.since:
            return Merged(MergeAction.NOTHING_TO_DO, target_branch, "", None, DiffSummary(()), is_empty=True)
        if not merge.commits:
            return Merged(MergeAction.NOTHING_TO_DO, target_branch, merge.tip or "", None, DiffSummary(()))
        if merge.tip is None and (options.can_create or target_branch != workspace.base_branch):
            _check_name(merge)
        if merge.tip is None and not options.can_create:
            _check_unborn(merge)
        return _bring(merge, options)


def _bring(merge: _Merge, options: MergeOptions) -> Merged:
    git, tip, state = merge.git, merge.tip, merge.workspace.state_dir
    result = make_result(
        merge.workspace, merge.commits, merge.branch, at=merge.at, author=merge.author, since=merge.since
    )
    # What the branch has as one commit is not in the history of the result: the rest comes as one commit, too.
    is_squashed = options.is_squashed or merge.is_squashed_before
    if is_squashed:
        commit, action = _squash(merge, options.message), MergeAction.SQUASHED if tip else MergeAction.CREATED
        subjects: tuple[str, ...] = (read_commit(git, commit)[1].partition("\n")[0],)
    else:
        commit, action = _join(merge, result)
        subjects = tuple(each.subject for each in merge.commits)
    if tip and _has_tree_of(git, tip, commit):
        return _leave_as_it_is(merge, tip, result, is_dry_run=options.is_dry_run)
    others = list_base_commits(merge.workspace, tip) if tip else ()
    start = tip or git.line("mktree")
    summary = summarize_diff(merge.workspace.repo, tip or merge.workspace.base_commit, commit)
    paths = changed_paths(merge.workspace.repo, f"{start}^{{tree}}", f"{commit}^{{tree}}")
    if options.is_dry_run:
        place = None if merge.is_elsewhere else check_files(git, merge.branch, tip, commit, paths=paths, state=state)
        return Merged(action, merge.branch, commit, place, summary, subjects, base_commits=others)
    # crash: the same commits are found and used again, so a repeated merge recognises what the branch already has.
    keep_result(merge.workspace, result, merge.branch)
    if is_squashed:
        keep_squashed(merge.workspace, merge.tree, merge.branch, commit)
    place = None if merge.is_elsewhere else move_branch(git, merge.branch, tip, commit, paths=paths, state=state)
    return Merged(action, merge.branch, commit, place, summary, subjects, base_commits=others)


def _has_tree_of(git: Git, tip: str, commit: str) -> bool:
    return git.line("rev-parse", f"{tip}^{{tree}}") == git.line("rev-parse", f"{commit}^{{tree}}")


def _leave_as_it_is(merge: _Merge, tip: str, result: str, *, is_dry_run: bool) -> Merged:
    """Add no commit to a branch that has every file of the result, as after the merge of the run it was forked from."""
    if not is_dry_run:
        # crash: without the second ref the next merge finds the same again; with both it knows what the branch has.
        keep_result(merge.workspace, result, merge.branch)
        keep_squashed(merge.workspace, merge.tree, merge.branch, tip)
    return Merged(MergeAction.NOTHING_TO_DO, merge.branch, tip, None, DiffSummary(()))


def _check_name(merge: _Merge) -> None:
    """Refuse what can be no branch's name, before anything is made."""
    fault = find_name_fault(merge.branch)
    if fault is not None:
        raise TargetBranchMissing(
            f"{merge.branch!r} cannot be the name of a branch to merge into: {fault}.",
            branch=merge.branch,
            can_be_made=False,
            hint="Name another one: --into BRANCH.",
        )


def _check_unborn(merge: _Merge) -> None:
    """Let a branch be made only if it is the one that is checked out in a repository without commits."""
    workspace, git = merge.workspace, merge.git
    is_head = git.find("symbolic-ref", "--quiet", "HEAD") == f"refs/heads/{merge.branch}"
    if is_head and is_empty_start(git, workspace.base_commit):
        return
    known = list_branches(Repository(workspace.repo))
    if is_mirror(workspace.repo, workspace.state_dir.parents[2]):
        known = tuple(dict.fromkeys(name.removeprefix("origin/") for name in known))
    names = [name for name in known if not name.startswith("holdfast/")]
    there = f"There are {', '.join(names[:20])}." if names else "There is none yet."
    if merge.branch == workspace.base_branch and _is_no_branch(git, merge.branch):
        raise TargetBranchMissing(
            f"The run started from {merge.branch[:40]}, which is no branch.",
            branch=merge.branch,
            can_be_made=False,
            hint=f"Name the branch to bring the result to: --into BRANCH. {there}",
        )
    raise TargetBranchMissing(
        f"There is no branch {merge.branch!r}.", branch=merge.branch, hint=f"{there} With --create it is made."
    )


def _is_no_branch(git: Git, name: str) -> bool:
    """Tell whether the name means a commit by itself, or is none that a branch can have."""
    is_commit = git.find("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}") is not None
    return is_commit or git.find("check-ref-format", "--branch", name) is None


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
        commits = list_commits(workspace, steps, without=without)
        commit = workspace.base_commit
        if commits:
            commit = make_result(workspace, commits, branch, at=at, author=author)
            keep_result(workspace, commit, branch)
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


def _join(merge: _Merge, result: str) -> tuple[str, MergeAction]:
    """Return the commit that the branch moves to: the result itself where that is ahead, else a merge of both."""
    if merge.tip is None:
        return result, MergeAction.CREATED
    if is_ancestor(merge.git, merge.tip, result):
        return result, MergeAction.FAST_FORWARDED
    tree = _merge_trees(merge, merge.tip, result)
    message = f"Merge the result of run {merge.workspace.run_id} into {merge.branch}\n"
    return merge.commit(tree, message, merge.tip, result), MergeAction.MERGED


def _squash(merge: _Merge, message: str) -> str:
    """Return one commit on the branch's tip that holds the whole result."""
    workspace, git, tip = merge.workspace, merge.git, merge.tip
    is_unborn = is_empty_start(git, workspace.base_commit)
    message = message or merge.commits[-1].message
    base = () if is_unborn else (workspace.base_commit,)
    if tip is None or tip == workspace.base_commit:
        tree, parents = merge.tree, (tip,) if tip else base
    elif merge.since:
        tree, parents = _merge_trees(merge, *_since_earlier(merge, tip, merge.since)), (tip,)
    else:
        tree, parents = _merge_trees(merge, tip, merge.commit(merge.tree, message, *base)), (tip,)
    known = find_squashed(workspace, merge.tree, merge.branch)
    if known and read_commit(git, known) == (tree, message.strip()) and _parents_of(git, known) == list(parents):
        return known
    return merge.commit(tree, message, *parents)


def _since_earlier(merge: _Merge, tip: str, since: str) -> tuple[str, str]:
    """Make two commits whose common start is what the branch has of the result: the branch, and the whole result."""
    start = merge.commit(f"{since}^{{tree}}", "Start\n")
    return merge.commit(f"{tip}^{{tree}}", "Branch\n", start), merge.commit(merge.tree, "Result\n", start)


def _parents_of(git: Git, commit: str) -> list[str]:
    return git.line("rev-parse", f"{commit}^@").split()


def _merge_trees(merge: _Merge, tip: str, result: str) -> str:
    options = ("--write-tree", "--name-only", "--no-messages", "-z", "--allow-unrelated-histories")
    merged = merge.git.run("merge-tree", *options, tip, result, ok=(0, 1))
    tree, *conflicts = merged.names
    if merged.exit_code:
        paths = tuple(sorted(set(conflicts)))
        raise WorkspaceConflict(
            f"The result conflicts with branch {merge.branch!r} in {few(paths)}; nothing was changed.",
            paths=paths,
            hint=f"Bring it to a branch of its own (holdfast merge {merge.workspace.run_id[:8]} --into NAME --create), "
            "then merge that branch with git.",
        )
    return tree
