"""Looking at what waits, without a terminal: the content, the change, the reason and the commands to answer."""

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.cli.conftest import Command, Done


@pytest.fixture
def waiting(start: Command, holdfast: Command) -> dict[str, Any]:
    """An approval that a run waits for."""
    assert start().code == 3
    (approval,) = holdfast("approvals", "--json").json
    return dict(approval)


def answer(holdfast: Command, command: str, comment: str = "") -> Done:
    """Type a command as it was printed."""
    program, *arguments = shlex.split(command.replace("…", comment))
    assert program == "holdfast"
    return holdfast(*arguments)


def test_an_approval_is_shown_with_all_that_an_answer_needs(
    holdfast: Command, waiting: dict[str, Any], repo: Path
) -> None:
    text = holdfast("approvals", "show", waiting["approval_id"][:8]).out

    assert "Phase draft of small waits for your approval" in text
    assert "  phaseKey: draft\n" in text
    assert "  acceptance_criteria:\n    - " in text
    assert "+++ b/rehearsal/" in text
    assert "because phase draft has risk medium" in text
    assert waiting["digest"] in text
    assert str(repo) in text
    worktree = holdfast("runs", "show", waiting["run_id"], "--json").json["worktree_root"]
    assert worktree in text
    short = waiting["approval_id"][:8]
    for command in (f"approve {short}", f'reject {short} --changes "…"', f"reject {short}"):
        assert f"  holdfast {command}" in text


def test_an_approval_is_found_by_its_run_and_given_to_programs(holdfast: Command, waiting: dict[str, Any]) -> None:
    by_run = holdfast("approvals", "show", waiting["run_id"][:8], "--json").json

    assert by_run == holdfast("approvals", "show", waiting["approval_id"], "--json").json
    assert set(waiting) <= set(by_run)
    assert by_run["digest"] == waiting["digest"]
    assert '"phaseKey": "draft"' in by_run["content"]
    assert by_run["diff"] == waiting["shown"]["diff"]
    assert by_run["reason"] == "phase draft has risk medium"
    assert Path(by_run["worktree"]).is_dir()
    assert by_run["since_answer"] is None


def test_the_commands_of_an_approval_work_as_they_are_printed(holdfast: Command, waiting: dict[str, Any]) -> None:
    first = holdfast("approvals", "show", waiting["approval_id"], "--json").json["commands"]
    assert answer(holdfast, first["request_changes"], "Say more").code == 0
    assert answer(holdfast, first["resume"]).code == 3

    second = holdfast("approvals", "show", waiting["run_id"], "--json").json
    since = second["since_answer"]
    assert (since["approval_id"], since["attempt"], since["comment"]) == (waiting["approval_id"], 1, "Say more")
    text = holdfast("approvals", "show", waiting["run_id"]).out
    assert "Changed since the last accepted state" in text
    assert "Changed since the last answer" in text
    assert "Attempt 1 was refused" in text
    assert answer(holdfast, second["commands"]["approve"]).code == 0
    assert answer(holdfast, second["commands"]["resume"]).code == 0


def test_an_approval_that_was_answered_says_so_and_offers_nothing(holdfast: Command, waiting: dict[str, Any]) -> None:
    holdfast("approve", waiting["approval_id"])

    result = holdfast("approvals", "show", waiting["approval_id"])

    assert result.code == 0
    assert "answered with approve" in result.out
    assert "holdfast approve" not in result.out
    none = holdfast("approvals", "show", waiting["run_id"])
    assert (none.code, "waits for no approval" in none.err) == (1, True)


def test_a_comment_that_is_given_twice_is_refused(holdfast: Command, waiting: dict[str, Any]) -> None:
    wrong = holdfast("reject", waiting["approval_id"], "one", "--comment", "two")

    assert (wrong.code, "given twice" in wrong.err) == (2, True)


def test_what_waits_is_in_the_diff_of_its_run_and_in_no_merge(
    holdfast: Command, waiting: dict[str, Any], repo: Path
) -> None:
    run_id = waiting["run_id"]

    diff = holdfast("runs", "diff", run_id)

    assert diff.out.startswith("diff --git a/rehearsal/")
    assert f"holdfast approvals show {run_id[:8]}" in diff.err
    assert holdfast("runs", "diff", run_id, "--phase", "draft").out == diff.out
    assert holdfast("merge", run_id).code == 1
    status = subprocess.run(["git", "status", "--porcelain"], cwd=repo, capture_output=True, text=True, check=True)
    assert status.stdout == ""


def test_a_run_that_waits_names_the_approval_with_its_summary(holdfast: Command, waiting: dict[str, Any]) -> None:
    text = holdfast("runs", "show", waiting["run_id"]).out

    assert "Phase draft waits for you: .holdfast/results/draft.json · 2 files, +" in text
    assert f"holdfast approvals show {waiting['approval_id'][:8]}" in text
    assert f"holdfast approve {waiting['approval_id'][:8]}" in text
    assert str(Path("worktrees") / waiting["run_id"]) in text


