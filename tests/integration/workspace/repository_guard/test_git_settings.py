"""A repository whose own settings and files try to run programs as whoever works on it."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.user_repository import AT, UserRepo

from holdfast.errors import RepositoryMissing, WorkspaceError
from holdfast.workspace import ResultStep, merge_result, prepare_workspace, snapshot, write_tree
from holdfast.workspace.repository import find_repository, list_written_folders
from holdfast.workspace.repository_guard.git_settings import find_overrides
from holdfast.workspace.start import find_start


def touch(tmp_path: Path) -> tuple[str, Path]:
    """Return a command that leaves a trace, and the trace."""
    trace = tmp_path / "ran"
    return f"touch {trace}; cat", trace


@pytest.mark.parametrize("name", ["evil", "e=v.il"])
@pytest.mark.parametrize("kind", ["smudge", "clean", "process"])
def test_no_filter_of_the_repository_runs(repo: UserRepo, data_dir: Path, tmp_path: Path, kind: str, name: str) -> None:
    command, trace = touch(tmp_path)
    repo.commit("filtered", b_bin="text\n")
    (repo.path / ".git/info").mkdir(exist_ok=True)
    (repo.path / ".git/info/attributes").write_text(f"* filter={name} merge={name}\n")
    with (repo.path / ".git/config").open("a") as file:
        file.write(f'[filter "{name}"]\n{kind} = "{command}"\nrequired = true\n')
        file.write(f'[merge "{name}"]\ndriver = "{command}; false"\n')
    trace.unlink(missing_ok=True)

    (repo.path / "b.bin").touch()
    workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")
    (workspace.root / "b.bin").write_text("changed\n")
    snapshot(workspace, "work", 1, at=AT)

    assert not trace.exists()
    assert (workspace.root / "a.txt").read_text() == "one\n"


def test_a_merge_driver_of_the_repository_does_not_run_and_lines_are_merged(
    repo: UserRepo, data_dir: Path, tmp_path: Path
) -> None:
    command, trace = touch(tmp_path)
    repo.commit("more", long_txt="1\n2\n3\n4\n5\n6\n7\n8\n9\n")
    repo.git("config", "merge.evil.driver", command)
    (repo.path / ".git/info").mkdir(exist_ok=True)
    (repo.path / ".git/info/attributes").write_text("* merge=evil\n")
    workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")
    (workspace.root / "long.txt").write_text("1\n2\n3\n4\n5\n6\n7\n8\nmine\n")
    taken = snapshot(workspace, "work", 1, at=AT)
    repo.commit("meanwhile", long_txt="theirs\n2\n3\n4\n5\n6\n7\n8\n9\n")

    merge_result(workspace, [ResultStep(taken.commit, "Do it\n")], target_branch="main", at=AT)

    assert not trace.exists()
    assert (repo.path / "long.txt").read_text() == "theirs\n2\n3\n4\n5\n6\n7\n8\nmine\n"


@pytest.mark.parametrize(
    "key",
    [
        *("core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "core.askPass", "core.gitProxy"),
        *("diff.external", "gpg.program", "credential.helper", "alias.status", "core.alternateRefsCommand"),
        *("uploadpack.packObjectsHook", "pager.log", "pager.diff", "submodule.sub.update", "sequence.editor"),
        *("diff.evil.command", "diff.evil.textconv", "hook.evil.command"),
    ],
)
def test_no_other_setting_of_the_repository_runs_a_program(
    repo: UserRepo, data_dir: Path, tmp_path: Path, key: str
) -> None:
    command, trace = touch(tmp_path)
    repo.write(".gitattributes", "* diff=evil\n")
    repo.commit("attributes")
    for setting in ("commit.gpgSign", "log.showSignature"):
        (repo.path / ".git/extra").write_text(f"[include]\n[{setting.split('.')[0]}]\n{setting.split('.')[1]} = true\n")
    repo.git("config", "include.path", "extra")
    prefix = "!" if key.startswith(("alias", "credential", "submodule")) else ""
    value = json.dumps(f"{prefix}{command}")
    section, name = key.rsplit(".", 1)
    head, _, sub = section.partition(".")
    with (repo.path / ".git/extra").open("a") as file:
        file.write(f"[{head}{f' {json.dumps(sub)}' if sub else ''}]\n{name} = {value}\n")
        file.write('[hook "evil"]\nevent = post-checkout\nevent = reference-transaction\n')
    hooks = repo.path / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for hook in ("post-checkout", "reference-transaction", "post-index-change", "fsmonitor-watchman"):
        (hooks / hook).write_text(f"#!/bin/sh\n{command}\n")
        (hooks / hook).chmod(0o755)
    repo.git("config", "core.hooksPath", "/dev/null")  # only while this test's own git prepares
    repo.git("config", "--unset", "core.hooksPath")
    trace.unlink(missing_ok=True)
    before = repo.git("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "rev-parse", "HEAD")

    workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")
    (workspace.root / "a.txt").write_text("mine\n")
    taken = snapshot(workspace, "work", 1, at=AT)
    merge_result(workspace, [ResultStep(taken.commit, "Do it\n")], target_branch="main", at=AT)

    assert before
    assert not trace.exists()


def test_nothing_is_fetched_from_a_promisor_remote(repo: UserRepo, data_dir: Path, tmp_path: Path) -> None:
    command, trace = touch(tmp_path)
    blob = repo.git("rev-parse", "HEAD:a.txt")
    with (repo.path / ".git/config").open("a") as file:
        file.write("[core]\nrepositoryformatversion = 1\n[extensions]\npartialClone = evil\n")
        file.write(f'[remote "evil"]\nurl = {repo.path}\npromisor = true\nuploadpack = "{command}"\n')
        file.write("[protocol]\nallow = always\n")
    (repo.path / ".git/objects" / blob[:2] / blob[2:]).unlink()

    with pytest.raises(WorkspaceError, match="lacks some of its objects"):
        find_start(repo.path, "main", data_dir=data_dir)  # a run that could never start is not made
    with pytest.raises(WorkspaceError, match="lacks some of its objects"):
        prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")

    assert not trace.exists()


def test_a_filter_of_the_user_and_the_one_of_lfs_stay(repo: UserRepo, data_dir: Path) -> None:
    repo.git("config", "--global", "filter.mine.smudge", "sed s/one/smudged/")
    repo.git("config", "--global", "filter.mine.clean", "sed s/smudged/one/")
    repo.write(".gitattributes", "a.txt filter=mine\n")
    repo.commit("filtered")

    workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")

    assert (workspace.root / "a.txt").read_text() == "smudged\n"
    lfs = [("filter.lfs.clean", "git-lfs clean -- %f"), ("filter.lfs.process", "git-lfs filter-process")]
    assert find_overrides(lfs) == {}
    assert find_overrides([*lfs, ("lfs.customtransfer.x.path", "evil")])["filter.lfs.process"] == ""
    assert find_overrides([("filter.lfs.clean", "evil")])["filter.lfs.clean"] == ""


def test_settings_that_change_during_a_run_are_seen(repo: UserRepo, data_dir: Path, tmp_path: Path) -> None:
    command, trace = touch(tmp_path)
    workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")
    write_tree(workspace)
    repo.git("config", "filter.late.clean", command)
    (workspace.root / ".gitattributes").write_text("* filter=late\n")
    (workspace.root / "a.txt").write_text("changed\n")

    write_tree(workspace)

    assert not trace.exists()


@pytest.fixture
def tracked_bare(repo: UserRepo, tmp_path: Path) -> Path:
    """Return a folder that a repository tracks, laid out as a bare one whose settings run a program."""
    command, _ = touch(tmp_path)
    bare = repo.path / "vendor/lib"
    subprocess.run(["git", "clone", "-q", "--bare", str(repo.path), str(bare)], check=True)
    (bare / "config").write_text(
        f'[core]\nrepositoryformatversion = 0\nbare = true\nfsmonitor = "{command}"\n'
        f'[filter "evil"]\nsmudge = "{command}"\n'
    )
    (bare / "info/attributes").write_text("* filter=evil\n")
    return bare


def test_a_bare_repository_below_a_checkout_is_none(tracked_bare: Path, tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="laid out as a bare repository inside the checkout"):
        find_start(tracked_bare)
    for below in ("refs", "objects", "hooks"):
        with pytest.raises(WorkspaceError):
            find_start(tracked_bare / below)

    assert not (tmp_path / "ran").exists()


def test_a_bare_repository_of_its_own_works_and_its_filters_do_not(
    tracked_bare: Path, data_dir: Path, tmp_path: Path
) -> None:
    alone = shutil.move(tracked_bare, tmp_path / "alone.git")

    workspace = prepare_workspace(Path(alone), data_dir=data_dir, run_id="run-1")

    assert (workspace.root / "a.txt").read_text() == "one\n"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("below", [".git", ".git/refs", ".git/objects"])
def test_a_path_inside_a_git_directory_is_refused(repo: UserRepo, below: str) -> None:
    with pytest.raises(WorkspaceError):
        find_start(repo.path / below)


def test_the_real_git_directory_is_found_behind_links(make_repo: Callable[..., UserRepo], tmp_path: Path) -> None:
    victim = make_repo("victim")
    victim.commit("first", a_txt="one\n")
    for name in ("by-file", "by-link", "by-worktree", "by-refs"):
        (tmp_path / "root" / name).mkdir(parents=True)
    (tmp_path / "root/by-file/.git").write_text(f"gitdir: {victim.path}/.git\n")
    (tmp_path / "root/by-link/.git").symlink_to(victim.path / ".git")
    victim.git("worktree", "add", "-q", str(tmp_path / "root/by-worktree"), "-b", "side")
    shutil.copytree(victim.path / ".git", tmp_path / "root/by-refs/.git")
    shutil.rmtree(tmp_path / "root/by-refs/.git/refs")
    (tmp_path / "root/by-refs/.git/refs").symlink_to(victim.path / ".git/refs")

    for name in ("by-file", "by-link", "by-worktree", "by-refs"):
        found = find_repository(tmp_path / "root" / name)
        assert found is not None
        assert any(folder.is_relative_to(victim.path) for folder in list_written_folders(found)), name


def test_a_work_tree_that_is_set_elsewhere_is_refused(repo: UserRepo, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    repo.git("config", "core.worktree", str(tmp_path / "elsewhere"))

    with pytest.raises(WorkspaceError, match=r"core\.worktree"):
        find_start(repo.path)


def test_a_checkout_that_only_the_repository_claims_is_not_written_to(
    repo: UserRepo, make_repo: Callable[..., UserRepo], data_dir: Path
) -> None:
    victim = make_repo("victim")
    victim.commit("first", a_txt="victim\n")
    entry = repo.path / ".git/worktrees/fake"
    entry.mkdir(parents=True)
    (entry / "gitdir").write_text(f"{victim.path}/.git\n")
    (entry / "commondir").write_text("../..\n")
    (entry / "HEAD").write_text("ref: refs/heads/main\n")
    repo.git("checkout", "-q", "--detach")
    workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")
    (workspace.root / "a.txt").write_text("mine\n")
    taken = snapshot(workspace, "work", 1, at=AT)

    merged = merge_result(workspace, [ResultStep(taken.commit, "Do it\n")], target_branch="main", at=AT)

    assert merged.checkout is None
    assert (victim.path / "a.txt").read_text() == "victim\n"


def test_no_submodule_is_filled_from_outside_the_repository(
    repo: UserRepo, make_repo: Callable[..., UserRepo], data_dir: Path
) -> None:
    secret = make_repo("secret")
    commit = secret.commit("first", secret_txt="secret\n")
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{commit},sub")
    repo.git("commit", "-q", "-m", "submodule")
    (repo.path / "sub").mkdir()
    (repo.path / "sub/.git").write_text(f"gitdir: {secret.path}/.git\n")

    workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="run-1")

    assert workspace.empty_submodules == ("sub",)
    assert not (workspace.root / "sub/secret.txt").exists()


def test_a_name_that_is_too_long_is_no_repository() -> None:
    with pytest.raises(RepositoryMissing):
        find_repository(Path("/tmp") / ("x" * 300))
