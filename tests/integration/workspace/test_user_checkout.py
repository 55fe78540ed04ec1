"""What a terminal shows of the user's folder: where git does not answer, that is an answer too."""

from pathlib import Path

import pytest
from tests.support.user_repository import UserRepo

from holdfast.errors import WorkspaceError
from holdfast.workspace.git import Author
from holdfast.workspace.user_checkout import (
    commit_new_repository,
    find_branch,
    find_checkout,
    find_git_version,
    list_files,
    read_status,
)


def test_a_checkout_is_found_from_a_folder_in_it(repo: UserRepo) -> None:
    assert find_checkout(repo.path / "src") == repo.path.resolve()


def test_a_folder_without_git_has_no_checkout_no_branch_and_no_files(tmp_path: Path) -> None:
    assert (find_checkout(tmp_path), find_branch(tmp_path), list_files(tmp_path)) == (None, "HEAD", [])


def test_a_machine_without_git_answers_the_same(repo: UserRepo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    assert (find_checkout(repo.path), find_branch(repo.path), list_files(repo.path)) == (None, "HEAD", [])
    assert find_git_version() is None


def test_the_branch_is_the_one_that_is_checked_out(repo: UserRepo) -> None:
    repo.git("switch", "-q", "-c", "feature/x")
    assert find_branch(repo.path) == "feature/x"

    repo.git("switch", "-q", "--detach")
    assert find_branch(repo.path) == "HEAD"


def test_files_are_those_git_knows_and_those_it_would_add(repo: UserRepo) -> None:
    (repo.path / ".gitignore").write_text("ignored\n")
    for name in ("ignored", "new file"):
        (repo.path / name).touch()

    assert list_files(repo.path) == [".gitignore", "a.txt", "new file", "src/b.py"]


def test_the_status_changes_with_the_files_and_with_the_commit(repo: UserRepo) -> None:
    before = read_status(repo.path)
    assert read_status(repo.path) == before

    (repo.path / "a.txt").write_text("two\n")
    changed = read_status(repo.path)
    assert changed != before

    repo.git("commit", "-q", "-a", "-m", "two")
    assert read_status(repo.path) not in (before, changed)


def test_a_new_repository_has_one_commit_by_its_author(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    with pytest.raises(WorkspaceError):
        read_status(tmp_path)

    commit_new_repository(tmp_path, Author("demo", "demo@example.invalid"), "Begin")

    repo = UserRepo(tmp_path)
    assert repo.git("log", "--format=%an %cn %s", "main") == "demo demo Begin"
    assert repo.git("config", "--local", "user.email") == "demo@example.invalid"


def test_the_version_of_git_is_a_number() -> None:
    version = find_git_version()

    assert version is not None
    assert version.split(".")[0].isdigit()
