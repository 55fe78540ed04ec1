"""A folder without git, or without a commit, travels from the machine that starts the run."""

import pytest
from tests.integration.engine.run.test_carried_files import CARRIED, edit, on_sqlite, other, read_diff
from tests.support.engine_world import World, git, template

from holdfast.config import load_config
from holdfast.engine.merge import MergeRequest, merge_run
from holdfast.enums import RunStatus
from holdfast.errors import RepositoryMissing
from holdfast.persistence.carried_files import find_base
from holdfast.workspace.transfer import packs


class Died(BaseException):
    """The process is gone."""


@on_sqlite
@pytest.mark.parametrize("has_git", [False, True])
@pytest.mark.parametrize("is_there", [False, True])
async def test_a_run_on_a_folder_is_done_elsewhere_and_merged_where_it_was_started(
    world: World, has_git: bool, is_there: bool
) -> None:
    folder = world.folder / "mine"
    folder.mkdir()
    if has_git:
        git(folder, "init", "-q", "-b", "main")
    else:
        (folder / "mine.txt").write_text("of the starter\n")
        (folder / ".gitignore").write_text(".env\n")
        (folder / ".env").write_text("KEY=1\n")
        (folder / "app.db").write_text("a database\n")
    run_id = await world.engine(edit, **CARRIED).create(world.know(template("one")), repo_path=folder)
    folder.rename(world.folder / "away")
    if is_there:  # the other machine has a folder of the same path, and even a repository
        folder.mkdir()
        (folder / "theirs.txt").write_text("of another machine\n")
        git(folder, "init", "-q", "-b", "main")
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", "theirs")
    there = other(world)

    result = await there.engine(edit, **CARRIED).resume(run_id)

    assert result.state is RunStatus.COMPLETED, result.error
    names = {path.name for path in there.worktree(run_id).iterdir()} - {".git"}
    assert names == {"out", "one.txt", *(() if has_git else ("mine.txt", ".gitignore"))}
    assert "+by one" in await read_diff(there, run_id)
    with pytest.raises(RepositoryMissing):
        await merge_run(there.db, load_config(data_dir=there.data_dir, **CARRIED), run_id, MergeRequest())
    if is_there:
        folder.rename(world.folder / "theirs")
        assert {path.name for path in (world.folder / "theirs").iterdir()} == {".git", "theirs.txt"}
    (world.folder / "away").rename(folder)
    merged = await merge_run(world.db, load_config(data_dir=world.data_dir, **CARRIED), run_id, MergeRequest())
    if has_git:
        assert git(folder, "show", "main:one.txt") == "by one"
    else:
        assert (merged["folder"], merged["paths"]) == (str(folder), ["one.txt"])
        assert (folder / "one.txt").read_text() == "by one\n"
    await there.close()


@on_sqlite
async def test_a_folder_that_was_not_carried_is_never_taken_from_another_machine(world: World) -> None:
    folder = world.folder / "mine"
    folder.mkdir()
    (folder / "mine.txt").write_text("of the starter\n")
    run_id = await world.engine(edit).create(world.know(template("one")), repo_path=folder)
    there = other(world)
    for settings in ({}, CARRIED):
        with pytest.raises(RepositoryMissing, match="folder of another machine"):
            await there.engine(edit, **settings).resume(run_id)
    assert not there.worktree(run_id).exists()

    assert (await world.engine(edit, **CARRIED).resume(run_id)).state is RunStatus.COMPLETED
    await there.close()


@on_sqlite
async def test_a_run_of_an_earlier_version_that_nobody_has_begun_says_that_its_machine_is_not_known(
    world: World,
) -> None:
    folder = world.folder / "mine"
    folder.mkdir()
    run_id = await world.engine(edit).create(world.know(template("one")), repo_path=folder)
    await world.sql("DELETE FROM run_bases")

    with pytest.raises(RepositoryMissing, match="whose folder"):
        await world.engine(edit, **CARRIED).resume(run_id)

    assert (await world.engine(edit).resume(run_id)).state is RunStatus.COMPLETED  # one data folder for all


@on_sqlite
async def test_a_start_that_died_leaves_a_copy_that_the_next_one_makes_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, run_id = world.folder / "mine", "5eed0000-0000-4000-8000-000000000001"
    folder.mkdir()
    (folder / "mine.txt").write_text("first\n")
    made = world.know(template("one"))

    def die(*_args: object, **_options: object) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr("holdfast.engine.run.base_files.make_base_pack", die)
        with pytest.raises(Died):
            await world.engine(edit, **CARRIED).create(made, repo_path=folder, pre_allocated_run_id=run_id)
    (folder / "mine.txt").write_text("second\n")
    await world.engine(edit, **CARRIED).create(made, repo_path=folder, pre_allocated_run_id=run_id)
    base = await find_base(world.db, run_id)
    assert base is not None
    assert packs.find_missing(world.data_dir / "repositories" / f"{run_id}.git", [base.commit_id]) == set()

    assert (await world.engine(edit, **CARRIED).resume(run_id)).state is RunStatus.COMPLETED
    assert (world.worktree(run_id) / "mine.txt").read_text() == "second\n"
