"""What a run leaves in the data directory and in the repository: found and measured here, never changed.

Rule: only what can be assigned to a run by its name is a leftover. A folder that nobody here made is never one.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from holdfast.errors import WorkspaceError
from holdfast.workspace.cleanup.disk_usage import disk_bytes
from holdfast.workspace.diff import changed_paths, is_named
from holdfast.workspace.git import Git
from holdfast.workspace.refs import branch_names, run_refs, to_component
from holdfast.workspace.result import find_squashed, leave_out, list_results, read_commit
from holdfast.workspace.worktree import Workspace, open_workspace


class LeftoverKind(StrEnum):
    """What a leftover is; the values are what `gc --json` says."""

    WORKTREE = "worktree"
    BRANCH = "branch"
    SCRATCH = "scratch"
    SPOOL = "spool"
    REFS = "refs"
    REPOSITORY = "repository"
    REPORT = "report"
    STATE = "state"
    JOURNAL = "journal"


@dataclass(frozen=True)
class Leftover:
    """One thing that a run left; `path` is a file name, or a name of git's."""

    kind: LeftoverKind
    run_id: str
    path: str
    size_bytes: int


@dataclass(frozen=True)
class RunPlaces:
    """Where the files of one run lie in a data directory, there or not."""

    data_dir: Path
    run_id: str

    @property
    def _name(self) -> str:
        return to_component(self.run_id)

    @property
    def worktree(self) -> Path:
        return self.data_dir / "worktrees" / self._name

    @property
    def adopted(self) -> Path:
        return self.worktree.with_name(f"{self._name}.adopted")

    @property
    def state_dir(self) -> Path:
        return self.data_dir / "worktrees" / ".state" / self._name

    @property
    def trash(self) -> Path:
        return self.state_dir / "removed"

    @property
    def private_repository(self) -> Path:
        return self.data_dir / "repositories" / f"{self._name}.git"

    @property
    def report(self) -> Path:
        return self.data_dir / "reports" / self.run_id

    def find_workspace(self) -> Workspace | None:
        """Find the workspace, if one was made and lies where it should; one in a moved data directory does not."""
        try:
            workspace = open_workspace(self.data_dir, self.run_id)
        except WorkspaceError:
            return None
        return workspace if workspace.worktree == self.worktree else None

    def find_scratch(self) -> list[Path]:
        """Find the folders with the notes that agents of this run made beside their workspace."""
        workspace = self.find_workspace()
        roots = {self.worktree, *([workspace.root] if workspace else ())}
        names = (hashlib.sha256(str(root).encode()).hexdigest()[:16] for root in sorted(roots))
        return [path for name in names if (path := self.data_dir / "scratch" / name).is_dir()]


