"""Cleaning up: what goes, what never goes, and that a run is there or gone, on SQLite and on a real Postgres."""

import asyncio
import contextlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from tests.support.engine_world import Turn, World, hand_in, phase, template

from holdfast.config import Config, load_config
from holdfast.engine.merge import MergeRequest, merge_run
from holdfast.engine.patch import RecordedFiles, order_trees, read_patch
from holdfast.engine.retention.cleanup import Cleanup, clean_up, remove_runs
from holdfast.engine.retention.selection import Selection
from holdfast.enums import Backend
from holdfast.errors import CleanupBusy, RepositoryMissing, RowRefused, RunNotFound, RunNotInState
from holdfast.persistence.event_feed import find_moved, give_positions, needs_positions, read_position, read_stretches
from holdfast.persistence.listings import read_money, read_total_micros
from holdfast.persistence.runs import find_run, read_spent_in_scopes
from holdfast.runtime.stores import open_journal
from holdfast.workspace import run_spooled

ALL = Selection()
SIMULATED: dict[str, Any] = {"backends": frozenset({Backend.SIMULATED})}
TABLES = (
    "approvals",
    "artifacts",
    "ledger",
    "run_bindings",
    "run_phases",
    "idempotency_keys",
    "events",
    "journal_runs",
)


def change_a_file(turn: Turn) -> None:
    turn.write("work.txt", "done\n")
    turn.hand_in()


def config_of(world: World, **options: Any) -> Config:
    return load_config(data_dir=world.data_dir, database_url=world.url, **options)


async def gc(world: World, selection: Selection = ALL, **options: Any) -> Cleanup:
    return await clean_up(world.db, config_of(world), selection, now=datetime.now(UTC), **options)


async def rm(world: World, *run_ids: str, **options: Any) -> Cleanup:
    return await remove_runs(world.db, config_of(world), run_ids, now=datetime.now(UTC), **options)


async def completed(world: World, script: Any = change_a_file, **options: Any) -> str:
    return str((await world.run(script, **options)).run_id)


async def merged(world: World, script: Any = change_a_file) -> str:
    run_id = await completed(world, script)
    await merge_run(world.db, config_of(world), run_id)
    return run_id


async def count_rows(world: World, run_id: str) -> dict[str, int]:
    async with world.db.session() as session:
        counts = {
            table: int(
                (
                    await session.execute(text(f"SELECT COUNT(*) FROM {table} WHERE run_id = :id"), {"id": run_id})
                ).scalar()
                or 0
            )
            for table in (*TABLES, "deleted_runs", "blob_refs")
        }
    return {table: count for table, count in counts.items() if count}


def refs_of(world: World, run_id: str) -> list[str]:
    listed = world.git("for-each-ref", "--format=%(refname)").splitlines()
    return [ref for ref in listed if run_id in ref]


def files_of(world: World, run_id: str) -> list[Path]:
    return [path for path in world.data_dir.rglob(f"*{run_id}*") if "-locks" not in str(path)]


def kinds_of(done: Cleanup) -> set[str]:
    return {item.kind.value for item in done.items}


# -- what can be made again -------------------------------------------------------------------------------------------


async def test_gc_takes_worktree_branch_and_spool_of_a_run_that_is_over_and_the_run_stays(world: World) -> None:
    run_id = await completed(world)
    await run_spooled(f"{run_id}:x", ["true"], cwd=world.repo, spool_dir=world.data_dir / "spool")

    rehearsed = await gc(world, is_dry_run=True)
    assert world.worktree(run_id).is_dir()
    done = await gc(world)

    assert kinds_of(done) == {"worktree", "branch", "spool"}
    assert {(item.kind, item.path, item.size_bytes) for item in rehearsed.items} == {
        (item.kind, item.path, item.size_bytes) for item in done.items
    }
    assert not world.worktree(run_id).exists()
    assert list((world.data_dir / "spool").iterdir()) == []
    assert run_id not in world.git("worktree", "list")
    assert world.git("branch", "--list", "holdfast/*") == ""
    assert refs_of(world, run_id) != []
    stored = await find_run(world.db, run_id)
    assert stored is not None
    assert stored.template is not None
    trees = order_trees((row.phase_key, row.tree, row.ended_at) for row in stored.phases.values())
    assert "work.txt" in read_patch(world.data_dir, RecordedFiles(run_id, trees, stored.template.definition))
    assert (await gc(world)).items == []
    assert (await merge_run(world.db, config_of(world), run_id))["action"] == "fast_forwarded"


