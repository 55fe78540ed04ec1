"""A clean-up that is killed anywhere leaves each run there as a whole or gone, and the next one goes on."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text
from tests.crash.engine.conftest import NewWorld
from tests.support.crash.kill_matrix import choose
from tests.support.crash.points import SEED
from tests.support.engine_processes import Zygote
from tests.support.engine_world import Turn, World

import holdfast.engine
from holdfast.config import load_config
from holdfast.engine.audit import check_run
from holdfast.engine.merge import MergeRequest, merge_run
from holdfast.engine.patch import RecordedFiles, order_trees, read_patch
from holdfast.persistence.runs import find_run
from holdfast.workspace import run_spooled

TABLES = (
    *("approvals", "artifacts", "ledger", "run_bindings", "run_phases", "events", "journal_runs", "snapshots"),
    *("blob_refs", "deleted_runs"),
)


@pytest.fixture(autouse=True)
def _agents() -> Iterator[None]:
    original = holdfast.engine.build_agent
    yield
    holdfast.engine.build_agent = original


async def make_run(world: World) -> str:
    """A merged run with everything that a run can leave."""

    def work(turn: Turn) -> None:
        turn.write(f"{turn.run_id}.txt", "done\n" * 10_000)
        turn.hand_in(requirements="a long text " * 5_000)  # its event has a big value

    run_id = str((await world.run(work)).run_id)
    await merge_run(world.db, load_config(data_dir=world.data_dir), run_id, MergeRequest(keeps_worktree=True))
    await run_spooled(f"{run_id}:x", ["true"], cwd=world.repo, spool_dir=world.data_dir / "spool")
    return run_id


async def count_rows(world: World, run_id: str) -> dict[str, int]:
    async with world.db.session() as session:
        found = {}
        for table in TABLES:
            rows = await session.execute(text(f"SELECT COUNT(*) FROM {table} WHERE run_id = :id"), {"id": run_id})
            found[table] = int(rows.scalar() or 0)
    return {table: count for table, count in found.items() if count}


async def is_whole(world: World, run_id: str) -> bool:
    """True if the run is there with all that it needs, false if it is gone; anything else fails."""
    stored = await find_run(world.db, run_id)
    if stored is None:
        rows = await count_rows(world, run_id)
        assert set(rows) <= {"deleted_runs"}
        assert run_id not in world.db.store.list_runs()
        return False
    assert await check_run(world.db, run_id) == []
    assert stored.template is not None
    trees = order_trees((row.phase_key, row.tree, row.ended_at) for row in stored.phases.values())
    patch = await asyncio.to_thread(
        read_patch, world.data_dir, RecordedFiles(run_id, trees, stored.template.definition)
    )
    assert f"{run_id}.txt" in patch
    return True


def leftovers(world: World, run_id: str) -> set[str]:
    files = {str(path.relative_to(world.data_dir)) for path in world.data_dir.rglob(f"*{run_id}*")}
    files |= {"spool" for _ in (world.data_dir / "spool").iterdir()}
    refs = world.git("for-each-ref", "--format=%(refname)").splitlines()
    listed = world.git("worktree", "list", "--porcelain").splitlines()
    return files | {ref for ref in refs if run_id in ref} | {line for line in listed if run_id in line}


@pytest.mark.parametrize("verb", ["gc", "rm"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_clean_up_killed_anywhere_leaves_no_half_run_and_the_next_goes_on(
    kind: str, verb: str, new_world: NewWorld, zygote: Zygote
) -> None:
    world = new_world(kind)

    def play(run_id: str, dies_at: int | None) -> dict[str, Any] | None:
        answer = zygote.start(world, "clean", verb, [run_id], dies_at).wait()
        assert answer is None or "result" in answer, answer
        return answer and answer["result"]

    undisturbed = play(await make_run(world), None)
    assert undisturbed is not None
    points = undisturbed["points"]
    places = [number for number, name in enumerate(points) if name != "after file"]
    how_many = 3 if kind == "sqlite" else 2  # each is a whole run, its merge and two clean-ups
    for point in [places[index] for index in choose(len(places), f"cleanup {kind} {verb}", how_many)]:
        said = f"seed {SEED}, {kind}, {verb} killed at {points[point]} (point {point})"
        run_id = await make_run(world)

        play(run_id, point)
        was_there = await is_whole(world, run_id)
        if verb == "rm" and not was_there:
            assert zygote.start(world, "clean", "gc", [], None).wait() is not None
        else:
            assert play(run_id, None) is not None

        left = leftovers(world, run_id)
        if verb == "gc":
            assert await is_whole(world, run_id), said
            assert [name for name in left if name.startswith(("spool", "refs/heads", "worktree "))] == [], said
            assert not world.worktree(run_id).exists(), said
        else:
            assert left == set(), said
            assert await count_rows(world, run_id) == {}, said
    await world.close()