def list_spooled(data_dir: Path) -> dict[str, list[Path]]:
    """List the folders of commands by run. A folder that does not say whose it is is left out."""
    found: dict[str, list[Path]] = {}
    for folder in sorted(path for path in (data_dir / "spool").glob("*") if path.is_dir() and not path.suffix):
        try:
            key = json.loads((folder / "command.json").read_text())["key"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if isinstance(key, str) and ":" in key:
            found.setdefault(key.partition(":")[0], []).append(folder)
    return found


def list_branches(repo: Path) -> dict[str, str]:
    """List the branches of runs in a repository that no checkout of the user's is on, each with its commit."""
    if not repo.is_dir():
        return {}
    listed = Git(git_dir=repo).run(
        "for-each-ref", "--format=%(refname:lstrip=2) %(objectname) %(worktreepath)", "refs/heads", ok=(0, 128)
    )
    rows = [line.split(" ", 2) for line in listed.line.splitlines()]
    return {
        row[0]: row[1] for row in rows if row[0].startswith(("holdfast/", "holdfast-")) and _is_ours(row[0], row[2])
    }


def _is_ours(branch: str, worktree: str) -> bool:
    return not worktree or Path(worktree).name == branch.removeprefix("holdfast")[1:]


def find_idle_branch(workspace: Workspace, branches: dict[str, str]) -> str | None:
    """Find the run's branch if it holds nothing of its own: it stands where the run began, or a branch of the user's
    has all of it."""
    for branch in branch_names(workspace.run_id):
        commit = branches.get(branch)
        if commit and (commit == workspace.base_commit or is_reached(workspace.repo, commit)):
            return branch
    return None


def is_reached(repo: Path, commit: str) -> bool:
    """Tell whether a branch or tag of the user's, here or as a remote had it, reaches a commit."""
    listing = ("for-each-ref", f"--contains={commit}", "--format=%(refname)", "refs/heads", "refs/remotes", "refs/tags")
    found = Git(git_dir=repo).run(*listing, ok=(0, 1, 128, 129))
    refs = found.line.splitlines() if found.exit_code == 0 else []
    return any(not ref.startswith(("refs/heads/holdfast/", "refs/heads/holdfast-")) for ref in refs)


def find_unmerged(
    workspace: Workspace, tree: str | None, *, own: Sequence[str], branches: Iterable[str], is_delivered: bool
) -> str | None:
    """Say why deleting a run would lose work, or `None`: its whole result is with the user, or there is none.

    `tree` is what the last phase left, `own` are the engine's own files in it, `branches` those that a merge brought it
    to; `is_delivered` says that a plain folder has got these files.
    """
    repo = workspace.repo
    if not repo.is_dir():
        return f"its repository {repo} is not there, so nobody can say whether its result was merged"
    git = Git(git_dir=repo)
    rescued = git.line("for-each-ref", "--format=%(refname)", f"{run_refs(workspace.run_id)}/@rescue").splitlines()
    for ref in rescued:
        if _changes(workspace, ref, own):
            return f"it holds files that no phase recorded, under {ref}"
    if tree is None or not _changes(workspace, tree, own) or (workspace.is_private and is_delivered):
        return None
    # An earlier part of the result does not count: work that came after it would be lost.
    whole = leave_out(workspace, tree, own)
    commits = [commit for commit in list_results(workspace) if read_commit(git, commit)[0] == whole]
    commits += [commit for branch in branches if (commit := find_squashed(workspace, whole, branch))]
    return None if any(is_reached(repo, commit) for commit in commits) else "its result is not merged"


def _changes(workspace: Workspace, tree: str, own: Sequence[str]) -> bool:
    try:
        paths = changed_paths(workspace.repo, f"{workspace.base_commit}^{{tree}}", f"{tree}^{{tree}}")
    except WorkspaceError:
        return True  # what cannot be compared is not called nothing
    return any(not is_named(own, path) for path in paths)


def measure_files(places: RunPlaces, spooled: Sequence[Path]) -> list[Leftover]:
    """Measure what may go once a run is over, and can be made again: worktree, agents' notes, output of commands."""
    found: list[tuple[LeftoverKind, Path]] = []
    found += [(LeftoverKind.WORKTREE, path) for path in (places.worktree, places.trash) if path.is_dir()]
    workspace = places.find_workspace()
    if not found and workspace is not None and workspace.git_dir.is_dir():
        found.append((LeftoverKind.WORKTREE, workspace.git_dir))  # its files are gone, and git still knows it
    found += [(LeftoverKind.SCRATCH, path) for path in places.find_scratch()]
    found += [(LeftoverKind.SPOOL, path) for path in spooled]
    return [Leftover(kind, places.run_id, str(path), disk_bytes(path)) for kind, path in found]


def measure_run(places: RunPlaces) -> list[Leftover]:
    """Measure what goes only with the run itself: its workspace's record, its report, private repository and refs."""
    found = (
        (LeftoverKind.STATE, places.state_dir),
        (LeftoverKind.REPORT, places.report),
        (LeftoverKind.REPOSITORY, places.private_repository),
        (LeftoverKind.WORKTREE, places.adopted),
    )
    items = [Leftover(kind, places.run_id, str(path), disk_bytes(path)) for kind, path in found if path.exists()]
    workspace = places.find_workspace()
    if workspace is not None and not workspace.is_private and workspace.repo.is_dir():
        items.append(Leftover(LeftoverKind.REFS, places.run_id, run_refs(places.run_id), 0))
    return items
