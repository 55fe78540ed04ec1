"""What an agent writes reaches a terminal as text: nothing that it obeys, hides or shows in another order."""

import json
import logging
from typing import Any

import pytest

from holdfast.cli import log_output
from holdfast.cli.app import _one_line
from holdfast.cli.terminal.approval_text import describe_request, describe_request_in_full, summarize_approval
from holdfast.cli.terminal.approval_view import describe_approval
from holdfast.cli.terminal.output import print_json, table
from holdfast.cli.terminal.questions import show_question

# Moves the cursor, conceals, ends a line early; reverses the order; takes no room; is no text at all.
HOSTILE = "rm -rf x\x1b[2K\x1b[8m\x9b8m\r\x08 \u202e\u2066 \u200b\ufeff \udc80 ls"
OBEYED = "\x1b\x9b\r\x08\u202e\u2066\u200b\ufeff\udc80"
DETAILS: dict[str, Any] = {
    "question": f"May it? It was asked because {HOSTILE}.",
    "tool": "execute",
    "args": {"command": HOSTILE},
    "policy": {"rule": "network", "reason": HOSTILE},
    "kind": {"tool": "execute", "rule": "network", "words": HOSTILE},
    "kind_text": HOSTILE,
}
QUESTION: dict[str, Any] = {
    **dict.fromkeys(("deadline_at", "worktree", "artifact", "content", "diff", "since_answer", "first_by"), None),
    "about": "tool",
    "shown": DETAILS,
    "approval_id": "a" * 32,
    "run_id": "r" * 32,
    "phase_key": "spec",
    "attempt": 1,
    "risk": "low",
    "state": "pending",
    "digest": "d",
    "requested_at": "2026-01-01T00:00:00Z",
    "workflow": "w",
    "title": HOSTILE,
    "repo_path": "/x",
    "run_state": "paused",
    "reason": HOSTILE,
    "edits": "",
    "commands": {"approve": "holdfast approve aaaaaaaa", "for_run": "holdfast approve --for-run", "resume": "x"},
}


def find_obeyed(text: str) -> set[str]:
    return set(text) & set(OBEYED)


def test_a_question_shows_nothing_that_a_terminal_obeys(capsys: pytest.CaptureFixture[str]) -> None:
    show_question(QUESTION)
    texts = [
        capsys.readouterr().err,
        describe_request(DETAILS),
        describe_request_in_full(DETAILS),
        summarize_approval(QUESTION),
    ]
    texts.append("\n".join(describe_approval(QUESTION)))

    for text in texts:
        assert "rm -rf x" in text
        assert not find_obeyed(text)


def test_neither_does_a_table_or_an_error() -> None:
    assert not find_obeyed(table([["a", HOSTILE]]))
    assert not find_obeyed(_one_line(HOSTILE))


def test_json_holds_it_as_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"text": HOSTILE, "flag": "\U000e0001", "plain": "Grüße 漢字 🙂"})
    written = capsys.readouterr().out

    assert not find_obeyed(written)
    assert "Grüße 漢字 🙂" in written
    assert json.loads(written) == {"text": HOSTILE, "flag": "\U000e0001", "plain": "Grüße 漢字 🙂"}


@pytest.mark.parametrize("formatter", [log_output._Redacted(), log_output._Json()])
def test_neither_does_the_log(formatter: logging.Formatter) -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, "It says %s", (HOSTILE,), None)
    record.about = HOSTILE

    line = formatter.format(record)

    assert "rm -rf x" in line
    assert not find_obeyed(line)
