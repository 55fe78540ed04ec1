"""What it costs that a run's files travel: a change with its pack against one without, and a restore elsewhere.

A change is one line of one file, its tree, and for a carried run the pack and a transaction with it; both by turns.
"""

import asyncio
import shutil
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.measure import Place, Reading, git, reading
from holdfast.config import load_config
from holdfast.engine.run.base_files import rows_of_new
from holdfast.engine.run.local_files import bring_files
from holdfast.persistence.db import Database
from holdfast.persistence.models import RunRow
from holdfast.persistence.statements import NewTreePack, insert_tree_pack
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.events import EventKind, create_event
from holdfast.runtime.stores import open_journal
from holdfast.workspace import Git, prepare_workspace, restore, write_tree
from holdfast.workspace.transfer.packs import make_pack

FILES = 5_000
RUN = "11111111-2222-4333-8444-555555555555"


def change_and_restore(place: Place) -> Reading:
    """Make as many changes of each kind as there are steps, then restore the last tree where nothing is."""
    with reading() as found:
        found.extra = asyncio.run(_measure(place.folder, place.url, place.steps))
    return found


def _make_files(repo: Path, count: int) -> None:
    for number in range(count):
        path = repo / f"folder{number % 50}" / f"file{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n" * 40)
    git(repo.parent, "init", "--quiet", "-b", "main", str(repo))
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "files")


async def _measure(folder: Path, url: str, trees: int) -> dict[str, float]:
    repo, here, there = folder / "repo", folder / "here", folder / "there"
    _make_files(repo, FILES)
    config = load_config(data_dir=str(here), database_url=url, carry_files=True)
    db = Database(url)
    await db.init_schema()
    commit = git(repo, "rev-parse", "HEAD")
    run = RunRow(id=RUN, repo_path=str(repo), base_branch="main", base_commit=commit)
    workspace = prepare_workspace(repo, data_dir=here, run_id=RUN)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    async with open_journal(db.store) as journal:
        claim = await journal.claim(RUN)
        base = await rows_of_new(db, journal, config, RUN, (str(repo), commit))
        await journal.append(RUN, [create_event(RUN, EventKind.STATE_DELTA, delta={})], claim=claim, rows=base)
        last = commit
        for number in range(trees * 2):
            is_carried = number % 2 == 1
            path = workspace.worktree / f"folder{number % 50}" / f"file{number % FILES}.txt"
            began = time.perf_counter()
            path.write_text(f"{number} changed\n")
            tree = write_tree(workspace).tree_id
            rows: list[Statement] = []
            if is_carried:
                pack = make_pack(workspace.repo, [tree], without=[commit, last])
                rows.append(insert_tree_pack(NewTreePack(RUN, number + 1, "step", [tree], {}, pack)))
                last = tree
            event = create_event(RUN, EventKind.STATE_DELTA, delta={}, tree=tree)
            await journal.append(RUN, [event], claim=claim, rows=rows)
            seconds[is_carried].append(time.perf_counter() - began)
        await journal.release(claim)
    shutil.rmtree(here)
    repo.rename(folder / "gone")
    began = time.perf_counter()
    elsewhere = load_config(data_dir=str(there), database_url=url, carry_files=True)
    await bring_files(db, elsewhere, run, [last])
    copy = prepare_workspace(repo, data_dir=there, run_id=RUN, base_commit=commit)
    restored = restore(copy, last, at=datetime.now(UTC))
    restore_s = time.perf_counter() - began
    assert restored.tree_id == last
    assert Git(git_dir=copy.repo).line("rev-parse", f"{last}^{{tree}}") == last
    await db.dispose()
    carried_s, other_s = (statistics.median(seconds[is_carried]) for is_carried in (True, False))
    return {"carried_s": carried_s, "other_s": other_s, "restore_s": restore_s}
