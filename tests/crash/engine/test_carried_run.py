"""A run whose files travel, killed while they are packed or a message comes to a phase, ends the same elsewhere."""

from typing import Any

import pytest
from tests.crash.engine.conftest import NewWorld
from tests.support.crash.kill_matrix import Matrix, choose
from tests.support.crash.run_outcome import read_outcome
from tests.support.crash.workflow_child import RUN_ID
from tests.support.engine_processes import Zygote
from tests.support.engine_world import World

from holdfast.config import load_config
from holdfast.engine.run.load import get_run
from holdfast.engine.run.local_files import bring_files
from holdfast.persistence.carried_files import list_packs
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
    }


@pytest.fixture(scope="module")
def matrix(new_world: NewWorld, zygote: Zygote) -> Matrix:
    return Matrix("go_on_carried", "completed", read_all, new_world, zygote)


async def test_a_run_killed_there_ends_the_same_here_and_elsewhere(matrix: Matrix) -> None:
    reference = await matrix.undisturbed("sqlite")
    assert (reference.outcome["delivered"], reference.outcome["left packs of steps"]) == (1, 0)
    # Right before, right after, and when what came of it is written.
    ends = (" make_pack", " read_waiting")
    near = [point for point, name in enumerate(reference.points) if name.endswith(ends)]
    places = sorted({*near, *(point + 1 for point in near if point + 1 < len(reference.points))})
    for index in choose(len(places), "carried", 1):
        await matrix.kill_once("sqlite", places[index])
