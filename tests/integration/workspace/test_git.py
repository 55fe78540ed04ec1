"""Git whose output is read while it runs: it ends in time with all that it has started, and says why it failed."""

import pytest
from tests.support.user_repository import UserRepo

from holdfast.errors import WorkspaceError
from holdfast.workspace import git as git_module
from holdfast.workspace.git import Git

_HANGS = ("-c", "alias.hang=!echo begun; sleep 1000", "hang")


def test_git_that_does_not_end_is_ended_with_all_that_it_has_started(
    repo: UserRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_module, "TIMEOUT_S", 0.1)
    git = Git(git_dir=repo.path / ".git")

    with pytest.raises(WorkspaceError, match=r"did not end within 0.1 s") as late, git.stream(*_HANGS) as output:
        output.read()  # comes to its end once nobody has the other end of the pipe

    assert late.value.facts["command"].startswith("git -c alias.hang")


def test_answers_that_do_not_come_in_time_are_no_fault_of_who_reads_them(
    repo: UserRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_module, "TIMEOUT_S", 0.1)
    git = Git(git_dir=repo.path / ".git")

    with pytest.raises(WorkspaceError, match="did not end within"), git.converse("cat-file", "--batch-check") as pipes:
        _name, _kind, _size = pipes[1].readline().split()


def test_what_git_says_last_is_the_reason_of_its_failure(repo: UserRepo) -> None:
    warnings = "i=0; while [ $i -lt 20000 ]; do echo a warning >&2; i=$((i+1)); done"
    script = ("-c", f"alias.fail=!{warnings}; echo fatal: the reason >&2; exit 3", "fail")

    with pytest.raises(WorkspaceError) as failed, Git(git_dir=repo.path / ".git").stream(*script) as output:
        assert output.read() == b""

    assert (failed.value.facts["exit_code"], failed.value.facts["stderr"]) == (3, "fatal: the reason")
    assert failed.value.message.endswith("failed: fatal: the reason")
