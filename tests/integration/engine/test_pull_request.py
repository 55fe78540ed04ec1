"""A pull request of a run on the user's own clone: the result is pushed to the clone's remote as a branch."""

import os
import signal
from pathlib import Path

import pytest
from tests.support.engine_world import Turn, World, git
from tests.support.forked_command import start_warm
from tests.support.progress_limit import until
from tests.support.ssh_server import serve_by_ssh

from holdfast.config import load_config
from holdfast.engine.merge import MergeRequest, merge_run
from holdfast.errors import PullRequestFormMissing, RepositoryMissing, WorkspaceConflict
from holdfast.workspace.transfer.pull_request_form import find_form_of_clone

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

SECRET = "ghp_secret"
REQUEST, DRY = MergeRequest(is_pull_request=True), MergeRequest(is_pull_request=True, is_dry_run=True)


def edit(turn: Turn) -> None:
    turn.write("work.txt", "done\n")
    turn.hand_in()


@pytest.fixture
def hosted(world: World, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bare repository that the user's git finds at GitHub; the clone names it by https, with a token in the URL."""
    bare = world.folder / "team" / "shop.git"
    git(world.folder, "clone", "--quiet", "--bare", str(world.repo), str(bare))
    monkeypatch.setenv("HOME", str(world.folder))
    serve_by_ssh(world.folder, "github.com", world.folder / ".gitconfig")
    settings = world.folder / ".gitconfig"
    settings.write_text(settings.read_text() + f"\tinsteadOf = https://user:{SECRET}@github.com/\n")
    git(world.repo, "remote", "add", "origin", f"https://user:{SECRET}@github.com/team/shop.git")
    git(world.repo, "update-ref", "refs/remotes/origin/main", "main")
    # What the clone itself says of how to push is not the user's word.
    git(world.repo, "config", "core.sshCommand", "false")
    git(world.repo, "config", "url./nowhere/.insteadOf", "https://")
    return bare


async def test_the_result_is_pushed_as_a_branch_and_nothing_else_of_the_clone_changes(
    world: World, hosted: Path
) -> None:
    (world.repo / "mine.txt").write_text("not pushed yet\n")
    git(world.repo, "add", ".")
    git(world.repo, "-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "-qm", "of mine")
    run_id = str((await world.run(edit)).run_id)
    config, branch = load_config(data_dir=world.data_dir), f"run-{run_id[:8]}"
    before = git(world.repo, "for-each-ref", "refs/heads", "refs/remotes")

    tried = await merge_run(world.db, config, run_id, DRY)
    assert tried["message"] == (
        f"{branch} of github.com would be created: 1 file, +1 −0. {branch} would also get 1 commit of main that the run"
        " started from: “of mine”. Nothing was changed."
    )
    assert git(world.repo, "for-each-ref", "refs/heads", "refs/remotes") == before
    assert git(hosted, "for-each-ref", "--format=%(refname)") == "refs/heads/main"

    done = await merge_run(world.db, config, run_id, REQUEST)
    again = await merge_run(world.db, config, run_id, REQUEST)

    assert done["link"] == f"https://github.com/team/shop/compare/main...{branch}?expand=1"
    assert git(hosted, "rev-parse", branch) == done["commit"]
    assert git(hosted, "show", f"{branch}:work.txt") == "done"
    assert (again["action"], again["link"], again["commit"]) == ("nothing_to_do", done["link"], done["commit"])
    refs = git(world.repo, "for-each-ref", "--format=%(refname)", "refs/heads", "refs/remotes").split()
    assert refs == ["refs/heads/main", "refs/remotes/origin/main", f"refs/remotes/origin/{branch}"]
    assert (await world.run_row(run_id)).merged_into == f"{branch} of github.com"
    for file in (file for file in world.data_dir.rglob("*") if file.is_file()):
        assert SECRET.encode() not in file.read_bytes(), file


async def test_commits_of_others_on_the_branch_stay_and_a_refusal_changes_nothing(world: World, hosted: Path) -> None:
    run_id = str((await world.run(edit)).run_id)
    config, branch = load_config(data_dir=world.data_dir), f"run-{run_id[:8]}"
    hook = hosted / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(WorkspaceConflict) as refused:
        await merge_run(world.db, config, run_id, REQUEST)
    assert SECRET not in str(refused.value)
    assert git(world.repo, "for-each-ref", "--format=%(refname)", "refs/remotes") == "refs/remotes/origin/main"
    assert not world.events(run_id, "run.merged")
    hook.unlink()
    other = world.folder / "other"
    git(world.folder, "clone", "--quiet", str(hosted), str(other))
    (other / "theirs.txt").write_text("theirs\n")
    git(other, "add", ".")
    git(other, "-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "-qm", "theirs")
    git(other, "push", "--quiet", "origin", f"HEAD:{branch}")

    merged = await merge_run(world.db, config, run_id, REQUEST)

    assert merged["action"] == "merged"
    assert (git(hosted, "show", f"{branch}:theirs.txt"), git(hosted, "show", f"{branch}:work.txt")) == (
        "theirs",
        "done",
    )


@pytest.mark.parametrize("hook", ["pre-receive", "post-receive"])
async def test_one_killed_in_the_middle_of_its_push_is_finished_by_the_next(
    world: World, hosted: Path, tmp_path: Path, hook: str
) -> None:
    run_id = str((await world.run(edit)).run_id)
    pid, log, branch = tmp_path / "pid", tmp_path / "log", f"run-{run_id[:8]}"
    program = hosted / "hooks" / hook
    program.parent.mkdir(exist_ok=True)
    # The other side has taken the push, and holdfast is gone before it has heard of it; or the push comes to nothing.
    ends = "exit 1" if hook == "pre-receive" else ""
    program.write_text(f"#!/bin/sh\nuntil [ -s {pid} ]; do sleep 0.01; done\nkill -9 $(cat {pid})\n{ends}\n")
    program.chmod(0o755)
    log.touch()
    env = {**os.environ, "HOLDFAST_DATA_DIR": str(world.data_dir)}
    merging = start_warm(["merge", run_id, "--pull-request"], env, None, (os.devnull, str(log), str(log)))
    pid.write_text(str(merging.pid))
    assert merging.wait() == -signal.SIGKILL, log.read_text()
    program.unlink()
    if hook == "post-receive":
        await until(lambda: git(hosted, "for-each-ref", f"refs/heads/{branch}") != "", "the other side has ended")
    assert not world.events(run_id, "run.merged")

    log.write_text("")
    assert start_warm(["merge", run_id, "--pull-request"], env, None, (os.devnull, str(log), str(log))).wait() == 0

    said = f"{branch} of github.com: created, 1 file, +1 −0, now at "
    assert (said if hook == "pre-receive" else f"{branch} of github.com has the result already.") in log.read_text()
    assert f"Open the form: https://github.com/team/shop/compare/main...{branch}?expand=1\n" in log.read_text()
    assert git(hosted, "rev-parse", branch) == git(world.repo, "rev-parse", f"origin/{branch}")
    assert len(git(hosted, "rev-list", f"main..{branch}").split()) == 1  # the result is there once
    assert len(world.events(run_id, "run.merged")) == 1


async def test_a_shallow_clone_pushes_as_well(world: World, hosted: Path) -> None:
    for number in range(2):
        (world.repo / "more.txt").write_text(f"{number}\n")
        git(world.repo, "add", ".")
        git(world.repo, "-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "-qm", "more")
    git(world.repo, "push", "--quiet", str(hosted), "main")
    shallow = world.folder / "shallow"
    git(world.folder, "clone", "--quiet", "--depth=1", f"file://{hosted}", str(shallow))
    git(shallow, "remote", "set-url", "origin", "git@github.com:team/shop.git")
    run_id = str((await world.run(edit, repo_path=str(shallow))).run_id)

    await merge_run(world.db, load_config(data_dir=world.data_dir), run_id, REQUEST)

    assert git(hosted, "show", f"run-{run_id[:8]}:work.txt") == "done"


async def test_a_host_that_is_away_and_one_without_a_form_are_typed_errors(world: World, hosted: Path) -> None:
    run_id = str((await world.run(edit)).run_id)
    config = load_config(data_dir=world.data_dir)
    git(world.repo, "remote", "set-url", "origin", "git@gitlab.com:team/shop.git")
    with pytest.raises(RepositoryMissing, match="unknown host"):
        await merge_run(world.db, config, run_id, DRY)
    git(world.repo, "remote", "set-url", "origin", str(hosted))
    with pytest.raises(PullRequestFormMissing):
        await merge_run(world.db, config, run_id, REQUEST)
    assert not world.events(run_id, "run.merge.requested")


async def test_the_branch_that_the_form_names_is_the_one_that_the_base_follows(world: World) -> None:
    def find(base: str) -> tuple[str, str] | None:
        form = find_form_of_clone(world.repo / ".git", base=base, title="T", run_id="1a2b3c4d")
        return form and (form.remote, form.target)

    assert find("main") is None
    git(world.repo, "remote", "add", "origin", "https://github.com/me/shop")
    assert find("main") == ("origin", "main")
    git(world.repo, "update-ref", "refs/remotes/origin/trunk", "main")
    git(world.repo, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")
    assert find("topic") == ("origin", "trunk")
    git(world.repo, "remote", "add", "team", "gh:team/shop")
    git(world.repo, "config", "url.git@github.com:.insteadOf", "gh:")
    git(world.repo, "config", "branch.main.remote", "team")
    git(world.repo, "config", "branch.main.merge", "refs/heads/next")
    assert find("main") == ("team", "next")
    assert find("a b\nc") == ("origin", "trunk")
