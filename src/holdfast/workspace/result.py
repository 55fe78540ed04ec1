"""A run's result as commits on its base: made of git's objects, kept under the run's refs, on no branch yet.

What is not the run's work is left out of every commit: the engine's own files, and what set-up made.
"""

import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from holdfast.workspace.diff import changed_paths, is_named
from holdfast.workspace.git import HOLDFAST, Author, Git, identity
from holdfast.workspace.refs import result_ref, result_refs, squash_ref
from holdfast.workspace.repository import is_empty_start
from holdfast.workspace.setup_files import SetupFiles, read_setup
from holdfast.workspace.worktree import Workspace


@dataclass(frozen=True)
class ResultStep:
    """One commit to be: a tree or commit that the run recorded, what it did, and the name of its phase."""

    tree: str
    message: str
    label: str = ""


@dataclass(frozen=True)
class ResultCommit:
    """A commit to be made: its tree without what is left out, and its whole message."""

    tree: str
    message: str

    @property
    def subject(self) -> str:
        return self.message.strip().partition("\n")[0]


def list_commits(
    workspace: Workspace,
    steps: Sequence[ResultStep],
    *,
    without: Sequence[str],
    message: str = "",
    since: str | None = None,
) -> list[ResultCommit]:
    """List the commits that the steps come to, on the run's base; none if they change nothing in all.

    `since` is what a branch already has of them, by `find_merged`: then only what is new. A `message` takes the place
    of theirs; where there are several commits, each says its step's label too.
    """
    setup = read_setup(workspace)
    start = before = Git(git_dir=workspace.repo).line("rev-parse", f"{since or workspace.base_commit}^{{tree}}")
    trees = [leave_out(workspace, step.tree, without, setup=setup) for step in steps]
    new = list(zip(trees, steps, strict=True))
    if since:
        new = new[trees.index(start) + 1 :] if start in trees else new[-1:]
    changed: list[tuple[str, ResultStep]] = []
    for tree, step in new:
        if tree != before:
            changed.append((tree, step))
            before = tree
    if before == start:
        return []
    is_single = len(changed) == 1
    return [ResultCommit(tree, _to_message(message, step, is_single=is_single)) for tree, step in changed]


def _to_message(message: str, step: ResultStep, *, is_single: bool) -> str:
    if not message.strip():
        return step.message
    subject, _, body = message.strip().partition("\n")
    return f"{subject}{'' if is_single or not step.label else f': {step.label}'}\n{body}"


def make_result(
    workspace: Workspace,
    commits: Sequence[ResultCommit],
    branch: str,
    *,
    at: datetime,
    author: Author | None = None,
    since: str | None = None,
) -> str:
    """Make the commits on the run's base, or on `since`, and return the last one; those kept for `branch` are used."""
    git = Git(git_dir=workspace.repo)
    known = find_result(workspace, branch)
    if known and _read_commits(git, since or workspace.base_commit, known) == _to_plain(commits):
        return known
    commit = since or ("" if is_empty_start(git, workspace.base_commit) else workspace.base_commit)
    for each in commits:
        commit = commit_on(workspace, each.tree, each.message, parents=[commit] if commit else [], at=at, author=author)
    return commit


def keep_result(workspace: Workspace, commit: str, branch: str) -> None:
    """Keep the commits under a ref of the run and the branch, so that a repeated merge recognises what it has."""
    Git(git_dir=workspace.repo).run("update-ref", result_ref(workspace.run_id, branch), commit)


def find_result(workspace: Workspace, branch: str) -> str | None:
    """Find the last commit of the result as it was kept for a branch."""
    return Git(git_dir=workspace.repo).find("rev-parse", "--verify", "--quiet", result_ref(workspace.run_id, branch))


def list_results(workspace: Workspace) -> list[str]:
    """List the last commit of the result for each branch that it was brought to."""
    listing = ("for-each-ref", "--format=%(objectname)", result_refs(workspace.run_id))
    return Git(git_dir=workspace.repo).line(*listing).splitlines()


def find_merged(workspace: Workspace, branch: str, tip: str | None) -> str | None:
    """Find the last commit of the result that a branch at `tip` has from an earlier merge, as it is or squashed."""
    git, known = Git(git_dir=workspace.repo), find_result(workspace, branch)
    if not known or not tip:
        return None
    for commit in git.line("rev-list", "--first-parent", known, f"^{workspace.base_commit}").split():
        squashed = find_squashed(workspace, read_commit(git, commit)[0], branch)
        if is_ancestor(git, commit, tip) or (squashed and is_ancestor(git, squashed, tip)):
            return commit
    return None


