"""A merge that is killed anywhere is finished by the next one, and takes nothing of the user's for its own."""

import random
from typing import Any

import pytest
from tests.integration.workspace.test_merge import BY_WRITER, OWN, _work
from tests.support.crash.points import IS_TORTURE, SEED
from tests.support.user_repository import AT, UserRepo

from holdfast.errors import WorkspaceConflict, WorkspaceError
from holdfast.workspace import MergeAction, Merged, ResultStep, Workspace, merge_result
from holdfast.workspace.git import Git

STEP = 1 if IS_TORTURE else 3  # every third command, from one of the first three on


class Died(BaseException):
    """What a kill is to the code that it hits."""


def make_step(workspace: Workspace) -> ResultStep:
    """A result that changes, adds and removes a file."""
    (workspace.root / "src" / "b.py").unlink()
    return _work(workspace, a_txt="two\n", deep__new_txt="new\n", other_txt="other\n", plan_json="{}")


def merge(workspace: Workspace, step: ResultStep) -> Merged:
    return merge_result(workspace, [step], target_branch="main", at=AT, options=BY_WRITER, without=OWN)


def look(repo: UserRepo) -> dict[str, Any]:
    return {
        "status": repo.git("status", "--porcelain", "--untracked-files=all"),
        "files": repo.git("ls-files").split(),
        "a": (repo.path / "a.txt").read_text(),
        "new": (repo.path / "deep" / "new.txt").read_text(),
        "gone": (repo.path / "src" / "b.py").exists(),
        "log": repo.git("log", "--format=%s"),
        "locks": [path.name for path in (repo.path / ".git").rglob("*.lock")],
    }


def test_killed_at_any_command_it_is_finished_by_the_next(
    repo: UserRepo, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repo.path / "mine.txt").write_text("not in the way\n")
    step = make_step(workspace)
    start = repo.git("rev-parse", "HEAD")
    run_once = Git._run_once
    deaths = random.Random(SEED).randrange(STEP)
    ends: list[dict[str, Any]] = []

    while True:
        left = [deaths]

        def counted(git: Git, args: tuple[str, ...], stdin: bytes, left: list[int] = left) -> Any:
            if left[0] == 0:
                raise Died(args)
            left[0] -= 1
            return run_once(git, args, stdin)

        monkeypatch.setattr(Git, "_run_once", counted)
        try:
            merge(workspace, step)
            break
        except Died:
            deaths += STEP
        monkeypatch.setattr(Git, "_run_once", run_once)
        merge(workspace, step)
        ends.append(look(repo))
        repo.git("reset", "-q", "--hard", start)
    monkeypatch.setattr(Git, "_run_once", run_once)

    expected = look(repo)
    assert (expected["a"], expected["new"], expected["gone"], expected["locks"]) == ("two\n", "new\n", False, [])
    assert expected["status"] == "?? mine.txt"
    assert deaths > 10
    assert [end for end in ends if end != expected] == []


def test_a_git_that_dies_between_two_files_leaves_no_lock_and_is_finished(repo: UserRepo, workspace: Workspace) -> None:
    armed = repo.path.parent / "armed"
    repo.git("config", "--global", "filter.deadly.smudge", f"cat; if [ -e {armed} ]; then kill -9 $PPID; fi")
    (repo.path / ".git" / "info").mkdir(exist_ok=True)
    (repo.path / ".git" / "info" / "attributes").write_text("other.txt filter=deadly\n")
    step = make_step(workspace)

    armed.touch()
    with pytest.raises(WorkspaceError):
        merge(workspace, step)
    halfway = repo.git("status", "--porcelain")
    armed.unlink()
    merged = merge(workspace, step)

    assert "a.txt" in halfway
    assert merged.action is MergeAction.FAST_FORWARDED
    found = look(repo)
    assert (found["status"], found["a"], found["new"], found["locks"]) == ("", "two\n", "new\n", [])


def test_after_a_kill_a_change_of_the_users_is_still_theirs(
    repo: UserRepo, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = make_step(workspace)
    run_once = Git._run_once

    def dies_at_the_index(git: Git, args: tuple[str, ...], stdin: bytes) -> Any:
        if args[:2] == ("read-tree", "-i"):
            raise Died(args)
        return run_once(git, args, stdin)

    monkeypatch.setattr(Git, "_run_once", dies_at_the_index)
    with pytest.raises(Died):
        merge(workspace, step)
    monkeypatch.setattr(Git, "_run_once", run_once)
    (repo.path / "a.txt").write_text("two, and mine\n")

    with pytest.raises(WorkspaceConflict) as conflict:
        merge(workspace, step)

    assert conflict.value.paths == ("a.txt",)
    assert (repo.path / "a.txt").read_text() == "two, and mine\n"
    assert repo.git("log", "--format=%s") == "first"
