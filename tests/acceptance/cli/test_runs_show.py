"""Looking at runs: which there are and of which repository, what happened event by event, what commands printed."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.cli.conftest import Command

from holdfast.runtime.events import EventKind

WORKFLOW = """
name: checked
version: 1
description: A phase between commands.
roles:
  - {id: author, required_capabilities: [spec_write]}
setup:
  - [sh, -c, 'echo installing; echo "an old one" >&2']
phases:
  - key: draft
    title: Write a draft
    role: author
    risk: low
    timeout_seconds: 600
    instructions: Write down what is wanted.
    expected_artifact: {path: .holdfast/results/draft.json, schema: dev/spec@1}
    checks:
      - [sh, -c, 'echo 1 passed']
      - [sh, -c, 'echo 1 failed; exit 4']
"""


@pytest.fixture
def checked(holdfast: Command, repo: Path) -> str:
    """A run whose second check failed."""
    (repo / ".holdfast" / "workflows" / "checked.yaml").write_text(WORKFLOW)
    words = ("run", "checked", "--repo", str(repo), "--simulate", "--requirements", "Add numbers", "--yes", "--json")
    done = holdfast(*words)
    assert done.json["state"] == "failed", done.err
    assert f"holdfast runs logs {done.json['run_id'][:8]}" in done.json["error"]["hint"]
    return str(done.json["run_id"])


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_logs_of_a_run_are_its_commands_with_what_they_printed(holdfast: Command, checked: str) -> None:
    logs = holdfast("runs", "logs", checked[:8]).out

    assert "setup $ sh -c 'echo installing; echo \"an old one\" >&2' (exit code 0, " in logs
    assert "\n  installing\n  an old one\n" in logs
    assert "draft/1 $ sh -c 'echo 1 failed; exit 4' (exit code 4, " in logs
    calls = lines_of(holdfast("runs", "logs", checked, "--json").out)
    assert [(call["key"], call["type"], call["exit_code"]) for call in calls] == [
        ("setup/command1", "setup", 0),
        ("draft/1/check1", "check", 0),
        ("draft/1/check2", "check", 4),
    ]
    assert calls[2]["output"] == "1 failed\n"
    assert all(call["duration_s"] >= 0 and not call["is_running"] for call in calls)
    assert lines_of(holdfast("runs", "logs", checked, "--json", "--follow").out) == calls


def test_logs_can_be_of_one_phase_or_one_step(holdfast: Command, checked: str) -> None:
    def keys(*options: str) -> list[str]:
        return [call["key"] for call in lines_of(holdfast("runs", "logs", checked, "--json", *options).out)]

    assert keys("--phase", "setup") == ["setup/command1"]
    assert keys("--phase", "draft", "--step", "check2") == ["draft/1/check2"]
    assert keys("--step", "draft/1/check1") == ["draft/1/check1"]
    assert "No command matches." in holdfast("runs", "logs", checked, "--step", "check9").err
    wrong = holdfast("runs", "logs", checked, "--phase", "darft")
    assert (wrong.code, "Did you mean 'draft'?" in wrong.err) == (2, True)


def test_events_are_a_transcript_in_the_width_there_is(
    holdfast: Command, checked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    transcript = holdfast("runs", "events", checked).out

    assert "[draft] phase draft started, by simulated-author" in transcript
    assert "model answered after " in transcript
    assert '"fingerprint"' not in transcript
    flat = " ".join(transcript.split())
    assert "[draft] calls sh -c 'echo 1 failed; exit 4'" in flat
    assert re.search(r"command ended with exit code 4 after [0-9.]+ s 1 failed", flat)
    assert "phase draft failed: The check 'sh -c echo 1 failed; exit 4' of phase 'draft' ended with exit code 4" in flat
    assert [line for line in transcript.splitlines() if "/" not in line and len(line) > 72] == []
    assert holdfast("runs", "events", checked, "--follow").out.split() == transcript.split()


def test_events_can_be_of_some_kinds(holdfast: Command, checked: str) -> None:
    def kinds(*options: str) -> list[str]:
        return [event["kind"] for event in lines_of(holdfast("runs", "events", checked, "--json", *options).out)]

    assert set(kinds("--kind", "tool.")) == set(kinds("--kind", "tool")) == {"tool.started", "tool.result"}
    assert kinds("--kind", "run.created", "--kind", "phase.") == ["run.created", "phase.started", "phase.failed"]
    assert kinds("--kind", "run.", "--since", "2", "--follow") == ["run.failed"]
    transcript = holdfast("runs", "events", checked, "--kind", "run.failed").out
    assert transcript.count(" s  ") == 1
    wrong = holdfast("runs", "events", checked, "--kind", "tool.reslt")
    assert (wrong.code, "Did you mean 'tool.result'?" in wrong.err) == (2, True)


@pytest.mark.parametrize("kind", EventKind)
def test_every_kind_there_is_can_be_asked_for(kind: EventKind) -> None:
    from holdfast.cli.commands.runs.events import to_filter
    from holdfast.runtime.events import create_event

    assert to_filter([kind.value])(create_event("r", kind))


def test_runs_are_listed_by_repository_from_anywhere_in_it(
    start: Command, holdfast: Command, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = start().json["run_id"]
    inner, other = repo / "src" / "deep", tmp_path / "repo-2"
    inner.mkdir(parents=True)
    other.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=other, check=True)

    def listed(folder: Path, repository: str) -> list[str]:
        monkeypatch.chdir(folder)
        return [row["run_id"] for row in holdfast("runs", "list", "--repo", repository, "--json").json]

    assert listed(repo, ".") == listed(inner, ".") == listed(tmp_path, "repo") == [run_id]
    assert listed(tmp_path, str(repo)) == listed(other, "../repo/src") == listed(other, "repo") == [run_id]
    assert listed(other, ".") == listed(other, "no-such") == []


def test_listings_name_the_repository(start: Command, holdfast: Command, repo: Path) -> None:
    start()

    heading, row = holdfast("runs", "list").out.splitlines()
    assert heading.split() == ["STATE", "RUN", "REPO", "WHAT", "NOW", "SPENT", "STARTED"]
    assert row.split()[3] == repo.name
    (listed,) = holdfast("runs", "list", "--json").json
    assert listed["repo_path"] == str(repo)
    assert listed["reserved_usd"] == 0
    assert f"in {repo.name}" in holdfast("approvals").out
