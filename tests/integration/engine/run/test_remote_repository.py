"""A repository that is named by a URL: fetched by whoever drives, and the result pushed to it as a branch."""

import asyncio
import os
import shutil
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.engine_world import Turn, World, git, hand_in
from tests.support.forked_command import start_warm
from tests.support.git_server import PASSWORD, GitServer, serving_git
from tests.support.progress_limit import until
from tests.support.ssh_server import serve_by_ssh

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
    hook.write_text("#!/bin/sh\necho no pushes today >&2\nexit 1\n")
    hook.chmod(0o755)
    before = git(bare, "rev-parse", "main")
    config = load_config(data_dir=world.data_dir, **settings(bare))
    with pytest.raises(WorkspaceConflict, match="it answers “no pushes today”"):
        await merge_run(world.db, config, run_id, MergeRequest())
    assert stat.S_IMODE(world.data_dir.stat().st_mode) == 0o700
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


@pytest.fixture
def ssh_log(world: World, bare: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Who is asked for by the user's own ssh, which talks git's protocol to the server without a network."""
    monkeypatch.setenv("HOME", str(world.folder))
    return serve_by_ssh(bare.parent, "code.example.org", world.folder / ".gitconfig")


@pytest.mark.parametrize("form", ["ssh://git@code.example.org{path}", "git@code.example.org:{name}"])
async def test_a_repository_by_ssh_is_fetched_and_pushed_with_the_users_own_ssh(
    world: World, bare: Path, ssh_log: Path, form: str
) -> None:
    url = form.format(path=bare, name=bare.name)
    run_id = await world.run_and_stop(
        lambda turn: turn.write("half.txt", "x"), "one", engine={"carry_files": True}, repo_path=url
    )
    there = World(world.url, world.folder / "other")
    there._keys = world._keys
    result = await there.engine(edit, carry_files=True).resume(run_id)
    assert result.state is RunStatus.COMPLETED, result.error
    config = load_config(data_dir=there.data_dir, carry_files=True)
    merged = await merge_run(there.db, config, run_id, MergeRequest())
    await there.close()
    assert (merged["branch"], git(bare, "show", "main:one.txt")) == ("main", "by one")
    requests = ssh_log.read_text()
    assert "git-upload-pack" in requests
    assert "git-receive-pack" in requests


async def test_an_ssh_server_that_lets_nobody_in_is_named_and_nothing_is_left(
    world: World, bare: Path, ssh_log: Path
) -> None:
    with pytest.raises(RepositoryMissing, match="unknown host"):
        await world.run(edit, "one", repo_path=f"ssh://git@elsewhere.example.org{bare}")
    assert not world.db.store.list_runs()


@pytest.mark.parametrize("hook", ["pre-receive", "post-receive"])
async def test_a_merge_killed_in_the_middle_of_its_push_is_finished_by_the_next(
    world: World, bare: Path, tmp_path: Path, hook: str
) -> None:
    url, pid, log = f"file://{bare}", tmp_path / "pid", tmp_path / "log"
    run_id = str((await world.run(edit, "one", engine=settings(bare), repo_path=url)).run_id)
    before = git(bare, "rev-parse", "main")
    program = bare / "hooks" / hook
    program.parent.mkdir(exist_ok=True)
    # The other side has taken the push, and holdfast is gone before it has heard of it; or the push comes to nothing.
    ends = "exit 1" if hook == "pre-receive" else ""
    program.write_text(f"#!/bin/sh\nuntil [ -s {pid} ]; do sleep 0.01; done\nkill -9 $(cat {pid})\n{ends}\n")
    program.chmod(0o755)
    env = {
        **os.environ,
        "HOLDFAST_DATA_DIR": str(world.data_dir),
        "HOLDFAST_CARRY_FILES": "true",
        "HOLDFAST_ALLOWED_REPOSITORIES": f"file://{bare.parent}",
    }
    log.touch()
    merging = start_warm(["merge", run_id], env, None, (os.devnull, str(log), str(log)))
    pid.write_text(str(merging.pid))
    assert merging.wait() == -signal.SIGKILL, log.read_text()
    program.unlink()
    if hook == "post-receive":
        await until(lambda: git(bare, "rev-parse", "main") != before, "the other side has ended")
    assert not world.events(run_id, "run.merged")

    merged = await merge_run(world.db, load_config(data_dir=world.data_dir, **settings(bare)), run_id, MergeRequest())

    assert (merged["branch"], git(bare, "show", "main:one.txt")) == ("main", "by one")
    assert len(git(bare, "rev-list", f"{before}..main").split()) == 1  # the result is there once
    assert len(world.events(run_id, "run.merged")) == 1
    assert (await world.run_row(run_id)).merged_into == "main"
