"""Makes what a run recorded readable in this place, whichever machine drove it: objects, refs, and where they are.

Everything here may be repeated and done by several processes at once: objects are unpacked before a ref or the note of
the workspace names them.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path

from holdfast.concurrency import in_remote_thread
from holdfast.config import Config
from holdfast.errors import RepositoryMissing, WorkspaceError
from holdfast.persistence.carried_files import find_base, read_base_parts, read_packs
from holdfast.persistence.db import Database
from holdfast.persistence.models import RunBaseRow, RunRow
from holdfast.workspace import Workspace, find_place, open_workspace
from holdfast.workspace.cleanup.leftovers import RunPlaces
from holdfast.workspace.refs import branch_names
from holdfast.workspace.repository import find_repository
from holdfast.workspace.transfer.packs import (
    find_missing,
    has_trees,
    make_carried_repository,
    set_refs,
    unpack,
)
from holdfast.workspace.transfer.quarantine import has_whole
from holdfast.workspace.transfer.remotes import is_remote, open_mirror
from holdfast.workspace.worktree import note_workspace


async def bring_files(db: Database, config: Config, run: RunRow, trees: Iterable[str]) -> None:
    """Make these trees of a run readable by `open_workspace` here, from the database if they are not.

    What cannot be had is left for the reader to find missing. Raises `RepositoryMissing`, `WorkspaceError`.
    """
    names: Iterable[str] = list(trees)
    if await asyncio.to_thread(has_trees, config.data_dir, run.id, names):
        return
    base = await find_base(db, run.id)
    if base is None or not base.commit_id:
        return  # an earlier version made it: its files are where it was driven; or nobody has driven it yet
    workspace = await _find_place(db, config, run, base)
    if not await asyncio.to_thread(has_whole, workspace.repo, names):
        await unpack_all(db, run.id, workspace.repo)
    await asyncio.to_thread(note_workspace, workspace)


async def check_folder(db: Database, config: Config, run: RunRow) -> None:
    """Raise `RepositoryMissing` if a run starts from what a folder holds when it is first driven, and the folder of
    that path here is not the one that was named."""
    if run.base_commit is not None or is_remote(run.repo_path) or _is_shared(config, run.repo_path):
        return
    base = await find_base(db, run.id)
    if base is None and config.carries_files:
        raise RepositoryMissing(
            f"An earlier version made the run, and did not say whose folder {run.repo_path} is.",
            hint="Start it again on the machine that has the folder.",
            path=run.repo_path,
        )
    if base is not None and base.origin != (await asyncio.to_thread(find_place, config.data_dir)).data:
        raise _not_reached(config, run.repo_path)


async def unpack_all(db: Database, run_id: str, repo: Path) -> None:
    """Put all that the database has of a run's files into a repository, and set the run's refs to it."""
    refs: dict[str, str] = {}
    async for rows in read_packs(db, run_id):
        await asyncio.to_thread(unpack, repo, [row.pack for row in rows])
        refs |= {name: commit for row in rows for name, commit in row.refs.items()}
    await asyncio.to_thread(set_refs, repo, run_id, refs)


async def _find_place(db: Database, config: Config, run: RunRow, base: RunBaseRow) -> Workspace:
    """Return the workspace as it is known here, or one on the repository that stands for the run's here."""
    try:
        known = await asyncio.to_thread(open_workspace, config.data_dir, run.id)
        if known.repo.is_dir():
            return known
    except WorkspaceError:
        pass
    repo, is_carried = await _find_repository(db, config, run, base)
    places = RunPlaces(config.data_dir.resolve(), run.id)
    is_folder_here = not is_carried and not is_remote(run.repo_path)
    return Workspace(
        run_id=run.id,
        root=places.worktree / base.prefix,
        worktree=places.worktree,
        git_dir=repo / "worktrees" / places.worktree.name,
        repo=repo,
        source=Path(run.repo_path) if is_folder_here else None,
        state_dir=places.state_dir,
        branch=branch_names(run.id)[0],
        base_branch=run.base_branch,
        base_commit=base.commit_id,
        is_private=bool(base.is_private),
        is_carried=is_carried,
    )


async def _find_repository(db: Database, config: Config, run: RunRow, base: RunBaseRow) -> tuple[Path, bool]:
    """Find or make the repository that has the run's base here; and say whether the real one is elsewhere."""
    if is_remote(run.repo_path):
        allowed = config.allowed_repositories
        return await in_remote_thread(
            lambda: open_mirror(run.repo_path, base.commit_id, config.data_dir, allowed=allowed)
        ), False
    if await asyncio.to_thread(_is_reached, config, run.repo_path, base):
        repo = await asyncio.to_thread(_find_folder, config, run, is_private=bool(base.is_private))
        if repo.is_dir() and not await asyncio.to_thread(find_missing, repo, [base.commit_id]):
            return repo, False
    if not base.digest:
        raise _not_reached(config, run.repo_path)
    repo = RunPlaces(config.data_dir.resolve(), run.id).private_repository
    if not repo.is_dir():
        parts = [part async for part in read_base_parts(db, base.digest)]
        await asyncio.to_thread(make_carried_repository, repo, base.commit_id, base.digest, parts)
    await asyncio.to_thread(set_refs, repo, run.id, {"@base": base.commit_id})
    return repo, True


def _find_folder(config: Config, run: RunRow, *, is_private: bool) -> Path:
    """Return the git directory for a folder of this machine; a fork of a folder without git shares its original's."""
    found = None if is_private else find_repository(Path(run.repo_path))
    if found is not None:
        return found.git_dir
    private = RunPlaces(config.data_dir.resolve(), run.id).private_repository
    if private.is_dir() or run.forked_from is None:
        return private
    try:
        return open_workspace(config.data_dir, run.forked_from).repo
    except WorkspaceError:
        return private


def _is_reached(config: Config, repo_path: str, base: RunBaseRow) -> bool:
    """Tell whether the path means the run's repository here: on its own machine, or where all machines see the same."""
    is_own = not base.digest or base.origin == find_place(config.data_dir).data
    return (is_own or _is_shared(config, repo_path)) and Path(repo_path).is_dir()


def _is_shared(config: Config, repo_path: str) -> bool:
    return any(Path(repo_path).resolve().is_relative_to(root.resolve()) for root in config.shared_roots)


def _not_reached(config: Config, repo_path: str) -> RepositoryMissing:
    """Return the error of a folder that this machine does not have, and the database neither."""
    if _is_shared(config, repo_path):
        return RepositoryMissing(
            f"The repository {repo_path} lies under shared_roots, but this machine does not see it.",
            hint="Look whether the folder is mounted here, under the same path as on the other machines.",
            path=repo_path,
        )
    return RepositoryMissing(
        f"The repository {repo_path} is a folder of another machine, and not carried.",
        hint="Go on there, put it under shared_roots, or start runs with carry_files on.",
        path=repo_path,
    )
