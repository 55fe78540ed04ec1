"""A process that dies while it brings a run's files to its machine: whoever is next there finds all of them."""

import random
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.integration.engine.run.test_carried_files import CARRIED, destroy, edit, on_sqlite, other
from tests.support.engine_world import Turn, World, hand_in, template

from holdfast.config import load_config
from holdfast.engine.merge import MergeRequest, merge_run
from holdfast.engine.run import local_files, workspace
from holdfast.enums import RunStatus
from holdfast.errors import WorkspaceError
from holdfast.workspace.transfer import packs, quarantine


class Died(BaseException):
    """The process is gone."""


def write_many(turn: Turn) -> None:
    for number in range(50):
        turn.write(f"many/{number}.txt", f"{random.random()}\n" * 500)


def unpack_half(repo: Path, found: Sequence[bytes]) -> None:
    """Unpack as earlier versions did, and die in the middle: the trees are there, files are missing."""
    data = packs._join(found)
    subprocess.run(
        ["git", f"--git-dir={repo}", "unpack-objects", "-q"],
        input=data[: len(data) // 2],
        capture_output=True,
        check=False,
    )
    raise Died


def die(*_args: Any, **_options: Any) -> None:
    raise Died


def die_after(original: Callable[..., Any]) -> Callable[..., Any]:
    def work(*args: Any, **options: Any) -> None:
        original(*args, **options)
        raise Died

    return work


POINTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "unpacking as earlier versions did": (local_files, "unpack", unpack_half),
    "before unpacking": (local_files, "unpack", die),
    "before the pack is moved in": (quarantine, "_move_in", die),
    "after the pack is moved in": (local_files, "unpack", die_after(packs.unpack)),
    "before the refs": (local_files, "set_refs", die),
    "after the refs": (local_files, "set_refs", die_after(packs.set_refs)),
    "before the note of the workspace": (local_files, "note_workspace", die),
    "before the worktree": (workspace, "prepare_workspace", die),
    "after the worktree": (workspace, "prepare_workspace", die_after(workspace.prepare_workspace)),
    "before the restoration": (workspace, "restore", die),
    "after the restoration": (workspace, "restore", die_after(workspace.restore)),
}


@on_sqlite
@pytest.mark.parametrize("point", POINTS)
async def test_a_run_goes_on_where_a_process_died_while_it_restored(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    async def half(turn: Turn) -> None:
        await turn.use_tool("write_file", lambda: write_many(turn))

    run_id = await world.run_and_stop(half, "spec", engine=CARRIED)
    written = {path.name: path.read_text() for path in (world.worktree(run_id) / "many").iterdir()}
    destroy(world)
    there = other(world)
    owner, name, fault = POINTS[point]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fault)
        with pytest.raises(Died):
            await there.engine(edit, **CARRIED).resume(run_id)

    result = await there.engine(edit, **CARRIED).resume(run_id)

    assert result.state is RunStatus.COMPLETED, result.error
    assert {path.name: path.read_text() for path in (there.worktree(run_id) / "many").iterdir()} == written
    await there.close()


@on_sqlite
@pytest.mark.parametrize("fault", [unpack_half, die_after(packs.unpack)])
async def test_a_merge_that_died_while_it_unpacked_is_done_by_the_next_one(
    world: World, monkeypatch: pytest.MonkeyPatch, fault: Callable[..., Any]
) -> None:
    def script(turn: Turn) -> None:
        write_many(turn)
        hand_in(turn)

    run_id = await world.engine(script, **CARRIED).create(world.know(template("one")), repo_path=world.repo)
    world.repo.rename(world.folder / "away")
    there = other(world)
    assert (await there.engine(script, **CARRIED).resume(run_id)).state is RunStatus.COMPLETED
    (world.folder / "away").rename(world.repo)
    config = load_config(data_dir=world.data_dir, **CARRIED)
    with monkeypatch.context() as patch:
        patch.setattr(local_files, "unpack", fault)
        with pytest.raises(Died):
            await merge_run(world.db, config, run_id, MergeRequest())

    merged = await merge_run(world.db, config, run_id, MergeRequest())

    assert merged["branch"] == "main"
    assert len(list((world.repo / "many").iterdir())) == 50
    await there.close()


@on_sqlite
async def test_files_that_cannot_be_read_here_are_an_error_that_says_what_to_do(world: World) -> None:
    async def half(turn: Turn) -> None:
        await turn.use_tool("write_file", lambda: write_many(turn))

    run_id = await world.run_and_stop(half, "spec", engine=CARRIED)
    destroy(world)
    await world.sql("DELETE FROM tree_packs")
    there = other(world)

    with pytest.raises(WorkspaceError) as refused:
        await there.engine(edit, **CARRIED).resume(run_id)

    assert "cannot be put back" in refused.value.message
    assert f"holdfast fork {run_id[:8]}" in refused.value.hint
    await there.close()