def test_the_listing_is_a_command_of_its_own_and_says_where_the_whole_is(
    holdfast: Command, waiting: dict[str, Any]
) -> None:
    assert holdfast("approvals").out == holdfast("approvals", "list").out
    assert holdfast("approvals", "list", "--json").json == [waiting]
    assert f"holdfast approvals show {waiting['approval_id'][:8]}" in holdfast("approvals").out
    wrong = holdfast("approvals", "shwo")
    assert (wrong.code, "Did you mean 'show'?" in wrong.err) == (2, True)


def test_changes_are_not_asked_for_without_saying_which(holdfast: Command, waiting: dict[str, Any]) -> None:
    short = waiting["approval_id"][:8]

    refused = holdfast("reject", short, "--changes")

    assert (refused.code, "Say what should change" in refused.err) == (2, True)
    assert [item["state"] for item in holdfast("approvals", "--json").json] == ["pending"]


def test_the_next_step_of_a_waiting_run_names_its_approval(holdfast: Command, start: Command) -> None:
    done = start()
    (approval,) = holdfast("approvals", "--json").json
    text = holdfast("runs", "show", done.json["run_id"]).out

    assert f"holdfast approve {approval['approval_id'][:8]}" in text


def test_an_artifact_can_be_edited_with_the_approval(
    holdfast: Command, waiting: dict[str, Any], tmp_path: Path
) -> None:
    content = holdfast("approvals", "show", waiting["approval_id"], "--json").json["content"]
    (tmp_path / "wrong.json").write_text("{}")
    (tmp_path / "edited.json").write_text(json.dumps(json.loads(content), indent=4) + "\n\n")

    wrong = holdfast("approve", waiting["approval_id"], "--artifact", str(tmp_path / "wrong.json"))
    no_terminal = holdfast("approve", waiting["approval_id"], "--edit")
    right = holdfast("approve", waiting["approval_id"], "--artifact", str(tmp_path / "edited.json"))

    assert (wrong.code, "artifact_invalid" in wrong.err) == (1, True)
    assert (no_terminal.code, "--artifact FILE" in no_terminal.err) == (2, True)
    assert right.code == 0
    assert holdfast("resume", waiting["run_id"]).code == 0
    events = [json.loads(line) for line in holdfast("runs", "events", waiting["run_id"], "--json").out.splitlines()]
    accepted = [event["payload"] for event in events if event["kind"] == "artifact.accepted"]
    assert [("by" in payload, payload["turn"]) for payload in accepted][:2] == [(False, 1), (True, 3)]


def test_what_was_edited_by_hand_since_it_was_asked_is_shown(holdfast: Command, waiting: dict[str, Any]) -> None:
    before = holdfast("approvals", "show", waiting["approval_id"])
    assert "Edited in the worktree" not in before.out
    worktree = Path(holdfast("runs", "show", waiting["run_id"], "--json").json["worktree_root"])
    (worktree / "calc.py").write_text("def add(a, b):\n    return a + b\n")

    text = holdfast("approvals", "show", waiting["approval_id"]).out
    edits = holdfast("approvals", "show", waiting["approval_id"], "--json").json["edits"]

    assert "Edited in the worktree since it was asked" in text
    assert "+    return a + b" in text
    assert edits.startswith("diff --git a/calc.py b/calc.py")
    assert f"It asks again, about the files as they are now: holdfast resume {waiting['run_id'][:8]}" in text
    assert "approval_stale" in holdfast("approve", waiting["approval_id"]).err
    assert holdfast("resume", waiting["run_id"], "--json").code == 3
    again = holdfast("approvals", "show", waiting["run_id"], "--json").json
    assert ("+    return a + b" in again["diff"], again["edits"]) == (True, "")


def test_other_requirements_say_where_hand_edits_went_and_a_deletion_how_to_let_them_go(
    holdfast: Command, waiting: dict[str, Any]
) -> None:
    run_id = waiting["run_id"]
    worktree = Path(holdfast("runs", "show", run_id, "--json").json["worktree_root"])
    (worktree / "notes.txt").write_text("mine\n")

    again = holdfast("resume", run_id, "--requirements", "Multiply numbers")

    ref = f"refs/holdfast/{run_id}/@rescue/"
    assert f"what lay in the worktree is kept under {ref}" in again.err
    assert ref in holdfast("runs", "events", run_id).out
    assert holdfast("abort", run_id).code == 0
    refused = holdfast("runs", "rm", run_id, "--yes")
    assert (refused.code, ref in refused.out, "add --unmerged" in refused.out) == (1, True, True)
    assert holdfast("runs", "rm", run_id, "--yes", "--unmerged").code == 0
