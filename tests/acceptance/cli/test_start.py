"""How a run begins at the command line: from which branch, and with what it is told."""

import sqlite3
import subprocess
from pathlib import Path

import pytest
from tests.acceptance.cli.conftest import Command
from tests.support.terminal import Terminal

IDENTITY = ("-c", "user.name=tests", "-c", "user.email=tests@example.invalid")


def git(repo: Path, *words: str) -> str:
    done = subprocess.run(["git", *IDENTITY, *words], cwd=repo, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_run_starts_from_the_current_branch_and_is_merged_there(
    start: Command, holdfast: Command, repo: Path
) -> None:
    git(repo, "switch", "-q", "-c", "feature-x")
    (repo / "calc.py").write_text("def add(a, b):\n    return a + b + 0\n")
    git(repo, "commit", "-q", "-am", "On the feature branch")
    tip, main = git(repo, "rev-parse", "HEAD"), git(repo, "rev-parse", "main")

    done = start("--yes")

    first, *_ = done.err.splitlines()
    assert first == f"From feature-x at {tip[:7]}; holdfast merge brings the result back there."
    merged = holdfast("merge", done.json["run_id"]).out
    assert merged.startswith("feature-x")
    assert git(repo, "merge-base", "feature-x", tip) == tip != git(repo, "rev-parse", "feature-x")
    assert git(repo, "rev-parse", "main") == main


def test_another_base_can_be_named(start: Command, repo: Path) -> None:
    git(repo, "switch", "-q", "-c", "feature-x")
    git(repo, "commit", "-q", "--allow-empty", "-m", "Ahead")

    done = start("--yes", "--base", "main")

    assert done.err.startswith(f"From main at {git(repo, 'rev-parse', '--short=7', 'main')};")


def test_a_base_that_is_not_there_is_refused_before_a_run_is_made(start: Command, holdfast: Command) -> None:
    start("--yes")  # its own branch is nothing to start from

    done = start("--yes", "--base", "nope")

    assert (done.code, done.json["error"]["code"]) == (1, "base_branch_missing")
    assert done.err == (
        "holdfast: base_branch_missing: The repository has no branch 'nope'. Start a run from one there is: main.\n"
    )
    assert len(holdfast("runs", "list", "--json").json) == 1


def test_with_a_detached_head_the_commit_counts_and_merge_needs_a_branch(
    start: Command, holdfast: Command, repo: Path
) -> None:
    git(repo, "switch", "-q", "--detach")

    done = start("--yes")
    run_id = done.json["run_id"]
    refused = holdfast("merge", run_id)
    merged = holdfast("merge", run_id, "--into", "main")

    assert "needs --into BRANCH" in done.err.splitlines()[0]
    assert (refused.code, "target_branch_missing" in refused.err, "--into" in refused.err) == (1, True, True)
    assert (merged.code, merged.out.startswith("main")) == (0, True)


def test_a_repository_without_commits_is_begun_and_merged(start: Command, holdfast: Command, repo: Path) -> None:
    git(repo, "update-ref", "-d", "HEAD")
    git(repo, "rm", "-q", "-r", "--cached", ".")

    done = start("--yes")

    assert "has no commit" in done.err.splitlines()[0]
    assert done.json["state"] == "completed"
    merged = holdfast("merge", done.json["run_id"])
    assert (merged.code, merged.out.startswith("main")) == (0, True), merged.err


@pytest.mark.parametrize("options", [(), ("--requirements", " \n"), ("--json",), ("--detach",)])
def test_without_a_terminal_a_run_that_is_told_nothing_is_refused(
    holdfast: Command, repo: Path, options: tuple[str, ...]
) -> None:
    done = holdfast("run", "small", "--repo", str(repo), "--simulate", *options)

    assert (done.code, bool(done.out)) == (2, "--json" in options)
    assert done.err.startswith("holdfast: usage: ")
    assert "--requirements TEXT" in done.err
    assert done.err.count("\n") == 1
    assert holdfast("runs", "list", "--json").json == []


def test_a_workflow_can_say_that_it_needs_to_be_told_nothing(holdfast: Command, repo: Path) -> None:
    file = repo / ".holdfast" / "workflows" / "small.yaml"
    file.write_text(file.read_text() + "requirements: optional\n")

    done = holdfast("run", "small", "--repo", str(repo), "--simulate", "--yes", "--json")

    assert (done.code, done.json["state"]) == (0, "completed")


def test_on_a_terminal_it_asks_what_is_wanted(repo: Path, environment: dict[str, str]) -> None:
    words = ("run", "small", "--repo", str(repo), "--simulate", "--yes")
    with Terminal(*words, env=environment) as terminal:
        terminal.wait_for("brings the result back there")
        terminal.wait_for("What is wanted?")
        terminal.type("Add numbers\r")
        terminal.wait_for("> ")
        terminal.type("and test it\r")
        terminal.wait_for("> ")
        terminal.type("\r")
        terminal.wait_for("completed ·")

        assert terminal.end() == 0
    listed = subprocess.run(
        ["git", "-C", str(repo), "for-each-ref", "refs/heads/holdfast"], capture_output=True, text=True, check=True
    )
    assert listed.stdout.count("\n") == 1


@pytest.mark.parametrize("keys", ["\r", "\x04"])
def test_no_answer_is_refused(repo: Path, environment: dict[str, str], keys: str) -> None:
    with Terminal("run", "small", "--repo", str(repo), "--simulate", env=environment) as terminal:
        terminal.wait_for("> ")
        terminal.type(keys)
        terminal.wait_for("--requirements TEXT")

        assert terminal.end() == 2


def test_ctrl_c_at_the_question_ends_it_with_130(repo: Path, environment: dict[str, str]) -> None:
    with Terminal("run", "small", "--repo", str(repo), "--simulate", env=environment) as terminal:
        terminal.wait_for("> ")
        terminal.type("\x03")

        assert terminal.end() == 130
    assert "Traceback" not in terminal.screen


def test_an_empty_line_in_a_paste_does_not_end_it(repo: Path, environment: dict[str, str]) -> None:
    words = ("run", "small", "--repo", str(repo), "--simulate", "--detach")
    with Terminal(*words, env=environment) as terminal:
        terminal.wait_for("> ")
        terminal.type("First\r\rSecond\r")
        terminal.wait_for("Second")
        terminal.type("\r")
        terminal.wait_for("waits for holdfast serve")

        assert terminal.end() == 0
    database = sqlite3.connect(Path(environment["HOLDFAST_DATA_DIR"]) / "holdfast.db")
    assert database.execute("SELECT requirements_md FROM runs").fetchall() == [("First\n\nSecond",)]
    database.close()
