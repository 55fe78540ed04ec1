"""What a run starts from, as rows that any machine can begin with: where it came from, and a pack of its commit."""

import asyncio
from dataclasses import replace
from pathlib import Path

from holdfast.config import Config
from holdfast.errors import WorkspaceError, WorkspaceTooLarge
from holdfast.persistence.carried_files import count_base_parts, find_base
from holdfast.persistence.db import Database
from holdfast.persistence.statements import NewRunBase, insert_base_part, put_base, use_base
from holdfast.persistence.statements.file_packs import PART_BYTES
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.journal import Journal
from holdfast.workspace import Workspace, find_place
from holdfast.workspace.cleanup.leftovers import RunPlaces
from holdfast.workspace.files import remove_folder
from holdfast.workspace.private_repository import COPY_LIMITS, ensure_private_repository
from holdfast.workspace.repository import Repository, find_repository, resolve_base
from holdfast.workspace.transfer.packs import make_base_pack
from holdfast.workspace.transfer.remotes import is_mirror, is_remote

BASES_JOURNAL = "holdfast-bases"  # it has no events
_PARTS_AT_ONCE = 8


async def fix_start(config: Config, run_id: str, repo_path: str, base_branch: str) -> str | None:
    """Return the commit of a run that is made on a folder without one, whose files are to travel.

    A folder without git is copied now: another machine that goes on with the run has no such folder, or another one
    of that name. Raises `WorkspaceTooLarge`.
    """
    if not config.carries_files or is_remote(repo_path):
        return None
    return await asyncio.to_thread(_fix_start, config.data_dir.resolve(), run_id, Path(repo_path), base_branch)


def _fix_start(data_dir: Path, run_id: str, path: Path, base_branch: str) -> str:
    found = find_repository(path)
    if found is not None:
        return resolve_base(found, base_branch)
    private = RunPlaces(data_dir, run_id).private_repository
    if private.exists():
        remove_folder(private)  # of a process that died before it wrote the run
    # crash: a copy of a run that is not there; it is made anew with the run.
    made = ensure_private_repository(
        private, path.resolve(), base_branch=base_branch, data_dir=data_dir, limits=COPY_LIMITS
    )
    return made.git.line("rev-parse", f"refs/heads/{base_branch}")


async def rows_of_new(
    db: Database, journal: Journal, config: Config, run_id: str, start: tuple[str, str | None]
) -> list[Statement]:
    """Return the rows of the base of a run that is being made; `start` are its repository and commit.

    Raises `WorkspaceTooLarge`, and the copy of a folder without git is gone then.
    """
    repo_path, commit = start
    place = (await asyncio.to_thread(find_place, config.data_dir)).data
    if commit is None and not is_remote(repo_path):
        return [put_base(NewRunBase(run_id, place))]  # whose folder it is, until its first drive copies it
    if not config.carries_files or commit is None:
        return []
    found = None if is_remote(repo_path) else await asyncio.to_thread(_find_folder, Path(repo_path))
    base = NewRunBase(run_id, place, commit, prefix=found.prefix if found else "")
    if found is not None:
        return await _carry(db, journal, config, base, found.git_dir)
    private = RunPlaces(config.data_dir.resolve(), run_id).private_repository
    if is_remote(repo_path) or not private.is_dir():
        return [put_base(base)]
    try:
        return await _carry(db, journal, config, replace(base, is_private=True), private)
    except WorkspaceTooLarge:
        await asyncio.to_thread(remove_folder, private)
        raise


async def rows_of_workspace(db: Database, journal: Journal, config: Config, workspace: Workspace) -> list[Statement]:
    """Return the rows of the base of a run whose workspace is ready; those that its maker wrote stay."""
    prefix = workspace.root.relative_to(workspace.worktree).as_posix()
    base = NewRunBase(
        workspace.run_id,
        (await asyncio.to_thread(find_place, config.data_dir)).data,
        workspace.base_commit,
        prefix="" if prefix == "." else prefix,
        is_private=workspace.is_private,
    )
    known = await find_base(db, workspace.run_id)
    is_carried = known is not None and bool(known.digest)
    if not config.carries_files or is_carried or is_mirror(workspace.repo, config.data_dir):
        return [put_base(base)]
    return await _carry(db, journal, config, base, workspace.repo)


def _find_folder(path: Path) -> Repository | None:
    try:
        return find_repository(path)
    except WorkspaceError:
        return None  # whoever drives the run says what is wrong with it


async def _carry(db: Database, journal: Journal, config: Config, base: NewRunBase, repo: Path) -> list[Statement]:
    """Store the pack of the commit, unless it is there or every machine sees the folder, and return the run's rows."""
    resolved = await asyncio.to_thread(repo.resolve)
    if any(resolved.is_relative_to(root.resolve()) for root in config.shared_roots):
        return [put_base(base)]
    limit = config.carry_max_mb * 1024**2
    pack = await asyncio.to_thread(lambda: make_base_pack(repo, base.commit_id, part_bytes=PART_BYTES, max_bytes=limit))
    if await count_base_parts(db, pack.digest) < len(pack.parts):
        for first in range(0, len(pack.parts), _PARTS_AT_ONCE):
            part_rows = [
                insert_base_part(pack.digest, number, pack.parts[number])
                for number in range(first, min(first + _PARTS_AT_ONCE, len(pack.parts)))
            ]
            # crash: parts that no run has; a clean-up takes them after a day.
            await journal.append(BASES_JOURNAL, [], rows=part_rows)
    return [use_base(pack.digest, len(pack.parts)), put_base(replace(base, digest=pack.digest))]
