"""From a flow's row and journal to what the wire says of every run and approval."""

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.api.flow_schemas import FlowRunDetail
from holdfast.api.schemas import ApprovalItem, Cause, RunItem
from holdfast.enums import PauseReason, Role, RunStatus
from holdfast.persistence.flow_listings import to_time
from holdfast.presentation.flow_run import (
    INTERRUPTED,
    FlowQuestion,
    describe_failure,
    describe_flow_crashes,
    describe_flow_now,
    describe_flow_question,
    list_flow_answers,
    to_wire,
    view_flow,
)
from holdfast.presentation.format import sentence_case
from holdfast.presentation.status import Note, StatusLine
from holdfast.presentation.tool_call import QuestionedCall
from holdfast.runtime.events import Event
from holdfast.runtime.flow_rows import FlowRow

_LAST_EVENTS = 20
_TONES = {"completed": "good", "failed": "bad", "paused": "waiting", "running": "busy"}


def to_flow_heading(row: FlowRow) -> str:
    return f"{row.flow or 'flow'} · {row.run_id}"


def to_flow_item(row: FlowRow, *, is_driven: bool, reason: str | None = None, failure: str = "") -> RunItem:
    """Return a flow as a list has it; `failure` is why it failed."""
    fields = _run_fields(row, is_driven=is_driven, reason=reason)
    return RunItem.model_validate({**fields, "now": fields["now"] or failure})


def _run_fields(row: FlowRow, *, is_driven: bool, reason: str | None) -> dict[str, Any]:
    facts = {**to_wire(row), "state": row.status, "is_driven": is_driven}
    is_over, doing = RunStatus(row.status).is_terminal, describe_flow_now(facts)
    return {
        **{name: facts[name] for name in _SAME_NAMES},
        "kind": "flow",
        **dict.fromkeys(("workflow", "title", "repo_path", "base_branch", "started_by", "cost", "merged"), ""),
        **dict.fromkeys(("cost_usd", "reserved_usd", "perhaps_paid_usd", "simulated_usd"), 0.0),
        "is_simulated": False,
        "forked_from": None,
        "started_at": None if row.status == RunStatus.PENDING else facts["created_at"],
        "ended_at": facts["updated_at"] if is_over else None,
        "pause_reason": _find_pause_reason(facts),
        "waiting_for": None if is_over else reason,
        "due_at": facts["wake_at"],
        "heading": to_flow_heading(row),
        "now": doing,
        "verdict": Note("waiting", "Interrupted") if doing == INTERRUPTED else None,
    }


def _find_pause_reason(facts: Mapping[str, Any]) -> PauseReason | None:
    if facts["state"] != RunStatus.PAUSED:
        return None
    if facts["waits_for"] == PauseReason.CRASHING:
        return PauseReason.CRASHING if describe_flow_crashes(facts) else None
    return PauseReason.APPROVAL


_VIEWED = ("args", "kwargs", "result", "status_text", "notes", "steps", "error")
_SAME_NAMES = (
    *("run_id", "state", "flow", "tags", "parent_run_id", "created_at", "updated_at"),
    *("queue", "priority", "waits_for"),
)


def to_flow_detail(
    row: FlowRow, events: Sequence[Event], *, is_driven: bool, reason: str | None, role: Role
) -> FlowRunDetail:
    view = view_flow(row.run_id, events)
    facts = to_wire(view)
    fields = _run_fields(row, is_driven=is_driven, reason=reason)
    questions = [*view.questions, *reversed(view.answered)]
    return FlowRunDetail.model_validate(
        {
            **fields,
            **{name: facts[name] for name in _VIEWED},
            "is_driven": is_driven,
            "approvals": [to_flow_approval(row.run_id, row.flow, question) for question in questions],
            "seq": events[-1].seq if events else 0,
            "last_events": [event.to_dict() for event in events[-_LAST_EVENTS:]],
            "telling": _describe(row, fields, facts["error"]),
            "refusals": _find_refusals(row, role),
        }
    )


def _describe(row: FlowRow, fields: Mapping[str, Any], error: Mapping[str, Any] | None) -> StatusLine:
    text = (
        describe_flow_crashes({**fields, "wake_at": fields["due_at"]})
        or f"{sentence_case(fields['now'] or row.status)}."
    )
    if error:
        text = f"It failed: {describe_failure(error)}"
    is_waiting = row.status == RunStatus.RUNNING and fields["now"] != "runs"
    tone = "waiting" if is_waiting else _TONES.get(row.status, "idle")
    return StatusLine(tone, f"{text} {fields['waiting_for']}" if fields["waiting_for"] else text, fields["updated_at"])


def _find_refusals(row: FlowRow, role: Role) -> dict[str, str | None]:
    """Say why each verb of a workflow run would be refused for a flow: it knows an end, and other tries."""
    too_low = None if role.includes(Role.OPERATOR) else f"This needs the role operator; you are {role.value}."
    over = f"The run is {row.status}." if RunStatus(row.status).is_terminal else None
    of_workflows = "This is for runs of workflows; a flow goes on by itself."
    is_crashing = row.status == RunStatus.PAUSED and row.waits_for == PauseReason.CRASHING
    verbs = ("pause", "merge", "top_up")
    not_failed = None if row.status == RunStatus.FAILED else f"The run is {row.status}."
    driven = f"Run {row.parent_run_id} drives it: retry that one." if row.parent_run_id else None
    return {
        **dict.fromkeys(verbs, of_workflows),
        "resume": too_low if is_crashing else of_workflows,
        "abort": too_low or over,
        "retry": too_low or not_failed or driven,
        "fork": too_low,
    }


def to_approval_id(run_id: str, key: str) -> str:
    """Return what the question of a flow is called, here and by the commands."""
    return f"{run_id}:{key}"


def to_flow_approval(run_id: str, flow: str, question: FlowQuestion) -> ApprovalItem:
    answer = question.answer or {}
    action = answer.get("action")
    details = question.show if isinstance(question.show, dict) else {}
    causes = list_flow_answers(question)
    return ApprovalItem(
        approval_id=to_approval_id(run_id, question.key),
        run_id=run_id,
        kind="flow",
        phase_key=question.key,
        attempt=1,
        state="pending" if question.answer is None else "decided",
        digest=question.digest,
        requested_at=str(to_time(question.requested_at)),
        decided_at=to_time(question.answered_at),
        deadline_at=to_time(question.deadline_at),
        action=None if action is None else str(action),
        comment=str(answer.get("comment") or ""),
        decided_by=str(answer.get("by") or ""),
        first_by="",
        shown=question.show,
        about=question.about,
        question=describe_flow_question(question, flow),
        facts=[f"Flow {flow}", f"Run {run_id}"],
        causes=[Cause(action=action, label=label, text=text) for action, (label, text) in causes.items()],
        reason="the flow's code asks" if question.about == "approval" else str(details.get("question") or ""),
        call=_to_call(question, details) if question.about == "outcome" else None,
        since_answer=None,
    )


def _to_call(question: FlowQuestion, details: Mapping[str, Any]) -> QuestionedCall:
    return QuestionedCall(
        tool=question.key,
        line=f"{question.key}: {details.get('problem') or 'nothing is recorded of its outcome'}",
        folder="",
        rule="",
        kind="",
        grant="",
        can_edit=False,
    )