async def test_a_failed_run_is_retried_after_its_worktree_went(world: World) -> None:
    def fail_second(turn: Turn) -> None:
        turn.write("work.txt", "done\n")
        if turn.phase_key == "one":
            turn.hand_in()

    run_id = str((await world.run(fail_second, "one", "two")).run_id)
    await gc(world)
    assert not world.worktree(run_id).exists()

    result = await world.engine(hand_in).retry(run_id)

    assert result.state == "completed"
    assert (world.worktree(run_id) / "work.txt").read_text() == "done\n"


async def test_paused_pending_and_driven_runs_are_left_alone(world: World) -> None:
    asking = template(phase("spec", approval="always"))
    paused = str((await world.run(hand_in, template=asking)).run_id)
    pending = await world.engine().create(template("spec"), repo_path=world.repo)
    over = await completed(world)
    async with open_journal(world.open_database().store) as journal:
        claim = await journal.claim(over)
        try:
            done = await gc(world)
        finally:
            await journal.release(claim)

    assert done.items == []
    assert [(item.run_id, item.reason) for item in done.skipped] == [(over, "another process works on it")]
    assert any("1 paused run" in note for note in done.notes)
    assert world.worktree(paused).is_dir()
    assert world.worktree(over).is_dir()
    with pytest.raises(RunNotInState):
        await rm(world, paused)
    with pytest.raises(RunNotInState):
        await rm(world, pending)
    assert (await gc(world, deletes_runs=True, can_lose_unmerged=True)).deleted_runs == [over]


async def test_what_no_phase_recorded_is_kept_under_a_ref(world: World) -> None:
    run_id = await completed(world)
    (world.worktree(run_id) / "mine.txt").write_text("by hand\n")

    done = await gc(world)

    (ref,) = done.rescue_refs
    assert world.git("show", f"{ref}:mine.txt") == "by hand"
    assert not world.worktree(run_id).exists()
    await merge_run(world.db, config_of(world), run_id)
    (skipped,) = (await rm(world, run_id)).skipped
    assert "no phase recorded" in skipped.reason
    assert ref in refs_of(world, run_id)


async def test_a_worktree_that_git_cannot_keep_stays(world: World) -> None:
    run_id = await completed(world)
    nested = world.worktree(run_id) / "nested"
    nested.mkdir()
    world.git("init", "-q", folder=nested)
    (nested / "inside.txt").write_text("x")
    world.git("add", ".", folder=nested)
    world.git("commit", "-q", "-m", "inside", folder=nested)

    done = await gc(world)

    assert "nested" in done.skipped[0].reason
    assert (nested / "inside.txt").exists()
    assert (await rm(world, run_id)).deleted_runs == []
    assert (await rm(world, run_id, can_lose_unmerged=True)).deleted_runs == [run_id]
    assert files_of(world, run_id) == []


async def test_a_branch_with_work_of_its_own_or_that_is_checked_out_stays(world: World) -> None:
    def commit(turn: Turn) -> None:
        turn.write("work.txt", "done\n")
        world.git("add", "work.txt", folder=turn.root)
        world.git("commit", "-q", "-m", "by the agent", folder=turn.root)
        turn.hand_in()

    committed = await completed(world, commit)
    looked_at = await completed(world)
    world.git("worktree", "add", "-f", str(world.folder / "look"), f"holdfast/{looked_at}")

    await gc(world)

    branches = world.git("branch", "--list", "holdfast/*", "--format=%(refname:short)").splitlines()
    assert branches == sorted([f"holdfast/{committed}", f"holdfast/{looked_at}"])


