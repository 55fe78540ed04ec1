"""Schedules from the shell: added, listed, shown, paused, started by hand, removed; and what is refused."""

import contextlib
import sqlite3
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from tests.acceptance.cli.conftest import Command


def test_a_schedule_from_its_first_line_to_its_last(holdfast: Command, repo: Path) -> None:
    when = ("--cron", "30 2 * * 1-5", "--zone", "Europe/Berlin", "--missed", "once")
    what = ("--repo", str(repo), "--requirements", "Add numbers", "--simulate")
    added = holdfast("schedule", "add", "nightly", "spec-and-review", *when, *what, "--json").json
    assert (added["cron"], added["zone"], added["missed"], added["overlap"]) == (*when[1::2], "skip")
    assert added["next_at"] > added["created_at"]

    (listed,) = holdfast("schedule", "list", "--json").json
    assert (listed["name"], listed["next_at"]) == ("nightly", added["next_at"])
    next_at = f"{datetime.fromisoformat(added['next_at']).astimezone(ZoneInfo('Europe/Berlin')):%Y-%m-%d} 02:30 "
    assert next_at in holdfast("schedule", "list").out
    assert f"next: {next_at}Europe/Berlin" in holdfast("schedule", "show", "nightly").out
    assert f"on {repo}" in holdfast("schedule", "show", "nightly").out

    assert holdfast("schedule", "pause", "nightly").out == "Schedule nightly is paused.\n"
    assert "paused" in holdfast("schedule", "list").out
    assert "comes next at" in holdfast("schedule", "pause", "nightly", "--off").out

    started = holdfast("schedule", "run", "nightly", "--json").json
    (run,) = holdfast("runs", "list", "--json").json
    assert (run["run_id"], run["state"], started["state"]) == (started["run_id"], "pending", "pending")

    assert holdfast("schedule", "remove", "nightly").out == "Schedule nightly is removed.\n"
    assert holdfast("schedule", "list", "--json").json == []
    assert len(holdfast("runs", "list", "--json").json) == 1  # its runs stay


def test_a_schedule_says_what_it_could_not_start_and_what_became_of_that(holdfast: Command, repo: Path) -> None:
    when, what = ("--cron", "30 2 * * 1-5"), ("--repo", str(repo), "--requirements", "Add numbers", "--simulate")
    added = holdfast("schedule", "add", "nightly", "spec-and-review", *when, *what, "--json").json
    change(repo, "problem = 'The folder is gone.', problem_at = '2026-01-02T02:31:00.000Z'")

    printed = holdfast("schedule", "show", "nightly").out
    (listed,) = holdfast("schedule", "list", "--json").json

    assert f"  next: {added['next_at'][:10]} 02:30 UTC\n" in printed
    assert "  problem: The folder is gone.\n  last tried: 2026-01-02 02:31 UTC, that time was given up\n" in printed
    assert (listed["problem"], listed["is_tried_again"]) == ("The folder is gone.", False)
    row = holdfast("schedule", "list").out.splitlines()[1]
    assert (added["next_at"][:10] in row, "The folder is gone." in row) == (True, True)

    change(repo, "next_at = '2026-01-02T02:30:00.000Z'")
    assert "02:31 UTC, tried again every half minute\n" in holdfast("schedule", "show", "nightly").out
    assert holdfast("schedule", "show", "nightly", "--json").json["is_tried_again"] is True


def test_a_schedule_says_for_which_run_times_were_skipped(holdfast: Command, repo: Path) -> None:
    what = ("--repo", str(repo), "--requirements", "Add numbers", "--simulate")
    holdfast("schedule", "add", "nightly", "spec-and-review", "--cron", "30 2 * * 1-5", *what)
    run_id = holdfast("schedule", "run", "nightly", "--json").json["run_id"]
    change(repo, f"skipped = 4, skipped_for = '{run_id}', last_run_id = '{run_id}'")

    reason = f"Its last run {run_id[:8]} is still to be started: 4 times were skipped."
    assert f"  skipped: {reason}\n" in holdfast("schedule", "show", "nightly").out
    assert reason in holdfast("schedule", "list").out
    printed = holdfast("schedule", "show", "nightly", "--json").json
    assert (printed["skipped"], printed["skipped_for"], printed["skip_reason"]) == (4, run_id, reason)

    holdfast("schedule", "run", "nightly")
    assert "skipped:" not in holdfast("schedule", "show", "nightly").out


def change(repo: Path, setters: str) -> None:
    with contextlib.closing(sqlite3.connect(repo.parent / "data" / "holdfast.db")) as database, database:
        database.execute(f"UPDATE schedules SET {setters}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--cron", "61 * * * *"), "61 * * * *"),
        (("--cron", "0 0 30 2 *"), "0 0 30 2 *"),
        (("--cron", "5-1 * * * *"), "the range 5-1 ends below its start."),
        (("--cron", "0 * * * *", "--zone", "Mars/Olympus"), "Mars/Olympus"),
        (("--cron", "0 * * * *", "--queue", "gpu"), "There is no queue 'gpu'."),
        (("--cron", "0 * * * *", "--missed", "never"), "missed is one of skip, once, all, not 'never'."),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_is_written(
    holdfast: Command, repo: Path, words: tuple[str, ...], message: str
) -> None:
    refused = holdfast("schedule", "add", "nightly", "spec-and-review", "--repo", str(repo), "--simulate", *words)
    assert refused.code == 2
    assert message in refused.err
    assert len(refused.err.strip().splitlines()) <= 2  # what is the case, and what to do
    assert holdfast("schedule", "list", "--json").json == []


def test_a_schedule_whose_runs_nobody_told_what_to_do_is_refused(holdfast: Command, repo: Path) -> None:
    refused = holdfast(
        "schedule", "add", "a", "spec-and-review", "--repo", str(repo), "--cron", "0 3 * * *", "--simulate"
    )
    assert (refused.code, "Say what is wanted with --requirements" in refused.err) == (2, True)
    assert holdfast("schedule", "list", "--json").json == []


def test_a_folder_or_a_branch_that_is_not_there_is_refused(holdfast: Command, repo: Path) -> None:
    add = ("schedule", "add", "nightly", "spec-and-review", "--cron", "0 3 * * *", "--simulate")
    for words, message in (
        (("--repo", str(repo / "gone")), "repository_missing: There is no repository"),
        (("--repo", str(repo), "--base", "mian"), "base_branch_missing: "),
    ):
        refused = holdfast(*add, *words)
        assert (refused.code, message in refused.err) == (1, True), refused.err
    assert holdfast("schedule", "list", "--json").json == []


def test_a_folder_that_only_the_workers_see_can_be_scheduled(
    holdfast: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SHARED_ROOTS", str(tmp_path / "shared"))
    add = ("schedule", "add", "nightly", "of-the-repository", "--cron", "0 3 * * *")

    added = holdfast(*add, "--repo", str(tmp_path / "shared" / "shop"), "--json")
    refused = holdfast(*add, "--repo", str(tmp_path / "other" / "shop"))

    assert (added.code, added.json["repo_path"]) == (0, str(tmp_path / "shared" / "shop")), added.err
    assert (refused.code, "repository_missing" in refused.err) == (1, True), refused.err


def test_a_schedule_that_is_not_there_is_told(holdfast: Command) -> None:
    for command in ("show", "pause", "run", "remove"):
        refused = holdfast("schedule", command, "nightly")
        assert (refused.code, "There is no schedule 'nightly'." in refused.err) == (2, True)
