"""A run's files travel with its journal: another data directory, which is another machine, goes on where one died."""

import os
import shutil
from pathlib import Path

import pytest
from tests.support.engine_world import CATALOG, Turn, World, git, hand_in, phase, template

from holdfast.config import load_config
from holdfast.engine.merge import MergeRequest, merge_run
from holdfast.engine.merge_preview import preview_merge
from holdfast.engine.patch import RecordedFiles, order_trees, read_patch
from holdfast.engine.retention.deletion import delete_run, finish_deleted
from holdfast.engine.run.load import get_run
from holdfast.engine.run.local_files import bring_files
from holdfast.enums import RunStatus
from holdfast.errors import RepositoryMissing, WorkspaceTooLarge
from holdfast.persistence.carried_files import find_base, find_report, list_packs, read_schemas
from holdfast.runtime.stores import open_journal
from holdfast.workspace.cleanup.leftovers import RunPlaces
from holdfast.workspace.git import GitProcesses

CARRIED = {"carry_files": True}
on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def other(world: World, name: str = "other") -> World:
    """Another machine on the same database: a data directory of its own."""
    machine = World(world.url, world.folder / name)
    machine._keys = world._keys
    return machine


def destroy(world: World) -> None:
    """Lose a machine for good, with its data directory and its copy of the repository."""
    for path in world.data_dir.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif not path.name.startswith("holdfast.db"):
            path.unlink()
    shutil.rmtree(world.repo)


def edit(turn: Turn) -> None:
    turn.write(f"{turn.phase_key}.txt", f"by {turn.phase_key}\n")
    hand_in(turn)


async def read_diff(world: World, run_id: str, **settings: object) -> str:
    stored = await get_run(world.db, run_id)
    config = load_config(data_dir=world.data_dir, **CARRIED, **settings)
    trees = order_trees((row.phase_key, row.tree, row.ended_at) for row in stored.phases.values())
    await bring_files(world.db, config, stored.run, trees.values())
    definition = stored.template.definition if stored.template else None
    return read_patch(world.data_dir, RecordedFiles(run_id, trees, definition))


async def test_another_machine_goes_on_in_the_middle_of_an_attempt(world: World) -> None:
    async def half(turn: Turn) -> None:
        await turn.use_tool("write_file", lambda: turn.write("half.txt", "written before the machine died\n"))
        turn.write("unrecorded.txt", "by nobody's call\n")

    run_id = await world.run_and_stop(half, "spec", engine=CARRIED)
    destroy(world)
    there = other(world)
    result = await there.engine(edit, **CARRIED).resume(run_id)
    assert result.state is RunStatus.COMPLETED, result.error
    [moved] = there.events(run_id, "workspace.moved")
    assert moved.payload["before"] != moved.payload["place"]
    [recorded] = there.events(run_id, "tool.result")
    assert moved.payload["tree"] == recorded.payload["result"]["tree"]
    assert (there.worktree(run_id) / "half.txt").read_text() == "written before the machine died\n"
    assert (there.worktree(run_id) / "spec.txt").read_text() == "by spec\n"
    assert (there.worktree(run_id) / "app.py").exists()
    assert not (there.worktree(run_id) / "unrecorded.txt").exists()
    await there.close()


@on_sqlite
async def test_an_approval_given_elsewhere_is_about_the_same_files(world: World) -> None:
    moving = str((await world.run(edit, "one", phase("two", risk="high"), engine=CARRIED)).run_id)
    destroy(world)
    [question] = world.events(moving, "human.approval.requested")
    there = other(world)
    await there.engine(edit, **CARRIED).decide(moving, question.payload["approval_id"], "approve", by="me")
    result = await there.engine(edit, **CARRIED).resume(moving)
    assert result.state is RunStatus.COMPLETED, result.error
    tree = (await get_run(there.db, moving)).phases["two"].tree
    listed = git(there.worktree(moving), "ls-tree", "-r", "--name-only", str(tree))
    assert listed.split() == ["app.py", "one.txt", "out/one.json", "out/two.json", "two.txt"]
    await there.close()


@on_sqlite
async def test_f6_a_server_that_never_saw_the_worktree_shows_everything(world: World) -> None:
    run_id = str((await world.run(edit, "one", "two", engine=CARRIED)).run_id)
    here = await read_diff(world, run_id)
    assert "+by one" in here
    destroy(world)
    there = other(world)
    assert await read_diff(there, run_id) == here
    report = await find_report(there.db, run_id)
    assert report is not None
    assert {file["path"] for file in report["files"]} == {"one.txt", "two.txt"}
    assert await read_schemas(there.db, run_id)
    config = load_config(data_dir=there.data_dir, **CARRIED)
    preview = await preview_merge(there.db, config, run_id)
    assert {file.path for file in preview.files} == {"one.txt", "two.txt"}
    forked = await there.engine(edit, **CARRIED).fork(run_id, "two")
    assert forked.state is RunStatus.COMPLETED, forked.error
    assert (there.worktree(forked.run_id) / "one.txt").exists()
    with pytest.raises(RepositoryMissing):
        await merge_run(there.db, config, run_id, MergeRequest())
    await there.close()


