"""A machine that lost its power: files that were recorded are as they were recorded, whatever the disk has of them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.integration.engine.run.test_carried_files import CARRIED, edit, on_sqlite
from tests.integration.engine.run.test_two_places import HAND_IN, engine_with
from tests.support.engine_world import Turn, World, git, phase, template
from tests.support.progress_limit import until

from holdfast.engine.run import workspace
from holdfast.enums import RunStatus
from holdfast.errors import LeaseLost
from holdfast.workspace import find_place
from holdfast.workspace.commands import place


class Died(BaseException):
    """The process is gone."""


async def half(turn: Turn) -> None:
    await turn.use_tool("write_file", lambda: turn.write("half.txt", "recorded\n"))


@pytest.fixture
def reboot(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setattr(place, "read_boot_id", lambda: "another-boot")


@on_sqlite
@pytest.mark.parametrize("settings", [CARRIED, {"carry_files": False}])
async def test_a_file_that_a_power_cut_has_emptied_is_put_back(
    world: World, reboot: Callable[[], None], settings: dict[str, Any]
) -> None:
    run_id = await world.run_and_stop(half, "spec", engine=settings)
    lost = world.worktree(run_id) / "half.txt"
    lost.write_text("")
    reboot()

    result = await world.engine(edit, **settings).resume(run_id)

    assert result.state is RunStatus.COMPLETED, result.error
    assert lost.read_text() == "recorded\n"
    [moved] = world.events(run_id, "workspace.moved")
    assert moved.payload["rebooted"] is True
    assert moved.payload["place"] == moved.payload["before"] == find_place(world.data_dir).data
    assert git(world.repo, "show", f"{moved.payload['rescue_ref']}:half.txt") == ""  # nothing is gone without trace


@on_sqlite
async def test_objects_that_a_power_cut_has_emptied_come_from_the_database(
    world: World, reboot: Callable[[], None]
) -> None:
    run_id = await world.run_and_stop(half, "spec", engine=CARRIED)
    [recorded] = world.events(run_id, "tool.result")
    tree = recorded.payload["result"]["tree"]
    blob = git(world.repo, "rev-parse", f"{tree}:half.txt")
    for name in (tree, blob):
        path = world.repo / ".git/objects" / name[:2] / name[2:]
        path.chmod(0o644)
        path.write_text("")
    (world.worktree(run_id) / "half.txt").write_text("")
    reboot()

    result = await world.engine(edit, **CARRIED).resume(run_id)

    assert result.state is RunStatus.COMPLETED, result.error
    assert (world.worktree(run_id) / "half.txt").read_text() == "recorded\n"


@on_sqlite
async def test_what_a_person_changed_stays_in_the_same_boot_and_where_nothing_differs_nothing_is_said(
    world: World, reboot: Callable[[], None]
) -> None:
    run_id = await world.run_and_stop(half, "spec", engine=CARRIED)
    (world.worktree(run_id) / "half.txt").write_text("by a person\n")

    result = await world.engine(edit, **CARRIED).resume(run_id)

    assert result.state is RunStatus.COMPLETED, result.error
    assert (world.worktree(run_id) / "half.txt").read_text() == "by a person\n"
    other_run = await world.run_and_stop(half, "spec", engine=CARRIED)
    reboot()
    assert (await world.engine(edit, **CARRIED).resume(other_run)).state is RunStatus.COMPLETED
    assert world.events(run_id, "workspace.moved") == world.events(other_run, "workspace.moved") == []


@on_sqlite
@pytest.mark.parametrize("point", ["put_back", "_record_reboot", "note_boot"])
async def test_a_process_that_dies_while_files_are_put_back_leaves_it_to_the_next(
    world: World, reboot: Callable[[], None], monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    run_id = await world.run_and_stop(half, "spec", engine=CARRIED)
    (world.worktree(run_id) / "half.txt").write_text("")
    reboot()
    original = getattr(workspace, point)

    def die(*args: Any) -> None:
        if point == "put_back":
            original(*args)
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(workspace, point, die)
        with pytest.raises(Died):
            await world.engine(edit, **CARRIED).resume(run_id)

    result = await world.engine(edit, **CARRIED).resume(run_id)

    assert result.state is RunStatus.COMPLETED, result.error
    assert (world.worktree(run_id) / "half.txt").read_text() == "recorded\n"
    assert world.events(run_id, "workspace.moved")[0].payload["rescue_ref"]


@pytest.mark.parametrize("network", ["deny", "allow"])
async def test_a_command_in_flight_at_a_power_cut_is_dead_and_its_files_are_put_back(
    worlds: tuple[World, World], reboot: Callable[[], None], network: str
) -> None:
    world, elsewhere = worlds
    body = f"trap 'exit 1' TERM; echo half > half.txt; while [ ! -e go ]; do sleep 0.05; done; {HAND_IN}"
    options = {"permissions": {"network": network}}
    first = asyncio.create_task(engine_with(world, body, **options).run(template(phase("spec")), repo_path=world.repo))
    await until(lambda: first.done() or list(world.data_dir.glob("worktrees/*/half.txt")))
    assert not first.done(), first.result()
    [run_id] = world.db.store.list_runs()
    taken = elsewhere.db.store.claim(run_id, force=True)
    with pytest.raises(LeaseLost):
        await first
    elsewhere.db.store.release(taken)
    reboot()

    second = asyncio.create_task(engine_with(world, body, **options).resume(run_id))
    await until(lambda: second.done() or len(world.events(run_id, "tool.started")) == 2)

    [moved] = world.events(run_id, "workspace.moved")
    assert (moved.payload["rebooted"], bool(moved.payload["rescue_ref"])) == (True, True)
    if network == "deny":  # it was contained: it has changed only files that are put back
        assert not second.done(), second.result()
        (world.worktree(run_id) / "go").touch()
        assert (await second).state is RunStatus.COMPLETED
    else:
        result = await second
        assert (result.state, result.waiting_for) == (RunStatus.PAUSED, "outcome")
        assert not (world.worktree(run_id) / "half.txt").exists()
