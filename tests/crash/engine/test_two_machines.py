"""Two machines that go on for each other in the middle of an attempt, each destroyed in turn, end with equal trees."""

import shutil
from collections import Counter

import pytest
from tests.crash.engine.conftest import NewWorld
from tests.integration.engine.run.test_carried_files import destroy, other
from tests.support.crash.kill_matrix import choose
from tests.support.crash.run_outcome import read_money
from tests.support.crash.workflow_child import RUN_ID
from tests.support.engine_processes import Zygote
from tests.support.engine_world import World

from holdfast.config import load_config
from holdfast.engine.audit import check_database
from holdfast.engine.run.load import get_run
from holdfast.engine.run.local_files import bring_files
from holdfast.runtime.events import Event
from holdfast.workspace import Git, open_workspace

JOB = "go_on_carried"
RECORDED = "after tool.result"
_RESULTS = ("model.response", "tool.result", "agent.finished", "checkpoint.saved", "phase.started", "phase.completed")
_ONE_BY_ONE = ("outline", "build")
"""Phases with the workspace for themselves; of the two side by side each may or may not find the other's artifact."""


async def read_trees(world: World, reader: str) -> dict[str, list[str]]:
    """List the files of the phases, as a machine reads them that never saw the run."""
    stored = await get_run(world.db, RUN_ID)
    trees = {key: str(row.tree) for key, row in stored.phases.items()}
    there = load_config(data_dir=world.folder / reader, carry_files=True)
    await bring_files(world.db, there, stored.run, trees.values())
    git = Git(git_dir=open_workspace(there.data_dir, RUN_ID).repo)
    return {key: git.line("ls-tree", "-r", "--full-tree", trees[key]).splitlines() for key in _ONE_BY_ONE}


def find_middle(events: list[Event]) -> tuple[str, str]:
    """Return the attempt that was under way at the end, and its last recorded tree; nothing where there is none."""
    lane, tree = "", ""
    for event in events:
        if event.kind == "phase.started":
            lane, tree = event.lane_id, ""
        elif event.kind in ("checkpoint.saved", "phase.completed"):
            lane = ""
        elif event.kind == "tool.result" and lane and event.lane_id.startswith(lane):
            tree = event.payload["result"].get("tree", tree)
    return lane, tree


def count_results(events: list[Event]) -> Counter[str]:
    """Count how often each step of a phase was recorded; set-up is done by each machine for itself."""
    found = (event for event in events if event.kind in _RESULTS and not event.lane_id.startswith("setup"))
    return Counter(f"{event.kind} {event.payload.get('key') or event.lane_id}" for event in found)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_two_machines_that_continue_each_other_end_with_the_trees_of_an_undisturbed_run(
    new_world: NewWorld, zygote: Zygote, kind: str
) -> None:
    reference = new_world(kind)
    undisturbed = zygote.start(reference, JOB, None).wait()
    assert undisturbed is not None
    expected, money = await read_trees(reference, "reader"), await read_money(reference)
    steps = count_results(reference.events(RUN_ID))
    assert set(steps.values()) == {1}
    await reference.close()
    # The first is of set-up; after the last but one there is one left for the other machine to die at.
    deaths = range(2, undisturbed["result"]["points"].count(RECORDED))
    assert len(deaths) > 2

    for number in choose(len(deaths), f"two machines {kind}", 1):
        here = new_world(kind)
        assert zygote.start(here, JOB, f"{RECORDED}:{deaths[number]}").wait() is None
        first, recorded = find_middle(here.events(RUN_ID))
        assert first, recorded  # in the middle of an attempt, with files
        destroy(here)

        there = other(here, "there")
        there.folder.mkdir()
        known = len(here.events(RUN_ID))
        assert zygote.start(there, JOB, f"{RECORDED}:2").wait() is None
        added = here.events(RUN_ID)[known:]
        assert [event.kind for event in added].count("workspace.moved") == 1
        assert find_middle(here.events(RUN_ID))[0]
        assert any(event.kind == "tool.result" and event.lane_id != "setup" for event in added)
        shutil.rmtree(there.folder)
        there.folder.mkdir()

        ended = zygote.start(here, JOB, None).wait()
        assert ended is not None
        assert ended["result"]["state"] == "completed"
        events = here.events(RUN_ID)
        places = [event.payload["place"] for event in events if event.kind == "workspace.moved"]
        assert len(places) == len(set(places)) == 2
        assert await read_trees(here, "reader") == expected
        assert count_results(events) == steps
        assert (await read_money(here))[0] == money[0]
        assert [str(item) for item in await check_database(here.db)] == []
        await there.close()
        await here.close()
