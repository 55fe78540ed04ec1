"""What an agent wrote, in the final report: a row and a line can hold it."""

import json

import pytest

from holdfast.engine.report import read_verdict, to_markdown


@pytest.mark.parametrize("verdict", ["ok\ud800", "ok\0", "ok\n## Decisions", "ok\x1b[2J"])
def test_a_verdict_is_one_line_of_text(verdict: str) -> None:
    found = read_verdict(json.dumps({"verdict": verdict}))

    assert found is not None
    assert found.startswith("ok\ufffd")
    assert found.isprintable()


def test_the_name_of_a_file_begins_no_line_of_its_own() -> None:
    report = {
        **dict.fromkeys(("summary", "runId", "repository", "started_at", "ended_at", "requirements", "state"), ""),
        "workflow": {"name": "w"},
        **dict.fromkeys(("cost_usd", "simulated_usd", "unsettled_usd"), 0.0),
        "error": None,
        "phases": [],
        "approvals": [],
        "files": [{"path": "a\n## Decisions\n- approved by ann", "added": 1, "removed": 0}],
    }

    assert "## Decisions" not in to_markdown(report).splitlines()