@on_sqlite
async def test_a_run_from_a_laptop_is_done_by_two_workers_and_merged_on_the_laptop(world: World) -> None:
    made = world.know(template("one", phase("two", risk="high"), "three"))
    run_id = await world.engine(edit, **CARRIED).create(made, repo_path=world.repo)
    first, second = other(world, "first"), other(world, "second")
    moved = world.folder / "away"
    world.repo.rename(moved)  # the workers have no such folder
    assert (await first.engine(edit, **CARRIED).resume(run_id)).state is RunStatus.PAUSED
    [question] = world.events(run_id, "human.approval.requested")
    await world.engine(edit, **CARRIED).decide(run_id, question.payload["approval_id"], "approve", by="me")
    shutil.rmtree(first.data_dir)
    assert (await second.engine(edit, **CARRIED).resume(run_id)).state is RunStatus.COMPLETED
    places = [event.payload["place"] for event in world.events(run_id, "workspace.moved")]
    moved.rename(world.repo)
    config = load_config(data_dir=world.data_dir, **CARRIED)
    merged = await merge_run(world.db, config, run_id, MergeRequest())
    assert (merged["branch"], len(places)) == ("main", 1)
    for key in ("one", "two", "three"):
        assert (world.repo / f"{key}.txt").read_text() == f"by {key}\n"
    await first.close()
    await second.close()


@on_sqlite
async def test_a_run_that_comes_back_has_the_files_of_where_it_was(world: World) -> None:
    run_id = str((await world.run(edit, "one", phase("two", risk="high"), "three", engine=CARRIED)).run_id)
    (world.worktree(run_id) / "stray.txt").write_text("nobody recorded this\n")
    [question] = world.events(run_id, "human.approval.requested")
    there = other(world)
    await there.engine(edit, **CARRIED).decide(
        run_id, question.payload["approval_id"], "request_changes", comment="more"
    )

    def more(turn: Turn) -> None:
        turn.write("more.txt", "made elsewhere\n")
        hand_in(turn)

    await there.engine(more, **CARRIED).resume(run_id)
    [_, question] = world.events(run_id, "human.approval.requested")
    await world.engine(edit, **CARRIED).decide(run_id, question.payload["approval_id"], "approve")
    result = await world.engine(edit, **CARRIED).resume(run_id)
    assert result.state is RunStatus.COMPLETED, result.error
    assert (world.worktree(run_id) / "more.txt").read_text() == "made elsewhere\n"
    assert not (world.worktree(run_id) / "stray.txt").exists()
    assert len(world.events(run_id, "workspace.moved")) == 2
    await there.close()


@pytest.mark.parametrize("verb", ["retry", "fork"])
@on_sqlite
async def test_a_phase_starts_again_elsewhere_from_its_files_after_others_were_completed(
    world: World, verb: str
) -> None:
    async def fail_in_the_third(turn: Turn) -> None:
        await turn.use_tool("write_file", lambda: turn.write("log.txt", f"{turn.phase_key}\n"))
        await turn.use_tool("write_file", lambda: turn.write(f"{turn.phase_key}.txt", "made\n"))
        if turn.phase_key == "three":
            raise RuntimeError("it fails with its files half changed")
        hand_in(turn)

    failed = await world.run(fail_in_the_third, "one", "two", phase("three", attempts=1), "four", engine=CARRIED)
    run_id = str(failed.run_id)
    assert failed.state is RunStatus.FAILED
    # The trees of single calls of the completed phases are gone, those of the phase that failed are there.
    assert [pack.kind for pack in await list_packs(world.db, run_id)] == ["phase", "phase", "step", "step"]
    started = {
        event.payload["phase"]: event.payload["result"]["tree"] for event in world.events(run_id, "phase.started")
    }
    destroy(world)
    there = other(world)
    seen: dict[str, list[str]] = {}

    def look(turn: Turn) -> None:
        seen[turn.phase_key] = sorted(path.name for path in turn.root.glob("*.txt"))
        seen[f"log of {turn.phase_key}"] = [(turn.root / "log.txt").read_text()]
        hand_in(turn)

    engine = there.engine(look, **CARRIED)
    result = await (engine.retry(run_id) if verb == "retry" else engine.fork(run_id, "three"))

    assert result.state is RunStatus.COMPLETED, result.error
    assert seen["three"] == seen["four"] == ["log.txt", "one.txt", "two.txt"]
    assert seen["log of three"] == ["two\n"]
    assert there.phases_done() == ["three", "four"]
    pinned = [event.payload for event in there.events(result.run_id, "phase.started")]
    again = next(payload for payload in reversed(pinned) if payload["phase"] == "three")
    assert again["result"]["tree"] == started["three"]
    await there.close()


