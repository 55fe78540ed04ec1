"""A repository that is named by a URL: fetched by whoever drives, and the result pushed to it as a branch."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.engine_world import Turn, World, git, hand_in
from tests.support.git_server import PASSWORD, GitServer, serving_git

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


@pytest.fixture
def server(world: World, bare: Path) -> Iterator[GitServer]:
    """A server that serves it by https, to those who have the password."""
    git(bare, "config", "http.receivepack", "true")
    with serving_git(bare.parent, world.folder) as serving:
        serving.let_in(world.folder)
        yield serving


async def test_a_run_on_a_url_goes_on_elsewhere_and_is_pushed_from_there(
    world: World, bare: Path, server: GitServer
) -> None:
    url = server.url(bare.name)
    made = await world.run_and_stop(
        lambda turn: turn.write("half.txt", "x"), "one", engine={"carry_files": True}, repo_path=url
    )
    there = World(world.url, world.folder / "other")
    there._keys = world._keys
    result = await there.engine(edit, carry_files=True).resume(made)
    assert result.state is RunStatus.COMPLETED, result.error
    config = load_config(data_dir=there.data_dir, carry_files=True)
    merged = await merge_run(there.db, config, made, MergeRequest())
    assert merged["branch"] == "main"
    assert git(bare, "show", "main:one.txt") == "by one"
    branches = git(bare, "for-each-ref", "--format=%(refname)").split()
    assert branches == ["refs/heads/main"]  # nothing of the run's own got out
    await there.close()
    assert server.refused  # it asked for the password, which git's own helper has and nothing of ours
    for file in (file for folder in (world.data_dir, there.data_dir) for file in folder.rglob("*") if file.is_file()):
        assert PASSWORD.encode() not in file.read_bytes(), file


async def test_a_password_that_is_refused_is_in_no_message(world: World, bare: Path, server: GitServer) -> None:
    server.let_in(world.folder, password="another-secret")
    with pytest.raises(RepositoryMissing) as missing:
        await world.run(edit, "one", repo_path=server.url(bare.name))
    assert "Authentication failed" in missing.value.message
    assert "another-secret" not in str(missing.value)
    assert not world.db.store.list_runs()


async def test_a_branch_that_does_not_take_the_result_is_a_conflict(world: World, bare: Path) -> None:
    run_id = str((await world.run(edit, "one", engine=settings(bare), repo_path=f"file://{bare}")).run_id)
    hook = bare / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    before = git(bare, "rev-parse", "main")
    config = load_config(data_dir=world.data_dir, **settings(bare))
    with pytest.raises(WorkspaceConflict):
        await merge_run(world.db, config, run_id, MergeRequest())
    mirror = remotes.mirror_path(f"file://{bare}", world.data_dir)
    assert (git(bare, "rev-parse", "main"), git(mirror, "rev-parse", "main")) == (before, before)


async def test_merges_of_two_runs_at_once_lose_neither(world: World, bare: Path) -> None:
    runs = []
    for name in ("one", "two"):
        result = await world.run(edit, name, engine=settings(bare), repo_path=f"file://{bare}")
        runs.append(str(result.run_id))
    config = load_config(data_dir=world.data_dir, **settings(bare))
    await asyncio.gather(*(merge_run(world.db, config, run_id, MergeRequest()) for run_id in runs))
    assert (git(bare, "show", "main:one.txt"), git(bare, "show", "main:two.txt")) == ("by one", "by two")


async def test_a_place_does_not_use_a_url_that_only_another_place_allows(world: World, bare: Path) -> None:
    url = f"file://{bare}"
    made = await world.run_and_stop(lambda _turn: None, "one", engine=settings(bare), repo_path=url)
    there = World(world.url, world.folder / "other")
    there._keys = world._keys
    with pytest.raises(RepositoryNotAllowed):
        await there.engine(edit, carry_files=True).resume(made)
    assert not remotes.mirror_path(url, there.data_dir).exists()
    await there.close()
    result = await world.engine(edit, **settings(bare)).resume(made)  # nobody has it, and nothing was written
    assert result.state is RunStatus.COMPLETED, result.error


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
        "https://example.org/team/%2E%2e/a.git",
        "https://example.org/a.git?token=secret",
        "https:///a.git",
        "git@example.org:../a.git",
        "name:secret@example.org:a.git",
        "git://example.org/a.git",
    ],
)
async def test_a_url_that_may_not_be_used_is_refused(world: World, url: str) -> None:
    with pytest.raises(RepositoryNotAllowed) as refused:
        await world.run(edit, "one", engine={"allowed_repositories": ["file:///srv"]}, repo_path=url)
    assert "secret" not in str(refused.value)


async def test_a_request_names_only_listed_repositories(world: World) -> None:
    remotes.check_remote("https://example.org/team/a.git", allowed=["https://example.org/team"], is_request=True)
    remotes.check_remote("git@example.org:team/a.git", allowed=["git@example.org:team"], is_request=True)
    for url in ("https://example.org/teams/a.git", "git@example.org:other/a.git"):
        with pytest.raises(RepositoryNotAllowed):
            remotes.check_remote(url, allowed=["https://example.org/team", "git@example.org:team"], is_request=True)
