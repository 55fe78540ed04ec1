"""A repository that is named by a URL: fetched by whoever drives, and the result pushed to it as a branch."""

import shutil
from pathlib import Path

import pytest
from tests.support.engine_world import Turn, World, git, hand_in

from holdfast.config import load_config
from holdfast.engine.merge import MergeRequest, merge_run
from holdfast.enums import RunStatus
from holdfast.errors import RepositoryMissing, RepositoryNotAllowed, WorkspaceConflict
from holdfast.workspace.transfer import remotes

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def edit(turn: Turn) -> None:
    turn.write(f"{turn.phase_key}.txt", f"by {turn.phase_key}\n")
    hand_in(turn)


@pytest.fixture
def bare(world: World) -> Path:
    """A bare repository that stands for a server, and nothing else of the user's."""
    made = world.folder / "server.git"
    git(world.folder, "clone", "--quiet", "--bare", str(world.repo), str(made))
    shutil.rmtree(world.repo)
    return made


def settings(bare: Path) -> dict[str, object]:
    return {"carry_files": True, "allowed_repositories": [f"file://{bare.parent}"]}


async def test_a_run_on_a_url_goes_on_elsewhere_and_is_pushed_from_there(world: World, bare: Path) -> None:
    url = f"file://{bare}"
    made = await world.run_and_stop(
        lambda turn: turn.write("half.txt", "x"), "one", engine=settings(bare), repo_path=url
    )
    there = World(world.url, world.folder / "other")
    there._keys = world._keys
    result = await there.engine(edit, **settings(bare)).resume(made)
    assert result.state is RunStatus.COMPLETED, result.error
    config = load_config(data_dir=there.data_dir, **settings(bare))
    merged = await merge_run(there.db, config, made, MergeRequest())
    assert merged["branch"] == "main"
    assert git(bare, "show", "main:one.txt") == "by one"
    branches = git(bare, "for-each-ref", "--format=%(refname)").split()
    assert branches == ["refs/heads/main"]  # nothing of the run's own got out
    await there.close()


async def test_a_branch_that_moved_while_it_was_merged_is_a_conflict(
    world: World, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = str((await world.run(edit, "one", engine=settings(bare), repo_path=f"file://{bare}")).run_id)
    clone = world.folder / "clone"
    git(world.folder, "clone", "--quiet", str(bare), str(clone))
    (clone / "faster.txt").write_text("someone was faster\n")
    git(clone, "add", ".")
    git(clone, "-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "-qm", "faster")
    push = remotes.push_branch

    def push_late(*args: object, **options: object) -> None:
        git(clone, "push", "--quiet", "origin", "main")
        push(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("holdfast.engine.merge.push_branch", push_late)
    config = load_config(data_dir=world.data_dir, **settings(bare))
    with pytest.raises(WorkspaceConflict):
        await merge_run(world.db, config, run_id, MergeRequest())
    assert git(bare, "log", "-1", "--format=%s", "main") == "faster"
    monkeypatch.setattr("holdfast.engine.merge.push_branch", push)
    await merge_run(world.db, config, run_id, MergeRequest())
    assert git(bare, "show", "main:one.txt") == "by one"
    assert git(bare, "show", "main:faster.txt") == "someone was faster"


async def test_a_repository_out_of_reach_is_said_and_nothing_is_written(world: World, bare: Path) -> None:
    with pytest.raises(RepositoryMissing):
        await world.run(edit, "one", engine=settings(bare), repo_path=f"file://{bare.parent}/none.git")
    assert not world.db.store.list_runs()


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/a.git",
        "ext::sh -c x",
        "https://name:secret@example.org/a.git",
        "https://token@example.org/a.git",
        "ssh://-oProxyCommand=x/a",
        "file:///elsewhere/a.git",
        "https://example.org/../a.git",
    ],
)
async def test_a_url_that_may_not_be_used_is_refused(world: World, url: str) -> None:
    with pytest.raises(RepositoryNotAllowed) as refused:
        remotes.check_remote(url, allowed=["file:///srv"])
    assert "secret" not in str(refused.value)


async def test_a_request_names_only_listed_repositories(world: World) -> None:
    remotes.check_remote("https://example.org/team/a.git", allowed=["https://example.org/team"], is_request=True)
    remotes.check_remote("git@example.org:team/a.git", allowed=["git@example.org:team"], is_request=True)
    for url in ("https://example.org/teams/a.git", "git@example.org:other/a.git"):
        with pytest.raises(RepositoryNotAllowed):
            remotes.check_remote(url, allowed=["https://example.org/team", "git@example.org:team"], is_request=True)
