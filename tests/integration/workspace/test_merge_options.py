"""How a result is brought to a branch: as one commit, under a message of its own, tried first, to a new branch."""

import random
from dataclasses import replace
from typing import Any

import pytest
from tests.integration.workspace.test_merge import OWN, WRITER, _work
from tests.integration.workspace.test_merge_kill import STEP, Died, look, make_step
from tests.support.crash.points import SEED
from tests.support.user_repository import AT, UserRepo

from holdfast.errors import TargetBranchMissing, WorkspaceConflict
from holdfast.workspace import MergeAction, Merged, MergeOptions, ResultStep, Workspace, merge_result
from holdfast.workspace.git import Git

SQUASH = MergeOptions(is_squashed=True, message="All of it\n\nFor a reason.")


def merge(workspace: Workspace, *steps: ResultStep, into: str = "main", **options: Any) -> Merged:
    settings = MergeOptions(**options) if options else SQUASH
    return merge_result(
        workspace, steps, target_branch=into, at=AT, without=OWN, options=replace(settings, author=WRITER)
    )


def two_steps(workspace: Workspace) -> tuple[ResultStep, ResultStep]:
    first = _work(workspace, a_txt="two\n")
    second = _work(workspace, c_txt="c\n")
    return ResultStep(first.tree, "Title: one", "one"), ResultStep(second.tree, "Title: two", "two")


def test_squashed_it_is_one_commit(repo: UserRepo, workspace: Workspace) -> None:
    merged = merge(workspace, *two_steps(workspace))

    assert (merged.action, merged.commits) == (MergeAction.SQUASHED, ("All of it",))
    assert repo.git("log", "--format=%s").splitlines() == ["All of it", "first"]
    assert repo.git("log", "-1", "--format=%b") == "For a reason."
    assert repo.git("status", "--porcelain") == ""


def test_squashed_on_a_branch_that_moved_on_it_is_one_commit_on_its_tip(repo: UserRepo, workspace: Workspace) -> None:
    steps = two_steps(workspace)
    repo.commit("theirs", other_txt="theirs\n")

    merge(workspace, *steps)

    assert repo.git("log", "--format=%s %p").count(" ") >= 2
    assert repo.git("log", "--format=%s").splitlines() == ["All of it", "theirs", "first"]
    assert repo.git("rev-parse", "HEAD^@").count("\n") == 0
    assert (repo.path / "other.txt").read_text() + (repo.path / "c.txt").read_text() == "theirs\nc\n"


@pytest.mark.parametrize("is_squashed_first", [True, False])
def test_whichever_way_it_came_it_does_not_come_twice(
    repo: UserRepo, workspace: Workspace, is_squashed_first: bool
) -> None:
    steps = two_steps(workspace)
    repo.commit("theirs", other_txt="theirs\n")
    merge(workspace, *steps, is_squashed=is_squashed_first, message="One way")
    tip = repo.commit("later", another_txt="later\n")

    again = [merge(workspace, *steps, is_squashed=is_squashed, message="X") for is_squashed in (True, False)]

    assert [each.action for each in again] == [MergeAction.NOTHING_TO_DO] * 2
    assert not any(each.is_empty for each in again)
    assert repo.git("rev-parse", "HEAD") == tip


def test_a_message_is_the_one_commits_and_names_the_phase_where_there_are_several(
    repo: UserRepo, workspace: Workspace
) -> None:
    one, two = two_steps(workspace)

    single = merge(workspace, one, into="single", message="Mine\n\nWhy.")
    several = merge(workspace, one, two, into="several", message="Mine\n\nWhy.")

    assert (single.commits, several.commits) == (("Mine",), ("Mine: one", "Mine: two"))
    assert repo.git("log", "-1", "--format=%B", "single") == "Mine\n\nWhy."
    assert repo.git("log", "-1", "--format=%B", "several") == "Mine: two\n\nWhy."


def test_a_dry_run_changes_nothing_and_says_everything(repo: UserRepo, workspace: Workspace) -> None:
    steps = two_steps(workspace)
    before = (repo.state(), repo.git("for-each-ref"))

    tried = [
        merge(workspace, *steps, is_dry_run=True, is_squashed=is_squashed, message="M", can_create=True, into=into)
        for is_squashed in (True, False)
        for into in ("main", "fresh")
    ]

    assert [file.path for file in tried[0].summary.files] == ["a.txt", "c.txt"]
    assert [len(each.commits) for each in tried] == [1, 1, 2, 2]
    assert (repo.state(), repo.git("for-each-ref")) == before
    assert not (workspace.state_dir / "index.checkout").exists()


