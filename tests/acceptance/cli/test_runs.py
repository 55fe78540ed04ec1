"""Running, answering, looking and moving: the shapes and exit codes that programs rely on."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.acceptance.cli.conftest import Command, Done

from holdfast.runtime.events import Event

RUN_KEYS = {"run_id", "state", "phases", "cost_usd", "perhaps_paid_usd", "simulated_usd", "final_report_path", "error"}


def test_a_whole_run_with_yes_and_everything_one_can_look_at(start: Command, holdfast: Command, repo: Path) -> None:
    done = start("--yes")

    assert done.code == 0
    assert set(done.json) == RUN_KEYS
    assert done.json["state"] == "completed"
    assert done.json["phases"] == [
        {"key": "draft", "state": "completed", "attempts": 1, "artifact": ".holdfast/results/draft.json"},
        {"key": "final", "state": "completed", "attempts": 1, "artifact": ".holdfast/results/final.json"},
    ]
    assert done.json["error"] is None
    assert Path(done.json["final_report_path"]).is_file()
    assert "✓ run completed" in done.err

    run_id = done.json["run_id"]
    look_at(holdfast, run_id)
    merge(holdfast, run_id, repo)
    fork(holdfast, run_id)


def test_a_diff_can_be_counted_instead_of_printed(start: Command, holdfast: Command) -> None:
    run_id = start("--yes").json["run_id"]

    counted = holdfast("runs", "diff", run_id, "--stat")

    *files, total = counted.out.splitlines()
    assert [line.split()[0] for line in files] == ["rehearsal/add_numbers.md"]
    assert total == f" 1 file, {' '.join(files[0].split()[1:])}"
    assert "@@" not in counted.out


def test_a_diff_shows_none_of_holdfasts_own_files_not_even_one_that_was_moved_aside(
    start: Command, holdfast: Command, repo: Path
) -> None:
    (repo / ".holdfast" / "results").mkdir()
    (repo / ".holdfast" / "results" / "draft.json").write_text("{}")
    identity = ["-c", "user.name=tests", "-c", "user.email=tests@example.invalid"]
    for arguments in (["add", "-A"], ["commit", "-q", "-m", "An old draft"]):
        subprocess.run(["git", *identity, *arguments], cwd=repo, check=True)
    run_id = start("--yes").json["run_id"]

    assert "draft.json.before-draft-1" in holdfast("runs", "diff", run_id, "--artifacts").out
    diff = holdfast("runs", "diff", run_id).out
    assert diff.startswith("diff --git ")
    assert "a/.holdfast" not in diff


def look_at(holdfast: Command, run_id: str) -> None:
    (listed,) = holdfast("runs", "list", "--json").json
    assert (listed["run_id"], listed["state"]) == (run_id, "completed")
    assert holdfast("runs", "list", "--state", "failed", "--json").json == []
    assert "No run matches" in holdfast("runs", "list", "--text", "nothing like it").out

    details = holdfast("runs", "show", run_id[:8], "--json").json
    assert (details["state"], details["error"], details["run_id"]) == ("completed", None, run_id)
    assert len(holdfast("runs", "show", run_id[:8]).out.splitlines()) < 24

    lines = holdfast("runs", "events", run_id, "--json").out.splitlines()
    events = [Event.from_dict(json.loads(line)) for line in lines]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert set(json.loads(lines[0])) == set(events[0].to_dict())
    assert len(holdfast("runs", "events", run_id, "--json", "--since", "3").out.splitlines()) == len(events) - 3
    assert holdfast("runs", "events", run_id, "--json", "-f").out.splitlines() == lines

    whole, phase = holdfast("runs", "diff", run_id).out, holdfast("runs", "diff", run_id, "--phase", "draft").out
    assert whole.startswith("diff --git ")
    assert "a/.holdfast/results" not in whole
    assert ".holdfast/results/draft.json" in holdfast("runs", "diff", run_id, "--artifacts").out
    assert phase != whole
    wrong = holdfast("runs", "diff", run_id, "--phase", "darft")
    assert (wrong.code, "Did you mean 'draft'?" in wrong.err) == (1, True)

    assert holdfast("runs", "watch", run_id).code == 0
    money = holdfast("budget", run_id, "--json").json
    assert money["spent_usd"] == pytest.approx(details["cost_usd"])
    assert {phase["key"] for phase in money["phases"]} == {"draft", "final"}
    assert holdfast("budget", "--json").json["runs"][0]["run_id"] == run_id
    assert holdfast("db", "check").code == 0


def merge(holdfast: Command, run_id: str, repo: Path) -> None:
    merged = holdfast("merge", run_id, "--json")

    assert merged.code == 0
    log = subprocess.run(["git", "log", "--oneline", "main"], cwd=repo, capture_output=True, text=True, check=True)
    assert len(log.stdout.splitlines()) > 1


def fork(holdfast: Command, run_id: str) -> None:
    wrong = holdfast("fork", run_id, "finale")
    assert (wrong.code, "Did you mean 'final'?" in wrong.err) == (1, True)

    forked = holdfast("fork", run_id, "final", "--yes", "--json")
    assert forked.code == 0
    assert forked.json["run_id"] != run_id
    assert forked.json["state"] == "completed"


def test_a_run_waits_for_an_answer_and_goes_on_after_it(start: Command, holdfast: Command) -> None:
    waiting = start()

    assert (waiting.code, waiting.json["state"]) == (3, "paused")
    (approval,) = holdfast("approvals", "--json").json
    assert approval["run_id"] == waiting.json["run_id"]
    assert approval["state"] == "pending"
    assert approval["digest"]
    assert approval["approval_id"][:8] in holdfast("approvals").out

    run_id = waiting.json["run_id"]
    answer = holdfast("reject", approval["approval_id"][:8], "--changes", "--comment", "Say more", "--json")
    assert answer.json == {"approval_id": approval["approval_id"], "run_id": run_id, "action": "request_changes"}
    again = holdfast("resume", run_id, "--json")
    assert (again.code, again.json["phases"][0]["attempts"]) == (3, 2)
    (second,) = holdfast("approvals", "--json").json
    assert holdfast("approve", second["approval_id"]).code == 0
    late = holdfast("approve", second["approval_id"])
    assert (late.code, "was answered" in late.err) == (1, True)
    done = holdfast("resume", run_id[:8], "--json")
    assert (done.code, done.json["state"]) == (0, "completed")
    over = holdfast("resume", run_id)
    assert (over.code, "run_already_terminal" in over.err) == (1, True)


def test_a_rejected_run_fails_and_can_be_retried(start: Command, holdfast: Command) -> None:
    run_id = start().json["run_id"]
    (approval,) = holdfast("approvals", "--json").json
    holdfast("reject", approval["approval_id"], "--comment", "No")

    failed = holdfast("resume", run_id, "--json")

    assert (failed.code, failed.json["state"]) == (1, "failed")
    assert failed.json["error"]["code"] == "approval_rejected"
    assert holdfast("runs", "show", run_id, "--json").json["error"]["code"] == "approval_rejected"
    retried = holdfast("retry", run_id, "--yes", "--json")
    assert (retried.code, retried.json["state"]) == (0, "completed")


def test_a_detached_run_can_be_paused_topped_up_resumed_and_aborted(start: Command, holdfast: Command) -> None:
    made = start("--detach", "--budget", "0.000001")
    run_id = made.json["run_id"]
    assert (made.code, made.json["state"]) == (0, "pending")

    paused = holdfast("pause", run_id, "--json")
    assert (paused.code, paused.json["state"]) == (0, "paused")
    assert holdfast("pause", run_id, "--json").code == 0
    assert holdfast("runs", "watch", run_id).code == 3

    poor = holdfast("resume", run_id, "--json")
    assert (poor.code, poor.json["state"]) == (3, "paused")
    assert holdfast("runs", "show", run_id, "--json").json["pause_reason"] == "budget"
    rich = holdfast("budget", run_id, "--add", "5", "--json")
    assert rich.json["limit_usd"] == pytest.approx(5.000001)
    assert holdfast("budget", run_id, "--add", "-1").code == 1

    aborted = holdfast("abort", run_id, "--reason", "enough", "--json")
    assert (aborted.code, aborted.json["state"]) == (0, "cancelled")
    assert holdfast("abort", run_id).code == 1


def test_requirements_can_come_from_a_file(holdfast: Command, repo: Path, tmp_path: Path) -> None:
    file = tmp_path / "wish.md"
    file.write_text("A wish from a file")
    made = holdfast(
        *("run", "small", "--repo", str(repo), "--simulate", "--detach", "--json", "--requirements-file", str(file))
    )

    details: Done = holdfast("runs", "show", made.json["run_id"], "--json")

    assert details.json["requirements_md"] == "A wish from a file"


def test_what_is_not_committed_is_named_before_a_run_that_does_not_see_it(start: Command, repo: Path) -> None:
    clean = start("--yes")
    for number in range(5):
        (repo / f"new{number}.txt").write_text("new\n")

    done = start("--yes")

    assert "Not committed" not in clean.err
    assert "Not committed, so not among the run's files: new0.txt, new1.txt, new2.txt and 2 more." in done.err
    assert done.json["state"] == "completed"


def test_a_run_that_is_over_says_what_can_be_done_with_it(start: Command, holdfast: Command) -> None:
    done = holdfast("resume", start("--yes").json["run_id"])

    assert done.code == 1
    assert "run_already_terminal" in done.err
    assert "Fork it" in done.err


def test_a_database_server_that_does_not_answer_is_named_without_its_password(
    holdfast: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "postgresql://ann:hunter2@127.0.0.1:1/work")

    done = holdfast("runs", "list")

    assert done.code == 1
    assert done.err.startswith("holdfast: store_unavailable: postgresql://ann@127.0.0.1:1/work cannot be reached")
    assert "hunter2" not in done.err


def test_the_projects_instructions_are_pinned_in_every_envelope(holdfast: Command, start: Command, repo: Path) -> None:
    (repo / "AGENTS.md").write_text("Indent with tabs, always.\n")
    identity = ("-c", "user.name=tests", "-c", "user.email=tests@example.invalid")
    for words in (("add", "-A"), (*identity, "commit", "-q", "-m", "Instruct")):
        subprocess.run(["git", *words], cwd=repo, check=True)

    run_id = start("--yes").json["run_id"]

    events = [json.loads(line) for line in holdfast("runs", "events", run_id, "--json").out.splitlines()]
    pinned = [event["payload"]["result"] for event in events if event["kind"] == "phase.started"]
    assert len(pinned) == 2
    for result in pinned:
        assert result["instruction_files"] == ["AGENTS.md"]
        assert result["envelope"].index("## Project instructions") < result["envelope"].index("## Your result")
        assert "Indent with tabs, always." in result["envelope"]