@on_sqlite
async def test_a_move_says_what_did_not_come_along(world: World) -> None:
    def make(turn: Turn) -> None:
        turn.write(".gitignore", ".env\nbuilt/\n")
        turn.write(".env", "A=1\n")
        turn.write("built/deep/one.o", "made\n")
        turn.write("node_modules/left-pad/index.js", "left\n")
        (turn.root / "nested").mkdir()
        git(turn.root / "nested", "init", "-q")
        turn.write("nested/inside.txt", "in a repository of its own\n")
        (turn.root / "big.bin").touch()
        os.truncate(turn.root / "big.bin", 21 * 1024**2)
        hand_in(turn)

    paused = await world.run(make, phase("one", risk="high"), engine=CARRIED)
    moving = str(paused.run_id)
    assert paused.waiting_for == "approval", paused.error
    (world.worktree(moving) / "later.env").write_text("since then\n")
    destroy(world)
    there = other(world)
    [question] = world.events(moving, "human.approval.requested")
    await there.engine(edit, **CARRIED).decide(moving, question.payload["approval_id"], "approve")
    assert (await there.engine(edit, **CARRIED).resume(moving)).state is RunStatus.COMPLETED

    [moved] = there.events(moving, "workspace.moved")
    left = {item["path"]: item["reason"] for item in moved.payload["left_behind"]}
    assert left == {
        "big.bin": "too_big",
        "nested": "nested_repository",
        ".env": "ignored",
        "built/": "ignored",
        "node_modules/": "ignored",
        "whatever else git ignores": "ignored",
    }
    assert [path for path in left if (there.worktree(moving) / path).exists()] == []
    assert (there.worktree(moving) / ".gitignore").exists()
    await there.close()


@on_sqlite
async def test_one_pack_takes_the_place_of_a_phases_packs(world: World) -> None:
    run_id = str((await world.run(edit, "one", "two", engine=CARRIED)).run_id)
    packs = await list_packs(world.db, run_id)
    assert [pack.kind for pack in packs] == ["phase", "phase"]
    stored = await get_run(world.db, run_id)
    assert stored.phases["two"].snapshot.endswith(next(iter(packs[1].refs)))


@on_sqlite
async def test_deleting_a_run_takes_its_packs_along(world: World) -> None:
    run_id = str((await world.run(edit, "one", engine=CARRIED)).run_id)
    assert await list_packs(world.db, run_id)
    async with open_journal(world.db.store) as journal:
        claim = await journal.claim(run_id)
        places = RunPlaces(world.data_dir, run_id)
        deleted = await delete_run(world.db, journal, claim, places, can_lose_unmerged=True)
        await finish_deleted(journal, deleted, ())
    assert not await list_packs(world.db, run_id)
    assert await find_base(world.db, run_id) is None
    assert await find_report(world.db, run_id) is None


@on_sqlite
async def test_a_run_starts_few_git_processes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    start = GitProcesses.start

    def count(self: GitProcesses, argv: list[str], **options: object) -> object:
        started.append(argv)
        return start(self, argv, **options)

    monkeypatch.setattr(GitProcesses, "start", count)
    await world.run(edit, "warm", engine={"carry_files": False})
    started.clear()
    await world.run(edit, "one", "two", engine={"carry_files": False})
    assert len(started) <= 27, len(started)


@on_sqlite
async def test_files_survive_a_collection_of_garbage_in_the_middle(world: World) -> None:
    def collected(turn: Turn) -> None:
        git(world.repo, "gc", "--quiet", "--prune=now")
        edit(turn)
        git(world.repo, "gc", "--quiet", "--prune=now")

    run_id = str((await world.run(collected, "one", "two", engine=CARRIED)).run_id)
    here = await read_diff(world, run_id)
    destroy(world)
    there = other(world)
    assert await read_diff(there, run_id) == here
    await there.close()


@on_sqlite
async def test_a_base_that_is_too_big_to_travel_is_refused_with_its_biggest_files(world: World) -> None:
    big = world.repo / "big.bin"
    big.write_bytes(bytes(range(256)) * 4096 + __import__("os").urandom(2 * 1024**2))
    git(world.repo, "add", ".")
    git(world.repo, "commit", "-qm", "big")
    with pytest.raises(WorkspaceTooLarge, match=r"big\.bin"):
        await world.run(edit, "one", engine={**CARRIED, "carry_max_mb": 1})
    assert not world.db.store.list_runs()


@on_sqlite
async def test_f6_schemas_count_as_they_were_when_the_run_was_made(world: World, tmp_path: Path) -> None:
    schemas = tmp_path / "schemas"
    shutil.copytree(CATALOG / "artifacts", schemas)
    run_id = await world.run_and_stop(lambda turn: None, "spec", engine={"schemas": schemas})
    shutil.rmtree(schemas)
    result = await world.engine(edit, schemas=tmp_path / "none").resume(run_id)
    assert result.state is RunStatus.COMPLETED, result.error
