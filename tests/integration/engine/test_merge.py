"""Bringing a result to the user: it says what is the matter where it cannot, and is not cut in two."""

import asyncio
import subprocess
from pathlib import Path

import pytest
from tests.support.engine_world import Turn, World, hand_in
from tests.support.slow_git import SlowGit

from holdfast.config import load_config
from holdfast.engine.merge import MergeRequest, merge_run
from holdfast.errors import HoldfastError, RunBusy
from holdfast.runtime.stores import open_journal


async def test_a_template_that_cannot_be_read_is_a_typed_error(world: World) -> None:
    world.is_damaged = True
    result = await world.run(hand_in)
    await world.sql("UPDATE workflow_templates SET definition = '{}'")

    with pytest.raises(HoldfastError) as error:
        await merge_run(world.db, load_config(data_dir=world.data_dir), str(result.run_id))

    assert error.value.code == "template_load_failed"


def change_a_file(turn: Turn) -> None:
    turn.write("work.txt", "done\n")
    turn.hand_in()


async def test_who_is_cancelled_holds_the_run_until_git_has_ended_and_that_is_written(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = str((await world.run(change_a_file)).run_id)
    with SlowGit(tmp_path / "slow", "commit-tree", monkeypatch) as git:
        request = MergeRequest(into="result", can_create=True)
        merging = asyncio.create_task(merge_run(world.db, load_config(data_dir=world.data_dir), run_id, request))
        await git.wait_until_reached()
        for _ in range(2):
            merging.cancel()
            await asyncio.sleep(0.1)
            assert not merging.done()
            await check_busy(world, run_id)
    with pytest.raises(asyncio.CancelledError):
        await merging

    (merged,) = world.events(run_id, "run.merged")
    found = subprocess.run(["git", "-C", world.repo, "rev-parse", "result"], check=True, capture_output=True, text=True)
    assert merged.payload["commit"] == found.stdout.strip()
    async with open_journal(world.db.store) as journal:
        await journal.release(await journal.claim(run_id))


async def test_a_drive_that_is_cancelled_holds_the_run_until_git_has_ended(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SlowGit(tmp_path / "slow", "write-tree", monkeypatch) as git:
        driving = asyncio.create_task(world.run(change_a_file))
        await git.wait_until_reached()
        [run_id] = world.db.store.list_runs()
        driving.cancel()
        await asyncio.sleep(0.1)
        await check_busy(world, run_id)
    with pytest.raises(asyncio.CancelledError):
        await driving

    assert (await world.engine(change_a_file).resume(run_id)).state == "completed"


async def check_busy(world: World, run_id: str) -> None:
    async with open_journal(world.open_database().store) as journal:
        with pytest.raises(RunBusy):
            await journal.claim(run_id)
