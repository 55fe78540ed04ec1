"""The words about a run: what is happening, what can be done, what each answer causes."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.enums import Role
from holdfast.presentation.format import duration, money, plural
from holdfast.presentation.message_box import MessageBox, describe_message_box
from holdfast.presentation.status import (
    PAUSES,
    OpenApproval,
    PhaseFacts,
    RunFacts,
    describe_choices,
    describe_in_list,
    describe_question,
    describe_run,
    find_refusals,
    list_question_facts,
    run_title,
)
from holdfast.presentation.trace import RunTrace
from holdfast.runtime.events import Event
from holdfast.runtime.run_fold.payload_text import error_text, first_line

FORMAT = Path(holdfast.__file__).parent / "web" / "js" / "format.js"
AT = "2026-01-01T00:00:00.000Z"
QUESTION = OpenApproval(about="phase", phase_key="plan", attempt=2, requested_at=AT, details={"next": ["build"]})
WAITING = RunFacts(
    state="paused",
    pause_reason="approval",
    created_at=AT,
    updated_at=AT,
    phases=[PhaseFacts(key="plan", state="awaiting_approval", attempts=2), PhaseFacts(key="build", state="pending")],
    questions=[QUESTION],
)
WORKING = replace(WAITING, state="running", phases=[PhaseFacts(key="plan", state="running", attempts=2)], questions=[])


def test_the_sentence_says_what_is_happening_and_why() -> None:
    broken = [PhaseFacts(key="plan", state="failed")]

    assert describe_run(WAITING).text == "Waiting for approval of “plan”."
    assert describe_run(replace(WAITING, questions=[])).text.startswith("Answered.")
    assert describe_run(WORKING).text == "Working on “plan”, attempt 2."
    assert describe_run(replace(WORKING, waiting_for="No worker is taking runs.")).text == "No worker is taking runs."
    failed = replace(WORKING, state="failed", error={"message": "It broke."}, phases=broken)
    assert (describe_run(failed).tone, describe_run(failed).text) == ("bad", "Phase “plan” failed: It broke.")
    done = replace(WAITING, state="completed", started_at=AT, ended_at="2026-01-01T00:01:01.000Z")
    assert describe_run(done).text == "Completed: 2 phases in 1 min 1 s."
    assert describe_run(replace(WAITING, state="of the future")).text == "of the future"


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"tool": "ls"}, "ls"),
        ({"tool": "read_file", "args": {"file_path": "/shop.py"}}, "read_file /shop.py"),
        ({"tool": "execute", "args": {"command": "make test"}}, "“$ make test”"),
        ({"tool": "command", "argv": ["make", "check"]}, "“$ make check”"),
    ],
)
def test_the_call_under_way_is_part_of_the_sentence(facts: dict[str, Any], words: str) -> None:
    payload = {"key": "k", **facts}
    call = Event(run_id="r", seq=1, ts=7.0, kind="tool.started", lane_id="plan/2/turn1", payload=payload)

    status = describe_run(WORKING, RunTrace.of([call]))

    assert (status.text, status.call_since) == (f"Working on “plan”, attempt 2: {words}.", 7.0)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("budget", "A budget is used up."),
        ("outcome", "only a person can say what became of it"),
        ("person", "A person paused it."),
        ("stalled", "made no progress"),
        ("message", "It waits for what you say next."),
        (None, "It waits."),
    ],
)
def test_every_pause_is_explained(reason: str | None, expected: str) -> None:
    assert expected in describe_run(replace(WAITING, pause_reason=reason), RunTrace()).text


def test_the_pages_have_the_same_marks_for_pauses() -> None:
    (table,) = re.findall(r"^const PAUSES = \{ (.*) \};$", FORMAT.read_text(), re.MULTILINE)

    assert dict(re.findall(r'(\w+): "([^"]+)"', table)) == {reason: pause.mark for reason, pause in PAUSES.items()}


def test_one_line_says_where_a_run_stands() -> None:
    phases = [PhaseFacts(key="spec", state="completed"), PhaseFacts(key="plan", state="running", attempts=2)]
    broken = [PhaseFacts(key="plan", state="failed", error="It broke.")]

    assert describe_in_list(WAITING) == "Waits for an approval · plan"
    assert describe_in_list(replace(WORKING, phases=phases)) == "plan (attempt 2) · 1 of 2 done"
    assert describe_in_list(replace(WORKING, state="failed", phases=broken)) == "plan: It broke."
    assert describe_in_list(replace(WORKING, state="completed")) == "1 phase done"
    assert describe_in_list(replace(WORKING, state="cancelled", error=None)) == "Aborted"
    assert describe_in_list(replace(WORKING, state="pending")) == "Queued: a server or worker takes it"


def test_each_answer_says_what_it_will_cause() -> None:
    causes = describe_choices(QUESTION)

    assert causes["approve"] == ("Approve", "Phase “build” starts.")
    assert causes["request_changes"][1] == "“plan” runs again with your comment, as attempt 3."
    critical = describe_choices(replace(QUESTION, risk="critical"))
    assert critical["approve"][1] == "A second person must approve too; then phase “build” starts."
    assert describe_choices(replace(QUESTION, risk="critical", first_by="ana"))["approve"][1] == "Phase “build” starts."
    assert (
        describe_choices(replace(QUESTION, details={"next": ["a", "b"]}))["approve"][1] == "Phases “a” and “b” start."
    )
    assert describe_choices(replace(QUESTION, details={}))["approve"][1] == "The run completes."
    assert "happens twice" in describe_choices(replace(QUESTION, about="outcome"))["approve"][1]
    assert list(describe_choices(replace(QUESTION, about="tool", details={"tool": "rm"}))) == ["approve", "reject"]


def test_a_question_is_asked_in_words() -> None:
    assert describe_question(QUESTION) == "Approve “plan”, attempt 2?"
    assert describe_question(replace(QUESTION, title="Plan the work", attempt=1)) == "Approve “Plan the work”?"
    assert describe_question(replace(QUESTION, about="tool", details={"tool": "rm"})) == "May the agent call “rm”?"
    push = {"tool": "execute", "args": {"command": "git push origin main"}}
    assert (
        describe_question(replace(QUESTION, about="tool", details=push))
        == "May the agent run “$ git push origin main”?"
    )
    assert describe_question(replace(QUESTION, about="outcome")) == "What became of a call in “plan”?"
    details: dict[str, Any] = {"files": ["a"], "added": 3, "removed": 1}
    assert list_question_facts(replace(QUESTION, risk="high", details=details)) == [
        "Phase plan, attempt 2",
        "Risk high",
        "1 file changed, +3 −1",
    ]


def test_an_action_that_is_not_possible_says_why() -> None:
    refused = find_refusals(WAITING, Role.OPERATOR)
    assert refused["abort"] is None
    assert refused["resume"] == "It waits for a decision, and goes on by itself after it."
    assert find_refusals(replace(WAITING, state="completed"), Role.ADMIN)["abort"] == "The run is completed."
    assert find_refusals(replace(WAITING, state="failed"), Role.ADMIN)["retry"] is None
    assert find_refusals(WAITING, Role.ADMIN)["pause"] is None
    assert find_refusals(replace(WAITING, stays_paused=True), Role.ADMIN)["pause"] == "It is paused already."
    queued = replace(WAITING, state="pending", questions=())
    assert find_refusals(queued, Role.ADMIN)["resume"] == "It is queued and starts by itself."
    assert find_refusals(replace(queued, is_for_later=True), Role.ADMIN)["resume"] is None
    too_low = set(find_refusals(WAITING, Role.VIEWER).values())
    assert too_low == {"This needs the role operator; you are viewer."}


def test_a_run_is_called_by_its_title_or_what_is_wanted() -> None:
    names = {"workflow": "w", "run_id": "0123456789"}
    assert run_title(title="T", requirements_md="R", **names) == "T"
    assert run_title(title="", requirements_md="\n# Do it\nmore", **names) == "Do it"
    assert run_title(title="", requirements_md="", **names) == "w 01234567"


def test_quantities_are_said_as_people_say_them() -> None:
    seconds = (0.0042, 9.96, 61, 840, 7500, 273_600, None)
    assert [duration(each) for each in seconds] == [
        "4 ms",
        "10 s",
        "1 min 1 s",
        "14 min",
        "2 h 5 min",
        "3 d 4 h",
        "–",
    ]
    amounts = (0, 0.00001, 0.0042, 0.05, 1.1249, 1204, -2, None)
    assert [money(each) for each in amounts] == [
        "$0",
        "<$0.0001",
        "$0.0042",
        "$0.05",
        "$1.12",
        "$1,204.00",
        "−$2.00",
        "–",
    ]
    assert [plural(1, "try", "tries"), plural(1200, "run")] == ["1 try", "1,200 runs"]
    assert [first_line("## A\nb"), first_line("x" * 9, 5)] == ["A", "xxxx…"]
    assert [error_text({"message": "m"}), error_text({"code": "c"}), error_text(None)] == ["m", "c", ""]


def test_where_a_program_works_nobody_would_read_a_message_and_that_is_said() -> None:
    run = replace(WORKING, phases=[PhaseFacts(key=key, state="running") for key in ("plan", "build")])

    both = describe_message_box(run, "w", Role.OPERATOR, ["plan", "build"])
    one = describe_message_box(run, "w", Role.OPERATOR, ["plan"])

    assert both is not None
    assert both.why == (
        "The coding agent of “plan” and “build” is a program of its own: it reads no messages while it works."
    )
    assert one == MessageBox(
        "Say something to the agent",
        "The agent of “build” reads it before its next call; it changes nothing that is done.",
    )
    talk = describe_message_box(run, "conversation", Role.OPERATOR, ["chat"])
    assert talk is not None
    assert talk.hint == "It is read when this answer is complete."
