from pathlib import Path

import pytest
from tests.support.user_repository import AT, UserRepo

from holdfast.errors import WorkspaceError
from holdfast.workspace import Workspace, copy_files, prepare_workspace, remove_workspace, snapshot, write_tree


def test_copied_files_are_there_and_in_no_tree(repo: UserRepo, workspace: Workspace) -> None:
    repo.write(".env", "KEY=secret").chmod(0o600)
    repo.write("conf/local.toml", "x")
    repo.write("conf/deep/more.toml", "y")
    before = write_tree(workspace).tree_id

    report = copy_files(workspace, [".env", "conf/**/*.toml", ".env"])

    assert set(report.copied) == {".env", "conf/local.toml", "conf/deep/more.toml"}
    assert (workspace.root / ".env").read_text() == "KEY=secret"
    assert (workspace.root / ".env").stat().st_mode & 0o777 == 0o600
    assert write_tree(workspace).tree_id == before
    assert snapshot(workspace, "p", 1, at=AT).tree_id == before


def test_copied_secret_is_in_no_object_after_removal(repo: UserRepo, workspace: Workspace) -> None:
    repo.write(".env", "KEY=secret")
    copy_files(workspace, [".env"])
    (workspace.root / "new.txt").write_text("new")

    remove_workspace(workspace, at=AT)

    objects = repo.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)").splitlines()
    blobs = [line.split()[0] for line in objects if line.endswith("blob")]
    assert all("KEY=secret" not in repo.git("cat-file", "blob", blob) for blob in blobs)


def test_folders_are_copied_whole_without_git_and_our_data(repo: UserRepo, tmp_path: Path) -> None:
    repo.write("local/a", "a")
    repo.write("local/sub/b", "b")
    data_dir = repo.path / "local" / "data"
    workspace = prepare_workspace(repo.path, data_dir=data_dir, run_id="r")

    report = copy_files(workspace, ["local"])

    assert set(report.copied) == {"local/a", "local/sub/b"}


def test_tracked_missing_and_outside_things_are_skipped_with_a_reason(
    repo: UserRepo, workspace: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("secret")
    (repo.path / "out").symlink_to(tmp_path / "secret")
    repo.write("a.txt", "changed")
    repo.write("real", "real")
    (repo.path / "in").symlink_to("real")
    (workspace.root / "away").symlink_to(tmp_path)
    repo.write("away/x", "x")

    report = copy_files(workspace, ["out", "a.txt", "absent", "in", "away/x"])

    assert report.copied == ("in",)
    assert dict(report.skipped) == {
        "out": "it leads out of the repository",
        "a.txt": "git carries it already",
        "absent": "there is no such file",
        "away/x": "its folder in the workspace leads elsewhere",
    }
    assert (workspace.root / "in").read_text() == "real"
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("pattern", ["../x", "/etc/passwd", "a/../../x", ".git/config", ""])
def test_patterns_that_climb_out_are_refused(workspace: Workspace, pattern: str) -> None:
    with pytest.raises(WorkspaceError, match="cannot be copied"):
        copy_files(workspace, [pattern])


def test_paths_are_relative_to_the_named_subfolder(repo: UserRepo, data_dir: Path) -> None:
    repo.write("src/.env", "x")
    workspace = prepare_workspace(repo.path / "src", data_dir=data_dir, run_id="r")
    before = write_tree(workspace).tree_id

    copy_files(workspace, [".env"])

    assert (workspace.worktree / "src/.env").exists()
    assert write_tree(workspace).tree_id == before


def test_bare_repository_has_nothing_to_copy(repo: UserRepo, tmp_path: Path, data_dir: Path) -> None:
    repo.git("clone", "-q", "--bare", str(repo.path), str(tmp_path / "bare.git"))
    workspace = prepare_workspace(tmp_path / "bare.git", data_dir=data_dir, run_id="r")

    assert copy_files(workspace, [".env"]).skipped == ((".env", "the repository has no checkout"),)
