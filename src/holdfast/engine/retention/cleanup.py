"""Cleaning up after runs that are over: what goes, and what stays with a reason.

Rule: first what can be made again (worktrees, branches without work, notes, command output) of runs that are over;
whole runs only if asked. A run that is live, paused, asked to go on, or held by another process is left alone.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TypedDict, Unpack

from holdfast.concurrency import finish_then_cancel
from holdfast.config import Config
from holdfast.engine.retention.deletion import delete_run, find_obstacle, finish_deleted
from holdfast.engine.retention.selection import Selection, choose, order_for_deletion
from holdfast.errors import CleanupBusy, HoldfastError, RunBusy, RunNotInState, UnmergedResult
from holdfast.persistence.compaction import Compaction, compact
from holdfast.persistence.db import Database
from holdfast.persistence.deletion import (
    OverRun,
    count_open,
    find_over,
    list_deleted,
    list_forks,
    list_over,
    list_run_ids,
    measure_journal,
)
from holdfast.runtime.checkpoint.base import Claim
from holdfast.runtime.journal import Journal
from holdfast.runtime.stores import open_journal
from holdfast.workspace.cleanup.disk_usage import disk_bytes
from holdfast.workspace.cleanup.disposal import Disposal, dispose_files, finish_removal
from holdfast.workspace.cleanup.leftovers import (
    Leftover,
    LeftoverKind,
    RunPlaces,
    find_idle_branch,
    list_branches,
    list_spooled,
    measure_files,
    measure_run,
)

Tell = Callable[[str], None]
"""Hears, in a line each, what is being done."""


class CleanupOptions(TypedDict, total=False):
    """What may go, and who hears of it: nothing that is not merged, and nobody, if not said otherwise."""

    can_lose_unmerged: bool
    is_dry_run: bool
    tell: Tell


@dataclass(frozen=True)
class Skipped:
    run_id: str
    reason: str
    code: str = ""
    """Of the error behind it, if it was one."""


@dataclass
class Cleanup:
    """What was done, or would be."""

    is_dry_run: bool
    items: list[Leftover] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    rescue_refs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    database: Compaction | None = None

    @property
    def size_bytes(self) -> int:
        return sum(item.size_bytes for item in self.items)

    @property
    def deleted_runs(self) -> list[str]:
        return [item.run_id for item in self.items if item.kind is LeftoverKind.JOURNAL]

    def add(self, run_id: str, disposal: Disposal) -> None:
        self.items += disposal.items
        self.rescue_refs += disposal.rescue_refs
        self.skipped += [Skipped(run_id, reason) for reason in disposal.obstacles]


async def clean_up(
    db: Database,
    config: Config,
    selection: Selection,
    *,
    now: datetime,
    deletes_runs: bool = False,
    **options: Unpack[CleanupOptions],
) -> Cleanup:
    """Clean up after the selected runs, or delete them with `deletes_runs`. May be repeated after a kill.

    Raises `CleanupBusy` while another clean-up works in this data directory.
    """
    cleaner = _Cleaner(db, config, now, options)
    async with cleaner.working():
        chosen = choose(await list_over(db), selection, now)
        if deletes_runs:
            await cleaner.delete_all(chosen, selection.max_bytes)
        else:
            await cleaner.clean_all(chosen, selection.max_bytes)
            await cleaner.note_what_stays()
    return cleaner.report


async def remove_runs(
    db: Database,
    config: Config,
    run_ids: Sequence[str],
    *,
    now: datetime,
    **options: Unpack[CleanupOptions],
) -> Cleanup:
    """Delete these runs, each as a whole. Raises `RunNotInState`, with nothing changed, if one is not over."""
    cleaner = _Cleaner(db, config, now, options)
    async with cleaner.working():
        over = {run.run_id: run for run in await list_over(db)}
        for run_id in run_ids:
            if run_id not in over:
                raise RunNotInState(f"Run {run_id} is not over.", hint=f"End it first: holdfast abort {run_id[:8]}")
        chosen = [run for run in over.values() if run.run_id in set(run_ids)]
        await cleaner.delete_all([run for run in chosen if await cleaner.may_be_deleted(run)], None)
    return cleaner.report


class _Cleaner:
    def __init__(
        self,
        db: Database,
        config: Config,
        now: datetime,
        options: CleanupOptions,
    ) -> None:
        self.report = Cleanup(options.get("is_dry_run", False))
        self._db = db
        self._config = config
        self._can_lose_unmerged = options.get("can_lose_unmerged", False)
        self._now = now
        self._report_progress: Tell = options.get("tell", lambda _text: None)
        self._data_dir = config.data_dir.resolve()
        self._spooled: dict[str, list[Path]] = {}
        self._branches: dict[Path, dict[str, str]] = {}
        self._journal: Journal | None = None

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Be the only clean-up of this data directory; begin with what a killed one left undone."""
        with _sole_cleanup(self._data_dir, is_dry_run=self.report.is_dry_run):
            if not self.report.is_dry_run:
                await asyncio.to_thread(finish_removal, self._data_dir)
            self._spooled = await asyncio.to_thread(list_spooled, self._data_dir)
            async with open_journal(self._db.store) as journal:
                self._journal = journal
                await self._finish_deleted(journal)
                yield

    async def _finish_deleted(self, journal: Journal) -> None:
        for row in await list_deleted(self._db, str(self._data_dir)):
            if self.report.is_dry_run:
                self.report.notes.append(f"Run {row.run_id} is deleted; the rest of its files goes with the next call.")
                continue
            self._report_progress(f"going on with deleted run {row.run_id[:8]}")
            self.report.add(row.run_id, await finish_deleted(journal, row, self._spooled.get(row.run_id, ())))

    # -- what can be made again ---------------------------------------------------------------------------------------

    async def clean_all(self, chosen: Sequence[OverRun], max_bytes: int | None) -> None:
        room = await self._count_room(max_bytes)
        for number, run in enumerate(chosen, 1):
            if max_bytes is not None and self.report.size_bytes >= room:
                break
            planned = await asyncio.to_thread(self._plan_files, run)
            if not planned:
                continue
            if self.report.is_dry_run:
                self.report.items += planned
                continue
            self._report_progress(f"cleaning up after run {run.run_id[:8]} ({number} of {len(chosen)})")
            with self._skipping(run.run_id):
                async with self._owning(run.run_id):
                    disposal = await self._dispose(run.run_id)
                self.report.add(run.run_id, disposal)

    def _plan_files(self, run: OverRun) -> list[Leftover]:
        places = RunPlaces(self._data_dir, run.run_id)
        items = measure_files(places, self._spooled.get(run.run_id, ()))
        workspace = places.find_workspace()
        if workspace is not None:
            if workspace.repo not in self._branches:
                self._branches[workspace.repo] = list_branches(workspace.repo)
            if branch := find_idle_branch(workspace, self._branches[workspace.repo]):
                items.append(Leftover(LeftoverKind.BRANCH, run.run_id, branch, 0))
        return items

    async def _dispose(self, run_id: str) -> Disposal:
        places = RunPlaces(self._data_dir, run_id)
        return await finish_then_cancel(
            asyncio.to_thread(dispose_files, places, self._spooled.get(run_id, ()), at=self._now)
        )

    async def note_what_stays(self) -> None:
        """Say what somebody may wonder about: runs that still wait, and folders that nobody here made."""
        waiting = await count_open(self._db)
        if paused := waiting.get("paused", 0):
            advice = "To free their space, abort those you do not need: holdfast abort RUN"
            self.report.notes.append(f"{paused} paused {_runs(paused)} left alone. {advice}")
        known = {RunPlaces(self._data_dir, run_id).worktree.name for run_id in await list_run_ids(self._db)}
        deleted = await list_deleted(self._db, str(self._data_dir))
        known |= {RunPlaces(self._data_dir, row.run_id).worktree.name for row in deleted}
        strangers = await asyncio.to_thread(_find_strangers, self._data_dir / "worktrees", known)
        if strangers:
            folders = "folder" if len(strangers) == 1 else "folders"
            note = f"{len(strangers)} {folders} in {self._data_dir / 'worktrees'} left alone: no run of this database."
            self.report.notes.append(note)

    # -- whole runs ---------------------------------------------------------------------------------------------------

    async def delete_all(self, chosen: Sequence[OverRun], max_bytes: int | None) -> None:
        room = await self._count_room(max_bytes)
        ordered, needed = order_for_deletion(chosen, await list_forks(self._db))
        self.report.skipped += [Skipped(run.run_id, "a run that stays was forked from it") for run in needed]
        for number, run in enumerate(ordered, 1):
            if max_bytes is not None and self.report.size_bytes >= room:
                break
            self._report_progress(f"deleting run {run.run_id[:8]} ({number} of {len(ordered)})")
            with self._skipping(run.run_id):
                await self._delete(run)
        if self.report.deleted_runs and not self.report.is_dry_run and self._config.database_path is not None:
            self._report_progress("making the database smaller")
            self.report.database = await asyncio.to_thread(compact, self._config.database_path)

    async def may_be_deleted(self, run: OverRun) -> bool:
        """Return whether nobody's work would be lost; if it would, the report says so."""
        if self._can_lose_unmerged:
            return True
        obstacle = await find_obstacle(self._db, RunPlaces(self._data_dir, run.run_id))
        if obstacle:
            self.report.skipped.append(Skipped(run.run_id, obstacle, UnmergedResult.code))
        return obstacle is None

    async def _delete(self, run: OverRun) -> None:
        size = await measure_journal(self._db, run.run_id)
        row = Leftover(LeftoverKind.JOURNAL, run.run_id, self._where, size)
        if self.report.is_dry_run:
            await self._rehearse(run, row)
            return
        places, spooled = RunPlaces(self._data_dir, run.run_id), self._spooled.get(run.run_id, ())
        async with self._owning(run.run_id) as (journal, claim):
            cleaned = await self._dispose(run.run_id)
            self.report.add(run.run_id, cleaned if not self._can_lose_unmerged else Disposal(cleaned.items))
            if cleaned.obstacles and not self._can_lose_unmerged:
                return
            rest = await asyncio.to_thread(measure_run, places)
            deleted = await delete_run(*(self._db, journal, claim, places), can_lose_unmerged=self._can_lose_unmerged)
        self.report.items += [row, *rest]
        finished = await finish_deleted(journal, deleted, spooled)
        self.report.skipped += [Skipped(run.run_id, reason) for reason in finished.obstacles]

    async def _rehearse(self, run: OverRun, row: Leftover) -> None:
        places = RunPlaces(self._data_dir, run.run_id)
        planned = [*await asyncio.to_thread(self._plan_files, run), *await asyncio.to_thread(measure_run, places)]
        obstacle = None if self._can_lose_unmerged else await find_obstacle(self._db, places)
        if obstacle:
            self.report.skipped.append(Skipped(run.run_id, obstacle))
        else:
            self.report.items += [row, *planned]

    @property
    def _where(self) -> str:
        return str(self._config.database_path or "database")

    # -- shared -------------------------------------------------------------------------------------------------------

    async def _count_room(self, max_bytes: int | None) -> int:
        """Count the bytes that have to go until the data directory is small enough."""
        return 0 if max_bytes is None else await asyncio.to_thread(disk_bytes, self._data_dir) - max_bytes

    @contextlib.asynccontextmanager
    async def _owning(self, run_id: str) -> AsyncIterator[tuple[Journal, Claim]]:
        """Own a run while it is cleaned up. Raises `RunBusy`, and `RunNotInState` if it goes on or is to go on."""
        assert self._journal is not None
        claim = await self._journal.claim(run_id)
        try:
            run = await find_over(self._db, run_id)
            if run is None or run.has_open_request:
                raise RunNotInState(f"Run {run_id} goes on.")
            yield self._journal, claim
        finally:
            await self._journal.release(claim)

    @contextlib.contextmanager
    def _skipping(self, run_id: str) -> Iterator[None]:
        """Report a run that cannot be cleaned up as skipped, so that the others still are."""
        try:
            yield
        except RunBusy:
            self.report.skipped.append(Skipped(run_id, "another process works on it", RunBusy.code))
        except (HoldfastError, OSError) as error:
            reason = error.message if isinstance(error, HoldfastError) else f"{error.filename}: {error.strerror}"
            self.report.skipped.append(Skipped(run_id, reason, getattr(error, "code", "")))


def _runs(count: int) -> str:
    return "run is" if count == 1 else "runs are"


def _find_strangers(worktrees: Path, known: Collection[str]) -> list[str]:
    try:
        names = [entry.name for entry in os.scandir(worktrees) if entry.is_dir() and not entry.name.startswith(".")]
    except OSError:
        return []
    return sorted(name for name in names if name.removesuffix(".adopted") not in known)


@contextlib.contextmanager
def _sole_cleanup(data_dir: Path, *, is_dry_run: bool) -> Iterator[None]:
    if is_dry_run or not data_dir.is_dir():
        yield
        return
    number = os.open(data_dir / "cleanup.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as busy:
            raise CleanupBusy(f"Another clean-up works in {data_dir}.") from busy
        yield
    finally:
        os.close(number)
