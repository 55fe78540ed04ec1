"""Where a run starts: what is checked out, what is named, and what is said about it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.user_repository import UserRepo

from holdfast.errors import BaseBranchMissing, RepositoryMissing, WorkspaceError
from holdfast.workspace import find_start


def test_it_is_the_branch_that_is_checked_out(repo: UserRepo) -> None:
    repo.git("switch", "-q", "-c", "feature/x")
    commit = repo.commit("on it", a_txt="two\n")

    start = find_start(repo.path)

    assert (start.name, start.commit) == ("feature/x", commit)
    assert start.describe() == f"From feature/x at {commit[:7]}; holdfast merge brings the result back there."


def test_a_tag_of_the_same_name_does_not_confuse_it(repo: UserRepo) -> None:
    repo.git("tag", "main")

    assert find_start(repo.path).name == "main"


def test_each_worktree_has_a_branch_of_its_own(repo: UserRepo, tmp_path: Path) -> None:
    repo.git("worktree", "add", "-q", "-b", "beside", str(tmp_path / "linked"))

    assert (find_start(repo.path).name, find_start(tmp_path / "linked").name) == ("main", "beside")
    assert find_start(repo.path / "src").name == "main"


def test_another_branch_can_be_named(repo: UserRepo) -> None:
    before = repo.git("rev-parse", "HEAD")
    repo.git("branch", "old")
    repo.commit("moved on", a_txt="two\n")

    assert (find_start(repo.path, "old").commit, find_start(repo.path, "old").is_branch) == (before, True)
    assert "needs --into BRANCH" in find_start(repo.path, "HEAD~1").describe()


def test_one_that_is_not_there_is_refused_with_those_that_are(repo: UserRepo) -> None:
    with pytest.raises(BaseBranchMissing, match="no branch 'mian'") as refused:
        find_start(repo.path, "mian")

    assert "main" in refused.value.hint


def test_without_a_branch_the_commit_is_the_start(repo: UserRepo) -> None:
    commit = repo.git("rev-parse", "HEAD")
    repo.git("switch", "-q", "--detach")

    start = find_start(repo.path)

    assert (start.name, start.commit, start.is_branch) == (commit, commit, False)
    assert start.describe() == (
        f"From commit {commit[:7]}, which is no branch of its own; holdfast merge needs --into BRANCH."
    )


def test_a_repository_without_commits_starts_from_nothing(make_repo: Callable[..., UserRepo]) -> None:
    start = find_start(make_repo("empty").path)

    assert (start.name, start.commit) == ("main", None)
    assert "no commit" in start.describe()


def test_a_branch_without_commits_beside_others_is_refused(repo: UserRepo) -> None:
    repo.git("switch", "-q", "--orphan", "fresh")

    with pytest.raises(BaseBranchMissing, match="'fresh' is checked out, but has no commit") as refused:
        find_start(repo.path)

    assert "main" in refused.value.hint


def test_a_bare_repository_has_a_branch_too(repo: UserRepo, tmp_path: Path) -> None:
    repo.git("clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))

    assert find_start(tmp_path / "bare.git").name == "main"


def test_a_folder_without_git_is_copied(tmp_path: Path) -> None:
    assert find_start(tmp_path).is_folder
    assert "no git" in find_start(tmp_path).describe()
    with pytest.raises(RepositoryMissing):
        find_start(tmp_path / "gone")


def test_a_run_can_start_in_a_folder_of_the_repository(repo: UserRepo, data_dir: Path) -> None:
    start = find_start(repo.path / "src", data_dir=data_dir)

    assert start.commit == repo.git("rev-parse", "HEAD")


def test_a_folder_that_the_commit_does_not_have_is_refused(repo: UserRepo, data_dir: Path) -> None:
    repo.git("checkout", "-q", "-b", "other")
    repo.commit("more", late__c_py="")

    with pytest.raises(WorkspaceError, match="'late' is not in branch 'main'"):
        find_start(repo.path / "late", "main", data_dir=data_dir)