async def test_a_folder_that_no_run_knows_is_never_touched(world: World) -> None:
    await completed(world)
    stranger = world.data_dir / "worktrees" / "somebody"
    stranger.mkdir()
    (stranger / "file").write_text("x")
    spooled = world.data_dir / "spool" / "unknown"
    spooled.mkdir(parents=True)
    (spooled / "command.json").write_text(json.dumps({"key": "no-run-of-ours:x"}))

    done = await gc(world)

    assert (stranger / "file").exists()
    assert spooled.exists()
    assert any("1 folder" in note for note in done.notes)


async def test_a_selection_narrows_what_is_cleaned(world: World) -> None:
    old, middle, new = [await completed(world) for _ in range(3)]
    await world.sql("UPDATE runs SET ended_at = '2020-01-01T00:00:00.000Z' WHERE id = :id", id=old)
    world.is_damaged = True

    async def cleaned(**options: Any) -> set[str]:
        found = await gc(world, Selection(**options), is_dry_run=True)
        return {item.run_id for item in found.items}

    assert await cleaned(older_than=timedelta(days=30)) == {old}
    assert await cleaned(keep=1) == {old, middle}
    assert await cleaned(states=frozenset({"failed"})) == set()
    assert await cleaned(max_bytes=2**50) == set()
    assert await cleaned(max_bytes=0) == {old, middle, new}


# -- whole runs -------------------------------------------------------------------------------------------------------


async def test_a_deleted_run_leaves_nothing_but_what_the_user_has(world: World) -> None:
    run_id, other = await merged(world), await completed(world, hand_in)
    counts = await count_rows(world, other)

    done = await rm(world, run_id)

    assert done.deleted_runs == [run_id]
    assert done.skipped == []
    assert await count_rows(world, run_id) == {}
    assert files_of(world, run_id) == []
    assert refs_of(world, run_id) == []
    assert run_id not in world.db.store.list_runs()
    assert world.git("show", "main:work.txt") == "done"
    assert await count_rows(world, other) == counts
    with pytest.raises(RunNotFound):
        await world.engine().resume(run_id)


async def test_an_unmerged_result_stays_unless_it_may_be_lost(world: World) -> None:
    run_id, empty = await completed(world), await completed(world, hand_in)

    done = await gc(world, Selection(keep=0), deletes_runs=True)

    assert done.deleted_runs == [empty]
    assert [(item.run_id, item.reason) for item in done.skipped] == [(run_id, "its result is not merged")]
    rehearsed = await gc(world, deletes_runs=True, is_dry_run=True)
    assert [item.run_id for item in rehearsed.skipped] == [run_id]
    assert refs_of(world, run_id) != []
    assert (await rm(world, run_id, can_lose_unmerged=True)).deleted_runs == [run_id]
    assert refs_of(world, run_id) == []


async def test_work_that_came_after_a_merge_is_not_lost(world: World) -> None:
    async def add(turn: Turn) -> None:
        turn.write(f"{turn.phase_key}.txt", "work\n")
        turn.hand_in()

    waiting = await world.run(add, phase("spec"), phase("plan", approval="always"))
    run_id = str(waiting.run_id)
    await merge_run(world.db, config_of(world), run_id)
    engine = world.engine(add)
    approval = (await world.approvals(run_id))[-1]
    await engine.decide(run_id, approval.id, "approve")
    assert (await engine.resume(run_id)).state == "completed"

    refused = await rm(world, run_id)
    await merge_run(world.db, config_of(world), run_id)

    assert (refused.deleted_runs, refused.skipped[0].reason) == ([], "its result is not merged")
    assert (await rm(world, run_id)).deleted_runs == [run_id]


