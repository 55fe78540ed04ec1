"""A run that goes on with other personas or requirements, as its user asks for it."""

import json
from pathlib import Path
from typing import Any

from tests.acceptance.cli.conftest import Command, Done

OTHER = """
name: other-author
version: 1
backend: simulated
model: simulated
capabilities: [spec_write]
"""


def events(holdfast: Command, run_id: str, kind: str) -> list[dict[str, Any]]:
    lines = holdfast("runs", "events", run_id, "--json").out.splitlines()
    return [event["payload"] for event in map(json.loads, lines) if event["kind"] == kind]


def add_persona(repo: Path) -> None:
    folder = repo / ".holdfast" / "personas"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "other.yaml").write_text(OTHER)


def test_resume_with_other_requirements_and_another_persona(start: Command, holdfast: Command, repo: Path) -> None:
    run_id = start().json["run_id"]  # it waits for an approval
    add_persona(repo)

    done = holdfast(
        *("resume", run_id, "--yes", "--json", "--requirements", "Subtract numbers"), "--persona", "author=other-author"
    )

    assert (done.code, done.json["state"]) == (0, "completed")
    assert "Changed: the requirements, author is other-author. Starts anew: draft." in done.err
    [changed] = events(holdfast, run_id, "run.changed")
    assert (changed["requirements_md"], changed["personas"]["author"]["name"]) == ("Subtract numbers", "other-author")
    assert changed["by"]
    assert {one["persona"] for one in (each["result"] for each in events(holdfast, run_id, "phase.started")[1:])} == {
        "other-author"
    }
    assert done.json["phases"][0]["attempts"] == 2
    assert holdfast("db", "check").code == 0


def test_retry_with_requirements_from_a_file(start: Command, holdfast: Command, tmp_path: Path) -> None:
    run_id = start().json["run_id"]
    [approval] = holdfast("approvals", "--json").json
    holdfast("reject", approval["approval_id"], "--json")
    holdfast("resume", run_id, "--json")
    (tmp_path / "wanted.md").write_text("Multiply numbers\n")

    done = holdfast("retry", run_id, "--yes", "--json", "--requirements-file", str(tmp_path / "wanted.md"))

    assert (done.code, done.json["state"]) == (0, "completed")
    assert "Multiply numbers" in events(holdfast, run_id, "phase.started")[1]["result"]["envelope"]


def test_fork_with_other_requirements(start: Command, holdfast: Command, repo: Path) -> None:
    run_id = start("--yes").json["run_id"]
    add_persona(repo)

    done = holdfast(
        *("fork", run_id, "final", "--yes", "--json"),
        *("--requirements", "Divide numbers", "--persona", "author=other-author"),
    )

    assert (done.code, done.json["state"]) == (0, "completed")
    [created] = events(holdfast, done.json["run_id"], "run.created")
    assert created["changed"] == {"personas": {"author": "other-author"}, "requirements": True}
    assert created["requirements_md"] == "Divide numbers"


def test_what_is_wrong_is_one_line_and_changes_nothing(start: Command, holdfast: Command) -> None:
    run_id = start().json["run_id"]

    def check(done: Done, code: int, message: str) -> None:
        assert (done.code, done.err.count("\n"), message in done.err) == (code, 1, True), done.err

    check(holdfast("resume", run_id, "--persona", "author"), 2, "ROLE=NAME")
    check(holdfast("resume", run_id, "--requirements", " "), 2, "--requirements TEXT")
    check(holdfast("resume", run_id, "--persona", "author=nobody"), 1, "persona_ineligible")
    check(holdfast("resume", run_id, "--persona", "nobody=simulated-author"), 1, "persona_ineligible")
    check(holdfast("retry", run_id, "--requirements", "Other"), 1, "run_not_in_state")
    assert events(holdfast, run_id, "run.changed") == []
