"""Takes away what a run left. Every step can be repeated after a kill; the first step of the next call goes on.

Rule: the caller holds the run (or it is deleted), so nobody works in it meanwhile.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from holdfast.errors import WorkspaceError
from holdfast.workspace.cleanup.leftovers import (
    Leftover,
    LeftoverKind,
    RunPlaces,
    find_idle_branch,
    list_branches,
    measure_files,
    measure_run,
)
from holdfast.workspace.commands.spool_watch import find_end, read_spooled
from holdfast.workspace.files import hold_lock, remove_folder
from holdfast.workspace.git import Git
from holdfast.workspace.refs import branch_names, run_refs
from holdfast.workspace.restore import remove_workspace
from holdfast.workspace.worktree_registration import forget_worktree


@dataclass(frozen=True)
class Disposal:
    """What went, and what stays with the reason. `rescue_refs` keep files that no phase had recorded."""

    items: tuple[Leftover, ...]
    obstacles: tuple[str, ...] = ()
    rescue_refs: tuple[str, ...] = ()


def dispose_files(places: RunPlaces, spooled: Sequence[Path], *, at: datetime) -> Disposal:
    """Remove a run's worktree, branch, notes and command output; what git can hold is under a ref first.

    What cannot be removed safely stays, with the reason. The run's refs and the record of its workspace stay.
    """
    planned = measure_files(places, spooled)
    gone: list[Leftover] = []
    obstacles: list[str] = []
    rescued: tuple[str, ...] = ()
    try:
        worktree = [item for item in planned if item.kind is LeftoverKind.WORKTREE]
        if worktree:
            rescued = _remove_worktree(places, at)
            gone += worktree
    except WorkspaceError as error:
        obstacles.append(error.message)
    else:
        gone += _remove_branch(places)
    for item in planned:
        if item.kind is LeftoverKind.SCRATCH or (item.kind is LeftoverKind.SPOOL and not _is_running(Path(item.path))):
            _remove_at_once(Path(item.path))
            gone.append(item)
        elif item.kind is LeftoverKind.SPOOL:
            obstacles.append(f"the command in {item.path} still runs")
    return Disposal(tuple(gone), tuple(obstacles), rescued)


def _remove_worktree(places: RunPlaces, at: datetime) -> tuple[str, ...]:
    workspace = places.find_workspace()
    if workspace is None:
        raise WorkspaceError(f"nothing says which repository {places.worktree} belongs to")
    if not workspace.repo.is_dir():
        raise WorkspaceError(f"{places.worktree} may hold the only copy: its repository {workspace.repo} is not there")
    return remove_workspace(workspace, at=at).rescue_refs


def _remove_branch(places: RunPlaces) -> list[Leftover]:
    workspace = places.find_workspace()
    if workspace is None or not workspace.repo.is_dir():
        return []
    branches = list_branches(workspace.repo)
    branch = find_idle_branch(workspace, branches)
    if branch is None:
        return []
    # With the commit it was seen at: a branch that has moved meanwhile is somebody's.
    deleted = Git(git_dir=workspace.repo).run(
        "update-ref", "-d", f"refs/heads/{branch}", branches[branch], ok=(0, 1, 128)
    )
    return [] if deleted.exit_code else [Leftover(LeftoverKind.BRANCH, places.run_id, branch, 0)]


def _is_running(folder: Path) -> bool:
    try:
        spooled = read_spooled(folder)
    except (OSError, ValueError, KeyError, TypeError):
        return True  # unreadable: nobody knows
    return spooled is not None and find_end(spooled) is None and spooled.is_running


def dispose_run(places: RunPlaces, repo: Path | None, spooled: Sequence[Path]) -> Disposal:
    """Remove everything that a deleted run has on disk and in git. Nothing of it is kept under a ref first.

    `repo` is the git directory with its refs; if that is not there, the rest goes all the same, and it is said.
    """
    planned = [*measure_files(places, spooled), *measure_run(places)]
    obstacles: list[str] = []
    for folder in (places.worktree, places.adopted):
        if folder.is_dir():
            places.state_dir.mkdir(parents=True, exist_ok=True)
            _empty_trash(places)
            folder.rename(places.trash)  # crash: it is no worktree any more; the next call empties the trash
        _empty_trash(places)
    if repo is not None and repo.is_dir() and repo != places.private_repository:
        obstacles += _remove_refs(places, repo)
    elif repo is not None and repo != places.private_repository:
        obstacles.append(f"refs under {run_refs(places.run_id)} in {repo}, which is not there")
    for path in (*places.find_scratch(), *spooled):
        if path.is_dir():
            _remove_at_once(path)
    # crash: the record of the workspace goes last; the note in the database knows the repository without it.
    for folder in (places.private_repository, places.report, places.state_dir):
        if folder.is_dir():
            remove_folder(folder)
    return Disposal(tuple(planned), tuple(obstacles))


_REMOVED = ".removed"


def _remove_at_once(folder: Path) -> None:
    """Remove a folder that only its content can be known by."""
    trash = folder.with_name(f"{folder.name}{_REMOVED}")
    if trash.is_dir():
        remove_folder(trash)
    folder.rename(trash)  # crash: half a folder would be nobody's; what has this name goes with the next clean-up
    remove_folder(trash)


def finish_removal(data_dir: Path) -> None:
    """Remove what a killed clean-up had begun to."""
    for parent in (data_dir / "spool", data_dir / "scratch"):
        for trash in sorted(parent.glob(f"*{_REMOVED}")):
            remove_folder(trash)


def _empty_trash(places: RunPlaces) -> None:
    if places.trash.is_dir():
        remove_folder(places.trash)


def _remove_refs(places: RunPlaces, repo: Path) -> list[str]:
    git = Git(git_dir=repo)
    with hold_lock(places.state_dir / "lock"):
        forget_worktree(git, places.worktree)
        refs = git.line("for-each-ref", "--format=%(refname)", run_refs(places.run_id)).splitlines()
        obstacles: list[str] = []
        known = list_branches(repo)
        for branch in branch_names(places.run_id):
            if branch in known:
                refs.append(f"refs/heads/{branch}")
            elif git.find("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}"):
                obstacles.append(f"the branch {branch}, which is checked out elsewhere")
        git.run("update-ref", "--stdin", stdin="".join(f"delete {ref}\n" for ref in refs).encode())
    return obstacles