async def test_a_result_on_any_branch_or_tag_of_the_users_counts_as_merged(world: World) -> None:
    run_id = await completed(world)
    await merge_run(world.db, config_of(world), run_id, MergeRequest("elsewhere", can_create=True))
    world.git("tag", "kept", "elsewhere")
    world.git("branch", "-D", "elsewhere")

    assert (await rm(world, run_id)).deleted_runs == [run_id]


async def test_what_a_fork_needs_stays_until_the_fork_goes(world: World) -> None:
    origin = await completed(world, hand_in)
    fork = str((await world.engine(hand_in).fork(origin, "spec")).run_id)

    alone = await rm(world, origin)
    assert alone.deleted_runs == []
    assert "forked" in alone.skipped[0].reason
    together = await rm(world, origin, fork)

    assert together.deleted_runs == [fork, origin]
    assert files_of(world, origin) == files_of(world, fork) == []


async def test_a_fork_of_a_folder_without_git_keeps_the_repository_they_share(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "a.txt").write_text("a")
    origin = await completed(world, repo_path=folder)
    await gc(world)
    fork = str((await world.engine(change_a_file).fork(origin, "spec")).run_id)
    await merge_run(world.db, config_of(world), fork)

    assert (await rm(world, fork)).deleted_runs == [fork]
    assert (world.data_dir / "repositories" / f"{origin}.git").is_dir()
    assert "not merged" in (await rm(world, origin)).skipped[0].reason
    assert (await rm(world, origin, can_lose_unmerged=True)).deleted_runs == [origin]
    assert list((world.data_dir / "repositories").iterdir()) == []
    assert (folder / "work.txt").read_text() == "done\n"


async def test_a_fork_that_is_being_made_keeps_its_origin(world: World) -> None:
    """Both lock the origin's row: whoever comes second sees what the first has done."""
    origin = await completed(world, hand_in)
    forks, removed = [], []

    async def fork() -> None:
        with contextlib.suppress(RepositoryMissing, RowRefused, RunNotFound):
            forks.append(await world.engine(hand_in, db=world.open_database()).create_fork(origin, "spec"))

    async def delete() -> None:
        removed.extend((await rm(world, origin)).deleted_runs)

    await asyncio.gather(fork(), delete())

    assert (removed == [origin]) != bool(forks)


@pytest.mark.parametrize(("backend", "model"), [("openrouter", "deepseek-v4-pro"), ("simulated", "rehearsal-1")])
async def test_money_of_deleted_runs_goes_on_counting(world: World, backend: str, model: str) -> None:
    async def spend(turn: Turn) -> None:
        await turn.use_model(model=model)
        turn.hand_in()

    engine = {"backends": frozenset({Backend(backend)})}
    one, two = [await completed(world, spend, engine=engine) for _ in range(2)]
    before = await read_money(world.db, since_day="2000-01-01")
    real, simulated = await read_total_micros(world.db)
    assert (real > 0, simulated > 0) == (backend != "simulated", backend == "simulated")

    await rm(world, one)
    await rm(world, two)

    assert await read_money(world.db, since_day="2000-01-01") == before
    assert await read_total_micros(world.db) == (real, simulated)
    (today,) = before.by_day or before.simulated_by_day
    scopes = await read_spent_in_scopes(world.db, "none", "none", today, is_simulated=backend == "simulated")
    assert scopes["day"] == real
    third = await world.run(spend, engine={**engine, "day_budget_usd": (real + 1) / 1_000_000})
    assert third.waiting_for == ("budget" if real else None)


async def test_a_repository_that_is_gone_keeps_the_only_copy_and_says_so(world: World) -> None:
    run_id = await completed(world)
    world.repo.rename(world.folder / "moved")

    done = await gc(world)
    assert "not there" in done.skipped[0].reason
    assert (world.worktree(run_id) / "work.txt").exists()
    assert (await rm(world, run_id)).deleted_runs == []

    forced = await rm(world, run_id, can_lose_unmerged=True)
    assert forced.deleted_runs == [run_id]
    assert any("not there" in item.reason for item in forced.skipped)
    assert files_of(world, run_id) == []
    assert await count_rows(world, run_id) == {"deleted_runs": 1}

    (world.folder / "moved").rename(world.repo)
    await gc(world)
    assert refs_of(world, run_id) == []
    assert await count_rows(world, run_id) == {}