def test_a_dry_run_names_conflicts_with_the_branch_and_with_the_checkout(repo: UserRepo, workspace: Workspace) -> None:
    step = _work(workspace, a_txt="ours\n", c_txt="c\n")
    repo.write("c.txt", "not committed\n")
    with pytest.raises(WorkspaceConflict) as dirty:
        merge(workspace, step, is_dry_run=True)
    repo.commit("theirs", a_txt="theirs\n")
    with pytest.raises(WorkspaceConflict) as diverged:
        merge(workspace, step, is_dry_run=True, is_squashed=True)

    assert (dirty.value.paths, diverged.value.paths[0]) == (("c.txt",), "a.txt")


def test_a_branch_that_is_not_there_is_made_only_if_asked_for(repo: UserRepo, workspace: Workspace) -> None:
    step = _work(workspace, a_txt="two\n")

    with pytest.raises(TargetBranchMissing, match="no branch 'mian'") as refused:
        merge(workspace, step, into="mian", can_create=False)
    made = merge(workspace, step, into="mian", can_create=True)

    assert (refused.value.can_be_made, "main" in refused.value.hint) == (True, True)
    assert made.action is MergeAction.CREATED


def test_a_result_without_changes_is_empty_whatever_the_branch(workspace: Workspace) -> None:
    assert merge(workspace, _work(workspace, plan_json="{}"), into="nowhere", can_create=False).is_empty


def test_a_squash_killed_at_any_command_is_finished_by_the_next(
    repo: UserRepo, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = make_step(workspace)
    start = repo.commit("theirs", theirs_txt="theirs\n")
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
    assert expected["log"].splitlines() == ["All of it", "theirs", "first"]
    assert (expected["status"], expected["locks"]) == ("", [])
    assert deaths > 10
    assert [end for end in ends if end != expected] == []


# -- several merges of one run ----------------------------------------------------------------------------------------


def test_each_branch_remembers_what_it_has(repo: UserRepo, workspace: Workspace) -> None:
    steps = two_steps(workspace)
    merge(workspace, *steps, message="A")
    merge(workspace, *steps, into="other", message="B")

    again = [merge(workspace, *steps, into=branch, message="C") for branch in ("main", "other")]
    later = ResultStep(_work(workspace, 2, a_txt="three\n").tree, "Later")
    brought = merge(workspace, *steps, later, message="D")

    assert [each.action for each in again] == [MergeAction.NOTHING_TO_DO] * 2
    assert brought.action is MergeAction.FAST_FORWARDED
    assert repo.git("log", "--format=%s", "main").splitlines() == ["D", "A: two", "A: one", "first"]


def test_what_comes_after_a_squash_is_one_commit_more(repo: UserRepo, workspace: Workspace) -> None:
    steps = two_steps(workspace)
    merge(workspace, *steps)
    repo.commit("theirs", other_txt="theirs\n")
    later = ResultStep(_work(workspace, 2, a_txt="three\n").tree, "Two")

    for options in ({"message": "Two"}, {"is_squashed": True, "message": "Two"}):
        merge(workspace, *steps, later, **options)

    assert repo.git("log", "--format=%s").splitlines() == ["Two", "theirs", "All of it", "first"]
    assert (repo.path / "a.txt").read_text() == "three\n"
    assert repo.git("status", "--porcelain") == ""


@pytest.mark.parametrize("is_squashed", [True, False])
def test_a_change_that_was_taken_back_after_a_merge_is_taken_back_on_the_branch(
    repo: UserRepo, workspace: Workspace, is_squashed: bool
) -> None:
    before = (repo.path / "a.txt").read_text()
    merge(workspace, ResultStep(_work(workspace, a_txt="two\n").tree, "One"), is_squashed=is_squashed, message="One")

    merge(
        workspace, ResultStep(_work(workspace, 2, a_txt=before).tree, "Back"), is_squashed=is_squashed, message="Back"
    )

    assert repo.git("log", "--format=%s").splitlines() == ["Back", "One", "first"]
    assert (repo.path / "a.txt").read_text() == before


def test_what_can_be_no_branch_is_refused_before_anything_is_made(repo: UserRepo, workspace: Workspace) -> None:
    steps = two_steps(workspace)
    refs = repo.git("for-each-ref")

    with pytest.raises(TargetBranchMissing, match="cannot be the name"):
        merge(workspace, *steps, into="bad..name", message="A")

    assert repo.git("for-each-ref") == refs
