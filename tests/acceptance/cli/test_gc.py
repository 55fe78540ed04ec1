"""Cleaning up from the command line: what it lists, what it asks, and what it leaves."""

import subprocess
from pathlib import Path

import pytest
from tests.acceptance.cli.conftest import Command
from tests.support.terminal import Terminal


def git(repo: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", repo, *arguments], check=True, capture_output=True, text=True).stdout


def test_gc_removes_worktrees_and_every_look_at_the_run_still_works(
    start: Command, holdfast: Command, repo: Path
) -> None:
    run_id = start("--yes").json["run_id"]
    diff = holdfast("runs", "diff", run_id).out

    rehearsed = holdfast("gc", "--dry-run", "--json").json
    assert run_id in git(repo, "worktree", "list")
    done = holdfast("gc", "--json")

    assert done.err == ""
    assert (rehearsed["dry_run"], done.json["dry_run"]) == (True, False)
    assert sorted(map(str, rehearsed["items"])) == sorted(map(str, done.json["items"]))
    assert done.json["bytes"] == sum(item["bytes"] for item in done.json["items"]) > 0
    assert {item["kind"] for item in done.json["items"]} >= {"worktree", "branch"}
    assert {item["run_id"] for item in done.json["items"]} == {run_id}
    assert all(set(item) == {"kind", "run_id", "path", "bytes"} for item in done.json["items"])
    assert run_id not in git(repo, "worktree", "list") + git(repo, "branch")
    assert holdfast("runs", "diff", run_id).out == diff
    assert holdfast("runs", "show", run_id, "--json").json["state"] == "completed"
    assert holdfast("gc").out == "Nothing to clean up.\n"
    assert holdfast("merge", run_id).code == 0
    assert holdfast("db", "check").code == 0


def test_merge_takes_worktree_and_branch_with_it_unless_they_are_to_stay(
    start: Command, holdfast: Command, repo: Path
) -> None:
    first, second = (start("--yes").json["run_id"] for _ in range(2))

    gone, second_merge = holdfast("merge", first), holdfast("merge", second, "--keep", "--into", "other")

    assert "Removed the run's worktree and branch." in gone.out
    assert "Removed" not in second_merge.out
    listed = git(repo, "worktree", "list")
    assert first not in listed
    assert second in listed


def test_whole_runs_go_only_if_they_are_named_by_a_selection(start: Command, holdfast: Command) -> None:
    merged, unmerged, paused = start("--yes"), start("--yes"), start()
    holdfast("merge", merged.json["run_id"])

    for wrong in (["--runs"], ["--unmerged"], ["--older-than", "soon"], ["--state", "paused"], ["--max-size", "big"]):
        refused = holdfast("gc", *wrong)
        assert (refused.code, refused.out) == (2, "")
    assert holdfast("gc", "--runs", "--older-than", "30d", "--json").json["items"] == []
    done = holdfast("gc", "--runs", "--state", "completed")

    assert f"Kept {unmerged.json['run_id'][:8]}: its result is not merged." in done.out
    left = {run["run_id"] for run in holdfast("runs", "list", "--json").json}
    assert left == {unmerged.json["run_id"], paused.json["run_id"]}


def test_runs_rm_needs_a_yes_and_names_what_it_could_not_delete(start: Command, holdfast: Command) -> None:
    run_id, paused = start("--yes").json["run_id"], start().json["run_id"]
    holdfast("merge", run_id)

    unasked = holdfast("runs", "rm", run_id)
    waiting = holdfast("runs", "rm", paused, run_id, "--yes")
    rehearsed = holdfast("runs", "rm", run_id, "--dry-run", "--json")
    deleted = holdfast("runs", "rm", run_id[:8], "--yes")

    assert (unasked.code, unasked.out) == (2, "")
    assert "--yes" in unasked.err
    assert (waiting.code, waiting.err) == (
        1,
        f"holdfast: run_not_in_state: Run {paused} is not over. End it first: holdfast abort {paused[:8]}\n",
    )
    assert (rehearsed.code, rehearsed.json["dry_run"]) == (0, True)
    assert (deleted.code, deleted.err) == (0, "")
    assert holdfast("runs", "show", run_id).err.startswith("holdfast: run_not_found")
    assert [run["run_id"] for run in holdfast("runs", "list", "--json").json] == [paused]
    assert holdfast("budget", "--json").json["simulated_usd"] > 0
    assert holdfast("db", "check").code == 0


@pytest.mark.parametrize(("typed", "is_gone"), [("y\n", True), ("\n", False), ("\x04", False)])
def test_at_a_terminal_it_asks(
    start: Command, holdfast: Command, environment: dict[str, str], typed: str, is_gone: bool
) -> None:
    run_id = start("--yes").json["run_id"]

    with Terminal("runs", "rm", run_id, "--unmerged", env=environment) as terminal:
        terminal.wait_for("Delete this run for good? [y/N]")
        terminal.type(typed)
        code = terminal.end()

    assert code == (0 if is_gone else 1)
    assert (holdfast("runs", "list", "--json").json == []) is is_gone


def test_where_there_is_nothing_there_is_nothing_to_clean_up(holdfast: Command, tmp_path: Path) -> None:
    assert holdfast("gc", "--json").json["items"] == []
    assert holdfast("gc").out == "Nothing to clean up.\n"
    assert not (tmp_path / "data").exists()


def test_a_delete_that_is_refused_touches_nothing(start: Command, holdfast: Command) -> None:
    run_id = start("--yes").json["run_id"]
    worktree = Path(holdfast("runs", "show", run_id, "--json").json["worktree_root"])

    refused = holdfast("runs", "rm", run_id, "--yes", "--json")

    assert refused.code == 1
    assert refused.json["items"] == []
    assert "not merged" in refused.json["skipped"][0]["reason"]
    assert worktree.is_dir()


def test_approvals_of_runs_that_are_over_wait_for_nobody(start: Command, holdfast: Command) -> None:
    run_id = start().json["run_id"]
    assert "1 approval waits" in holdfast().out

    holdfast("abort", run_id)

    assert "approval waits" not in holdfast().out
