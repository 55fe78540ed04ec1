"""Deleting one run: the rows and the journal in one transaction, then its files and refs.

Rule: a run is there or gone. What is left to remove of one that is gone is noted in the same transaction, and whoever
cleans up next goes on with it.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from holdfast.concurrency import finish_then_cancel
from holdfast.engine.patch import find_artifact_paths, own_paths
from holdfast.engine.run.load import get_run
from holdfast.errors import RowRefused, RunNotInState, UnmergedResult
from holdfast.persistence.db import Database
from holdfast.persistence.deletion import (
    deletion_rows,
    find_deleted,
    forget_deleted,
    read_last_tree,
    read_merges,
)
from holdfast.persistence.event_feed import needs_positions
from holdfast.persistence.models import DeletedRunRow
from holdfast.runtime.checkpoint.base import Claim
from holdfast.runtime.journal import Journal
from holdfast.workspace.cleanup.disposal import Disposal, dispose_run
from holdfast.workspace.cleanup.leftovers import RunPlaces, find_unmerged


async def find_obstacle(db: Database, places: RunPlaces) -> str | None:
    """Say why deleting a run would lose somebody's work, or return `None`."""
    stored = await get_run(db, places.run_id)
    workspace = await asyncio.to_thread(places.find_workspace)
    if workspace is None:
        was_made = stored.run.worktree_root is not None
        return f"its files are not in {places.data_dir}" if was_made else None
    merges = await read_merges(db, places.run_id)
    own = own_paths(workspace, find_artifact_paths(stored.template.definition if stored.template else None))
    return await asyncio.to_thread(
        lambda tree: find_unmerged(
            workspace,
            tree,
            own=own,
            branches={str(merge["branch"]) for merge in merges if merge.get("branch")},
            is_delivered=any(merge.get("folder") for merge in merges),
        ),
        await read_last_tree(db, places.run_id),
    )


async def delete_run(
    db: Database, journal: Journal, claim: Claim, places: RunPlaces, *, can_lose_unmerged: bool
) -> DeletedRunRow:
    """Delete a run that is over and held by `claim`; on return it is gone, and its files are still to be removed.

    Raises `UnmergedResult` if it holds work that the user has nowhere else, `RunNotInState` if it goes on or has forks.
    """
    obstacle = None if can_lose_unmerged else await find_obstacle(db, places)
    if obstacle:
        raise UnmergedResult(obstacle, run_id=claim.run_id)
    workspace = await asyncio.to_thread(places.find_workspace)
    repo = "" if workspace is None else str(workspace.repo)
    rows = deletion_rows(claim.run_id, data_dir=str(places.data_dir), repo=repo, has_positions=needs_positions(db))
    try:
        # crash: before the commit the run is whole, after it it is gone with a note of what is left of it.
        await finish_then_cancel(journal.delete(claim, rows=rows))
    except RowRefused as error:
        # Postgres may have committed and lost the answer; then the note is there.
        if await find_deleted(db, claim.run_id) is None:
            raise RunNotInState(f"Run {claim.run_id} goes on, or a run was forked from it.") from error
    deleted = await find_deleted(db, claim.run_id)
    assert deleted is not None, "only a clean-up of this data directory removes the note, and there is one"
    return deleted


async def finish_deleted(journal: Journal, deleted: DeletedRunRow, spooled: Sequence[Path]) -> Disposal:
    """Remove what a deleted run has left; may be repeated. While its repository is away the note of it stays."""
    places = RunPlaces(Path(deleted.data_dir), deleted.run_id)
    repo = Path(deleted.repo) if deleted.repo else None
    done = await finish_then_cancel(asyncio.to_thread(dispose_run, places, repo, spooled))
    is_reached = repo is None or repo.is_dir() or repo == places.private_repository
    if is_reached:
        # crash: the note stands though nothing is left; the next clean-up finds nothing and takes it away.
        await forget_deleted(journal, deleted.run_id)
    return done