def list_base_commits(workspace: Workspace, tip: str) -> tuple[str, ...]:
    """List the subjects of the commits before the run's base that a branch at `tip` does not have, the newest first."""
    git = Git(git_dir=workspace.repo)
    if is_empty_start(git, workspace.base_commit):
        return ()
    subjects = git.line("log", "--format=%s", workspace.base_commit, f"^{tip}").splitlines()
    return tuple(subject.encode(errors="replace").decode() for subject in subjects)  # of anyone's making


def is_ancestor(git: Git, commit: str, tip: str) -> bool:
    """Return whether `tip` has the commit."""
    return git.run("merge-base", "--is-ancestor", commit, tip, ok=(0, 1)).exit_code == 0


def keep_squashed(workspace: Workspace, tree: str, branch: str, commit: str) -> None:
    """Keep the one commit that brings this result to this branch."""
    Git(git_dir=workspace.repo).run("update-ref", _squash_ref(workspace, tree, branch), commit)


def find_squashed(workspace: Workspace, tree: str, branch: str) -> str | None:
    """Find the one commit that brings, or brought, this result to this branch."""
    ref = _squash_ref(workspace, tree, branch)
    return Git(git_dir=workspace.repo).find("rev-parse", "--verify", "--quiet", ref)


def _squash_ref(workspace: Workspace, tree: str, branch: str) -> str:
    return squash_ref(workspace.run_id, hashlib.sha256(f"{tree} {branch}".encode()).hexdigest())


def commit_on(
    workspace: Workspace, tree: str, message: str, *, parents: Sequence[str], at: datetime, author: Author | None
) -> str:
    """Make a commit by the author, or by who the user is; it is on no branch."""
    writer = Git(git_dir=workspace.repo, env=identity(author or find_author(workspace.repo) or HOLDFAST, at))
    named = [word for parent in parents for word in ("-p", parent)]
    return writer.line("commit-tree", tree, *named, stdin=message.encode(errors="replace"))


def find_author(repo: Path) -> Author | None:
    """Find who the user is by their git configuration."""
    git = Git(git_dir=repo, is_exact=False)
    name, email = (git.find("config", "--get", key) for key in ("user.name", "user.email"))
    return Author(name, email) if name and email else None


def leave_out(workspace: Workspace, tree: str, without: Sequence[str], *, setup: SetupFiles | None = None) -> str:
    """Return the tree with the engine's own files, and what set-up made, as they were at the base."""
    setup = read_setup(workspace) if setup is None else setup
    changed = changed_paths(workspace.repo, f"{workspace.base_commit}^{{tree}}", f"{tree}^{{tree}}")
    ours = {path for path in changed if is_named(without, path)} | setup.find_unchanged(workspace, tree)
    if not ours:
        return Git(git_dir=workspace.repo).line("rev-parse", f"{tree}^{{tree}}")
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        git = Git(git_dir=workspace.repo, index=Path(folder, "index"))
        git.run("read-tree", f"{tree}^{{tree}}")
        zeros = "0" * len(workspace.base_commit)
        gone = "".join(f"0 {zeros}\t{path}\0" for path in sorted(ours))
        base = git.run("ls-tree", "-r", "-z", "--full-tree", workspace.base_commit).names
        back = "".join(f"{entry}\0" for entry in base if entry.split("\t", 1)[1] in ours)
        git.run("update-index", "-z", "--index-info", stdin=(gone + back).encode("utf-8", "surrogateescape"))
        return git.line("write-tree")


def read_commit(git: Git, commit: str) -> tuple[str, str]:
    """Read tree and message of a commit."""
    tree, _, message = git.line("log", "-1", "--format=%T%n%B", commit).partition("\n")
    return tree, message.strip()


def _read_commits(git: Git, base: str, last: str) -> list[tuple[str, str]]:
    listed = git.line("rev-list", "--reverse", "--first-parent", last, f"^{base}").split()
    return [read_commit(git, commit) for commit in listed]


def _to_plain(commits: Sequence[ResultCommit]) -> list[tuple[str, str]]:
    return [(each.tree, each.message.strip()) for each in commits]
