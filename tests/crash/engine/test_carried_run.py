"""A run whose files travel, killed while they are packed or a message comes to a phase, ends the same elsewhere."""

from typing import Any

import pytest
from sqlalchemy import text
from tests.crash.engine.conftest import NewWorld
from tests.support.crash.kill_matrix import Matrix, choose
from tests.support.crash.run_outcome import read_outcome
from tests.support.crash.workflow_child import RUN_ID
from tests.support.engine_processes import Zygote
from tests.support.engine_world import World

from holdfast.config import load_config
from holdfast.engine.run.load import get_run
from holdfast.engine.run.local_files import bring_files
from holdfast.persistence.carried_files import find_base, list_packs
from holdfast.workspace import Git, open_workspace


async def read_all(world: World) -> dict[str, Any]:
    """What the run has left here, and what a machine that never saw it makes of its rows."""
    stored = await get_run(world.db, RUN_ID)
    trees = {key: str(row.tree) for key, row in stored.phases.items()}
    there = load_config(data_dir=world.folder / "elsewhere", carry_files=True)
    await bring_files(world.db, there, stored.run, trees.values())
    git = Git(git_dir=open_workspace(there.data_dir, RUN_ID).repo)
    listed = {key: git.line("ls-tree", "-r", "--full-tree", tree).splitlines() for key, tree in trees.items()}
    delivered = [
        event.payload["result"]["messages"]
        for event in world.events(RUN_ID, "step.completed")
        if "/inbox" in str(event.payload.get("key"))
    ]
    packs = await list_packs(world.db, RUN_ID)
    return {
        **await read_outcome(world),
        "elsewhere": {"outline": listed["outline"], "build": listed["build"]},  # the other two are side by side
        "delivered": len(delivered),
        "left packs of steps": [pack.kind for pack in packs].count("step"),
        "parts of the base": await count_parts(world),
    }


async def count_parts(world: World) -> int:
    """How many parts are stored; all of them are of the run's base."""
    base = await find_base(world.db, RUN_ID)
    assert base is not None
    async with world.db.session() as session:
        found = list(await session.scalars(text("SELECT digest FROM base_packs")))
    assert set(found) == {base.digest}
    return len(found)


@pytest.fixture(scope="module")
def matrix(new_world: NewWorld, zygote: Zygote) -> Matrix:
    return Matrix("go_on_carried", "completed", read_all, new_world, zygote)


def find_points(names: list[str], during: str) -> list[int]:
    """Find where a process dies in the middle of carrying files: as it packs, writes, or right behind that."""
    if during == "base":  # between its parts too, which are written some at a time
        ends: tuple[str, ...] = (" make_base_pack", " rows of holdfast-bases")
        near = [number for number, name in enumerate(names) if name.endswith(ends)]
    elif during == "compaction":  # one pack takes the place of a phase's
        ended = [number for number, name in enumerate(names) if name == "before phase.completed"]
        near = [number for last in ended for number in (last - 2, last - 1, last)]
        near = [number for number in near if names[number].endswith(("make_pack", "phase.completed"))]
    else:
        near = [number for number, name in enumerate(names) if name.endswith((" make_pack", " read_waiting"))]
    return sorted({*near, *(number + 1 for number in near if number + 1 < len(names))})


@pytest.mark.parametrize("during", ["base", "compaction", "any"])
async def test_a_run_killed_there_ends_the_same_here_and_elsewhere(matrix: Matrix, during: str) -> None:
    reference = await matrix.undisturbed("sqlite")
    assert (reference.outcome["delivered"], reference.outcome["left packs of steps"]) == (1, 0)
    assert reference.points.count("before rows of holdfast-bases") > 1
    places = find_points(reference.points, during)
    assert len(places) >= 6
    for index in choose(len(places), f"carried {during}", 1):
        await matrix.kill_once("sqlite", places[index])
