"""The fold of a coding agent's output, however long and however torn it is."""

import json
from pathlib import Path

import pytest

from holdfast.agents.coding_agent import summary as module
from holdfast.agents.coding_agent.adapters.registry import TABLE
from holdfast.agents.coding_agent.summary import summarize

CLAUDE = TABLE["claude-code"]
FIRST = json.dumps({"type": "system", "session_id": "s-1"})
LAST = json.dumps({"type": "result", "result": "all done", "usage": {"input_tokens": 3, "output_tokens": 2}})


def message(number: int, text: str) -> str:
    content = [{"type": "text", "text": text}]
    return json.dumps(
        {"type": "assistant", "message": {"id": f"m{number}", "content": content, "usage": {"input_tokens": 1}}}
    )


def test_of_an_endless_output_the_session_and_the_end_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_HEAD_BYTES", 100)
    monkeypatch.setattr(module, "_MAX_TAIL_BYTES", 400)
    path = tmp_path / "out"
    path.write_text("\n".join([FIRST, *(message(number, "x") for number in range(1000)), LAST]))
    found = summarize(CLAUDE, path)

    assert (found.session, found.answer) == ("s-1", "all done")
    assert len(found.calls) < 10
    assert found.usage is not None
    assert found.usage.input_tokens == 3


def test_a_line_that_is_too_long_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINE_BYTES", 200)
    path = tmp_path / "out"
    path.write_text("\n".join([FIRST, message(1, "y" * 1000), message(2, "short"), "z" * 200]))
    found = summarize(CLAUDE, path)

    assert (found.session, found.text, found.words) == ("s-1", "short", "")


def test_a_message_that_is_printed_in_parts_is_counted_once(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("\n".join([message(1, "a"), message(1, "b"), message(2, "c")]))
    found = summarize(CLAUDE, path)

    assert found.usage is not None
    assert found.usage.input_tokens == 2
    assert found.text == "abc"


def test_an_error_counts_unless_the_agent_went_on(tmp_path: Path) -> None:
    path = tmp_path / "out"
    error = json.dumps({"type": "error", "message": "reconnecting"})
    said = json.dumps({"type": "item.completed", "item": {"type": "agent_message", "text": "done"}})
    path.write_text(f"{error}\n{said}\n")
    assert summarize(TABLE["codex"], path).error == ""
    path.write_text(f"{said}\n{error}\n")
    assert summarize(TABLE["codex"], path).error == "reconnecting"


def test_without_an_output_there_is_nothing(tmp_path: Path) -> None:
    found = summarize(CLAUDE, tmp_path / "missing")

    assert (found.session, found.answer, found.usage) == ("", "", None)
