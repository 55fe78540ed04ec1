"""Where a new run starts: the branch and commit of the user's repository, found before anything is made."""

from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import BaseBranchMissing
from holdfast.workspace.git import Git, is_object_id
from holdfast.workspace.refs import find_name_fault
from holdfast.workspace.repository import (
    Repository,
    find_repository,
    git_at,
    list_branches,
    missing_folder,
    resolve_base,
)
from holdfast.workspace.repository_guard.checkout_size import check_size

_SHORT = 7
_VERIFY = ("rev-parse", "--verify", "--quiet", "--end-of-options")
_FOLDER_BRANCH = "main"  # what a private repository's first branch is called


@dataclass(frozen=True)
class Start:
    """The name a run starts from, and the commit it stands at: none in a folder without git or without commits."""

    name: str
    commit: str | None = None
    is_branch: bool = True
    is_folder: bool = False

    def describe(self) -> str:
        """Say where the run starts and where its result goes, in one line for a person."""
        if self.is_folder:
            return "From a copy of this folder, which has no git; holdfast merge writes the result back to it."
        if self.commit is None:
            return f"From nothing: the repository has no commit; holdfast merge makes branch {self.name}."
        short = self.commit[:_SHORT]
        if self.is_branch:
            return f"From {self.name} at {short}; holdfast merge brings the result back there."
        name = f"commit {short}" if self.name == self.commit else f"{self.name}, commit {short}"
        return f"From {name}, which is no branch of its own; holdfast merge needs --into BRANCH."


def find_start(repo_path: Path, base_branch: str | None = None, *, data_dir: Path | None = None) -> Start:
    """Find what `base_branch` names, or without one what is checked out at `repo_path`; nothing is changed.

    With a detached HEAD the name is the commit's. Raises `BaseBranchMissing`, and what `find_repository` raises. With
    `data_dir`, where a worktree would be made, also what would keep it from being made: `WorkspaceTooLarge`, and
    `WorkspaceError` for a subfolder that the commit does not have.
    """
    repository = find_repository(repo_path)
    if repository is None:
        _check_name(base_branch or _FOLDER_BRANCH)
        return Start(base_branch or _FOLDER_BRANCH, is_folder=True)
    start = _find(repository, base_branch)
    if start.commit is not None and data_dir is not None:
        check_size(repository.git, start.commit, data_dir)
        _check_has_folder(repository, start)
    return start


def _find(repository: Repository, base_branch: str | None) -> Start:
    if (found := _read_branch(repository, base_branch)) is not None:
        return found
    name = base_branch or find_current_branch(repository)
    if name is None:
        commit = git_at(repository).line("rev-parse", "HEAD^{commit}")
        return Start(commit, commit, is_branch=False)
    # Most runs start from a branch that is there; one question answers all that is asked below.
    if tip := repository.git.find(*_VERIFY, f"refs/heads/{name}^{{commit}}"):
        return Start(name, tip)
    if _is_empty(repository):
        _check_name(name)
        return Start(name)
    if base_branch is None:
        _check_has_commit(repository, name)
    is_branch = repository.git.find(*_VERIFY, f"refs/heads/{name}") is not None
    return Start(name, resolve_base(repository, name), is_branch=is_branch)


def _read_branch(repository: Repository, base_branch: str | None) -> Start | None:
    """Read the branch and its commit from git's own files, as they are for most; `None` where those do not say."""
    head = repository.git_dir / "HEAD"
    if repository.checkout is not None and repository.checkout / ".git" != repository.git_dir:
        return None  # a linked worktree has a HEAD of its own
    try:
        name = base_branch or head.read_text().removeprefix("ref: refs/heads/").rstrip("\n")
        if find_name_fault(name) is not None:
            return None
        commit = (repository.git_dir / "refs" / "heads" / name).read_text().rstrip("\n")
    except (OSError, ValueError):
        return None
    return Start(name, commit) if is_object_id(commit) else None


def find_current_branch(repository: Repository) -> str | None:
    """Find the branch that is checked out, with or without a commit; `None` for a detached HEAD."""
    head = git_at(repository).find("symbolic-ref", "--quiet", "HEAD")
    return head.removeprefix("refs/heads/") if head else None


def _is_empty(repository: Repository) -> bool:
    return not list_branches(repository) and git_at(repository).find("rev-parse", "--verify", "--quiet", "HEAD") is None


def _check_name(branch: str) -> None:
    """Refuse a name that no branch can have, where the run would make the branch."""
    is_ref = Git().find("check-ref-format", f"refs/heads/{branch}") is not None
    if not is_ref or branch.startswith("-") or branch == "HEAD":
        message = f"{branch!r} cannot be the name of a branch."
        raise BaseBranchMissing(message, branches=(), hint="Name another one, or none.")


def _check_has_folder(repository: Repository, start: Start) -> None:
    # Not with `^{tree}` behind it: after a colon that would be part of the path.
    path = f"{start.commit}:{repository.prefix}"
    if repository.prefix and repository.git.find("cat-file", "-t", path) != "tree":
        raise missing_folder(repository.prefix, start.name)


def _check_has_commit(repository: Repository, branch: str) -> None:
    if repository.git.find("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}") is not None:
        return
    branches = tuple(name for name in list_branches(repository) if not name.startswith("holdfast/"))
    raise BaseBranchMissing(
        f"Branch {branch!r} is checked out, but has no commit yet.",
        branches=branches,
        hint=f"Commit something first, or start from another branch: {', '.join(branches[:20]) or 'there is none'}.",
    )
