"""Which answers each kind of question takes, and what they are as events and rows."""

from typing import Any

import pytest

from holdfast.engine.approvals.questions import (
    ApprovalDecision,
    ApprovalQuestion,
    OutcomeQuestion,
    PhaseQuestion,
    Subject,
    ToolQuestion,
    to_question,
)
from holdfast.enums import ApprovalDecisionAction
from holdfast.errors import ApprovalStale, ConfigInvalid, SecondPersonNeeded
from holdfast.persistence.models import ApprovalRow
from holdfast.runtime.events import EventKind

APPROVE, REJECT = ApprovalDecisionAction.APPROVE, ApprovalDecisionAction.REJECT
SUBJECT = Subject("artifact", "files", "template", "tree")


def make(kind: type[ApprovalQuestion], **facts: Any) -> Any:
    named: dict[str, Any] = {"approval_id": "a", "run_id": "r", "phase_key": "plan", "attempt": 1, "lane_id": "plan/1"}
    return kind(**named, key="plan/1/approval", digest=SUBJECT.digest, **facts)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (make(PhaseQuestion), ApprovalDecision(APPROVE, result=1)),
        (make(PhaseQuestion), ApprovalDecision(APPROVE, args={})),
        (make(ToolQuestion), ApprovalDecision(APPROVE, result=1)),
        (make(ToolQuestion), ApprovalDecision(REJECT, args={})),
        (make(OutcomeQuestion), ApprovalDecision(APPROVE, args={})),
    ],
)
def test_a_question_refuses_what_belongs_to_another_kind(question: Any, answer: ApprovalDecision) -> None:
    with pytest.raises(ConfigInvalid):
        question.check(answer)


@pytest.mark.parametrize("kind", [PhaseQuestion, ToolQuestion])
def test_an_answer_to_something_else_is_stale(kind: type[ApprovalQuestion]) -> None:
    with pytest.raises(ApprovalStale):
        make(kind).check(ApprovalDecision(APPROVE, digest="another"))


def test_an_answer_is_stale_once_the_files_are_others() -> None:
    now = Subject("artifact", "other files", "template", "other tree")
    question = make(PhaseQuestion, subject=now, content={"subject": vars(SUBJECT)})

    with pytest.raises(ApprovalStale) as stale:
        question.check(ApprovalDecision(APPROVE, digest=SUBJECT.digest))

    assert "the files changed" in stale.value.message


def test_the_first_of_two_approvals_leaves_the_question_open() -> None:
    question = make(PhaseQuestion, needs_two=True)
    answer = ApprovalDecision(APPROVE, by="ann")
    question.check(answer)

    assert question.to_event(answer).kind == EventKind.HUMAN_APPROVAL_FIRST
    assert "state" not in question.to_answer_row(answer).params
    with pytest.raises(SecondPersonNeeded):
        make(PhaseQuestion, needs_two=True, first_by="ann").check(answer)


def test_one_person_is_enough_to_reject() -> None:
    question, answer = make(PhaseQuestion, needs_two=True), ApprovalDecision(REJECT, by="ann")
    question.check(answer)

    assert question.to_event(answer).kind == EventKind.HUMAN_APPROVAL_RECEIVED
    assert question.to_answer_row(answer).params["action"] == "reject"


def test_a_tool_call_is_approved_with_other_arguments() -> None:
    answer = ApprovalDecision(APPROVE, args={"command": "ls"})
    question = make(ToolQuestion)
    question.check(answer)

    assert question.to_event(answer).payload["args"] == {"command": "ls"}


def test_a_result_says_that_the_call_is_done() -> None:
    question, answer = make(OutcomeQuestion), ApprovalDecision(APPROVE, result=None)
    question.check(answer)

    assert question.to_event(answer).payload["action"] == "done"
    assert question.to_event(answer).payload["result"] is None
    assert question.to_answer_row(answer).params["action"] == "done"


@pytest.mark.parametrize(
    ("about", "kind"), [("phase", PhaseQuestion), ("tool", ToolQuestion), ("outcome", OutcomeQuestion)]
)
def test_a_row_is_read_back_as_its_kind(about: str, kind: type[ApprovalQuestion]) -> None:
    row = ApprovalRow(id="a", run_id="r", phase_key="plan", attempt=2, about=about, digest="d", shown={"key": "k"})
    row.first_by = ""

    question = to_question(row)

    assert type(question) is kind
    assert (question.lane_id, question.digest) == ("plan/2", "d")