async def test_an_id_is_not_used_again_while_its_files_are_being_removed(world: World) -> None:
    run_id = await completed(world)
    world.repo.rename(world.folder / "moved")
    await rm(world, run_id, can_lose_unmerged=True)
    (world.folder / "moved").rename(world.repo)

    with pytest.raises(RunNotInState):
        await world.run(hand_in, pre_allocated_run_id=run_id)
    await gc(world)

    assert (await world.run(hand_in, pre_allocated_run_id=run_id)).state == "completed"


async def test_a_failed_run_that_somebody_asked_to_retry_is_not_deleted(world: World) -> None:
    failed = await world.run(lambda _turn: None)
    await world.sql("UPDATE runs SET wake = 'asked' WHERE id = :id", id=str(failed.run_id))

    done = await rm(world, str(failed.run_id))

    assert done.deleted_runs == []
    assert "goes on" in done.skipped[0].reason


async def test_a_request_that_an_earlier_version_left_at_a_completed_run_keeps_nothing(world: World) -> None:
    run_id = await completed(world, hand_in)
    await world.sql("UPDATE runs SET wake = 'asked' WHERE id = :id", id=run_id)

    done = await rm(world, run_id, may_lose_result=True)

    assert done.deleted_runs == [run_id]


async def test_only_one_clean_up_works_in_a_data_directory(world: World) -> None:
    run_id = await merged(world)
    outcomes = await asyncio.gather(rm(world, run_id), rm(world, run_id), return_exceptions=True)

    assert sorted(type(outcome) for outcome in outcomes if isinstance(outcome, Exception)) in ([CleanupBusy], [])
    assert [run_id] in [outcome.deleted_runs for outcome in outcomes if isinstance(outcome, Cleanup)]


async def test_followers_of_all_runs_go_on_after_runs_were_deleted(world: World) -> None:
    first = await merged(world, hand_in)
    async with open_journal(world.db.store) as journal:

        async def settle() -> int:
            if needs_positions(world.db):
                await give_positions(journal, await find_moved(world.db))
            return await read_position(world.db)

        middle = await settle()
        second = await completed(world, hand_in)
        end = await settle()
        await rm(world, first)
        await rm(world, second)

        assert await settle() >= end
        third = await completed(world, hand_in)
        last = await settle()

    assert last > end
    for place in (0, middle, end):
        stretches = [stretch for stretch in await read_stretches(world.db, place, limit=500) if stretch.run_id == third]
        assert sum(stretch.last_seq - stretch.first_seq + 1 for stretch in stretches) == len(world.events(third))
        assert all(stretch.position > place for stretch in stretches)


# -- merge ------------------------------------------------------------------------------------------------------------


async def test_a_merged_runs_worktree_and_branch_go_by_themselves(world: World) -> None:
    run_id = await completed(world)

    answer = await merge_run(world.db, config_of(world), run_id)

    assert not world.worktree(run_id).exists()
    assert world.git("branch", "--list", "holdfast/*") == ""
    assert {item["kind"] for item in answer["removed"]} == {"worktree", "branch"}
    assert "Removed the run's worktree and branch." in answer["message"]
    assert (await merge_run(world.db, config_of(world), run_id))["action"] == "nothing_to_do"


@pytest.mark.parametrize(("options", "settings"), [({"keeps_worktree": True}, {}), ({}, {"keep_worktrees": True})])
async def test_a_merged_runs_worktree_stays_if_it_is_wanted(
    world: World, options: dict[str, Any], settings: dict[str, Any]
) -> None:
    run_id = await completed(world)

    await merge_run(world.db, config_of(world, **settings), run_id, MergeRequest(**options))

    assert world.worktree(run_id).is_dir()
