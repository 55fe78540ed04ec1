"""The base of a run in the database: in parts, shared by all runs that start from it, gone with the last of them."""

import os
from hashlib import sha256

from sqlalchemy import text
from tests.integration.engine.run.test_carried_files import CARRIED, destroy, edit, other
from tests.support.engine_world import World, git, phase

from holdfast.engine.retention.deletion import delete_run, finish_deleted
from holdfast.enums import RunStatus
from holdfast.persistence.carried_files import find_base
from holdfast.runtime.stores import open_journal
from holdfast.workspace.cleanup.leftovers import RunPlaces

MIB = 1024**2


async def read_parts(world: World) -> list[tuple[str, int, int]]:
    """The parts that are stored: of which base, the number, how many bytes."""
    async with world.db.session() as session:
        rows = await session.execute(
            text("SELECT digest, part, LENGTH(data) FROM base_packs ORDER BY digest, part")  # bytes on both stores
        )
        return [(digest, part, size) for digest, part, size in rows]


async def delete(world: World, run_id: str, *, is_later: bool = True) -> None:
    """Delete a run as a clean-up does, more than a day after anybody began to use the parts, or at once."""
    if is_later:
        await world.sql("UPDATE base_packs SET used_at = '2000-01-01T00:00:00.000000+00:00'")
    async with open_journal(world.db.store) as journal:
        claim = await journal.claim(run_id)
        places = RunPlaces(world.data_dir, run_id)
        deleted = await delete_run(world.db, journal, claim, places, can_lose_unmerged=True)
        await finish_deleted(journal, deleted, ())


async def test_runs_from_one_commit_share_its_parts_until_the_last_of_them_is_deleted(world: World) -> None:
    big = os.urandom(3 * MIB)
    (world.repo / "big.bin").write_bytes(big)
    git(world.repo, "add", ".")
    git(world.repo, "commit", "-qm", "big")

    first = str((await world.run(edit, "one", engine=CARRIED)).run_id)
    parts = await read_parts(world)
    assert [(part, size) for _, part, size in parts[:3]] == [(0, MIB), (1, MIB), (2, MIB)]
    assert len(parts) == 4
    assert 0 < parts[3][2] < MIB
    paused = await world.run(edit, phase("one", risk="high"), engine=CARRIED)
    second = str(paused.run_id)
    assert await read_parts(world) == parts
    bases = [await find_base(world.db, run_id) for run_id in (first, second)]
    assert {base.digest for base in bases if base is not None} == {digest for digest, _, _ in parts}

    await delete(world, first)
    assert await read_parts(world) == parts  # the other one has them too
    destroy(world)
    there = other(world)
    [question] = await there.approvals(second)
    await there.engine(edit, **CARRIED).decide(second, question.id, "approve")
    result = await there.engine(edit, **CARRIED).resume(second)
    assert result.state is RunStatus.COMPLETED, result.error
    assert sha256((there.worktree(second) / "big.bin").read_bytes()).digest() == sha256(big).digest()

    await delete(there, second)
    assert await read_parts(there) == []
    await there.close()


async def test_parts_that_were_begun_to_be_used_a_moment_ago_stay_when_a_run_is_deleted(world: World) -> None:
    run_id = str((await world.run(edit, "one", engine=CARRIED)).run_id)
    parts = await read_parts(world)

    await delete(world, run_id, is_later=False)

    assert await read_parts(world) == parts  # a run may be about to be written that starts from them
