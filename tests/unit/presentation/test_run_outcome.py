"""What a run came to, in words, from rows, a journal and whatever an agent handed in."""

import json
from typing import Any

import pytest

from holdfast.enums import Role
from holdfast.presentation.run_outcome import MergeTarget, Review, describe_outcome, read_review
from holdfast.presentation.status import PhaseFacts, RunFacts, describe_in_list, describe_run, find_refusals
from holdfast.presentation.trace import RunTrace
from holdfast.runtime.events import Event, EventKind

DONE = (PhaseFacts(key="work", state="completed"),)
TIMES = {"started_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-01T00:01:00Z"}


def completed(**facts: Any) -> RunFacts:
    return RunFacts(state="completed", phases=DONE, **TIMES, **facts)


def command(trace: RunTrace, seq: int, key: str, exit_code: int, **details: Any) -> None:
    lane = "work/1"
    trace.add(
        Event(run_id="r", seq=seq, ts=seq, lane_id=lane, kind=EventKind.TOOL_STARTED, payload={"key": key, **details})
    )
    result = {"key": key, **details, "result": {"exit_code": exit_code, "output": ""}}
    trace.add(Event(run_id="r", seq=seq + 1, ts=seq + 1, lane_id=lane, kind=EventKind.TOOL_RESULT, payload=result))


@pytest.mark.parametrize(
    ("verdict", "tone", "words"),
    [
        (None, "good", "1 phase in 1 min."),
        ("approve", "good", "The review approves it."),
        ("request_changes", "waiting", "The review asks for changes."),
        ("reject", "bad", "The review rejects it."),
        ("not_fixed", "bad", "The fault is still there."),
        ("shiny", "good", "Its verdict is “shiny”."),
    ],
)
def test_the_verdict_of_the_review_is_part_of_the_status(verdict: str | None, tone: str, words: str) -> None:
    status = describe_run(completed(verdict=verdict))

    assert status.tone == tone
    assert words in status.text


def test_a_list_says_what_the_review_wants_and_where_it_was_merged() -> None:
    now = describe_in_list(completed(verdict="request_changes", merged_into="main"))

    assert now == "1 phase done · changes wanted · merged into main"


def test_commands_count_by_their_last_outcome() -> None:
    trace = RunTrace()
    command(trace, 1, "a", 1, tool="command", argv=["make", "test"])
    command(trace, 3, "b", 0, tool="command", argv=["make", "test"])
    command(trace, 5, "c", 2, tool="execute", args={"command": "ls x"})

    outcome = describe_outcome(completed(), trace, {}, review=None, refusals={}, target=MergeTarget("main"))

    assert [(each.command, each.of, each.text) for each in outcome.commands] == [
        ("make test", "workflow", "exit 1"),
        ("make test", "workflow", "passed"),
        ("ls x", "agent", "exit 2"),
    ]
    assert outcome.checked.text == "2 commands run, 1 failed at the last try."


def test_what_to_do_next_depends_on_what_there_is() -> None:
    files = {"files": [{"path": "a", "added": 1, "removed": 2}, {"path": "b.png", "added": None, "removed": None}]}

    def steps(run: RunFacts, report: dict[str, Any], host: str = "") -> list[str]:
        refusals = find_refusals(run, Role.VIEWER)
        target = MergeTarget("main", host)
        outcome = describe_outcome(run, RunTrace(), report, review=None, refusals=refusals, target=target)
        return [f"{step.label}{'!' if step.why else ''}" for step in outcome.steps]

    assert steps(completed(), {}) == ["Fork…!"]
    assert steps(completed(), files) == ["Merge into main…!", "Download patch", "Fork…!"]
    assert steps(completed(merged_into="main"), files)[0] == "Merge again…!"
    assert steps(completed(merged_into="run-1 of github.com"), files)[0] == "Merge into main…!"
    assert "Open pull request…!" in steps(completed(), files, "github.com")
    assert "Open pull request…!" not in steps(completed(), {}, "github.com")
    assert steps(RunFacts(state="failed", phases=DONE), {}) == ["Retry…!", "Fork…!"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"verdict": 3}', '{"verdict": ""}', "not json", "[" * 100_000])
def test_what_is_no_review_is_none(content: str) -> None:
    assert read_review("review", content) is None


def test_a_review_of_another_shape_is_read_as_far_as_it_goes() -> None:
    content = json.dumps({"verdict": "reject", "summary": 4, "findings": ["x", {"severity": [], "what": "y"}]})

    review = read_review("review", content)

    assert isinstance(review, Review)
    assert (review.tone, review.summary, [each.what for each in review.findings]) == ("bad", "", ["y"])
