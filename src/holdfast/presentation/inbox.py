"""What waits for a person, the most dangerous first, and whether it waits for whoever asks.

Rule: what only others can decide is shown as theirs. What needs a look and no answer is there until it was looked at;
`until` is what the look is remembered by.
"""

from dataclasses import dataclass
from enum import IntEnum

from holdfast.enums import PauseReason, Role
from holdfast.presentation.flow_run import FlowQuestion, describe_flow_question, summarize_flow_question
from holdfast.presentation.status import Note, OpenApproval, describe_question, find_pause
from holdfast.presentation.tool_call import summarize_question


class Danger(IntEnum):
    """How much harm waiting or a wrong answer can do; the first is the worst."""

    OUTCOME = 0
    CRITICAL = 1
    TOOL = 2
    PLAN = 3
    BUDGET = 4
    FAILED = 5
    MESSAGE = 6


_MARKS = {
    Danger.OUTCOME: Note("bad", "Outcome unknown"),
    Danger.CRITICAL: Note("bad", "Critical"),
    Danger.TOOL: Note("waiting", "Tool call"),
    Danger.PLAN: Note("waiting", "Approval"),
    Danger.BUDGET: Note("waiting", "Stopped"),
    Danger.FAILED: Note("bad", "Failed"),
    Danger.MESSAGE: Note("idle", "Your turn"),
}


@dataclass(frozen=True, kw_only=True)
class WaitingEntry:
    """What is asked or to be looked at; `why_not` says why it waits for somebody else."""

    danger: Danger
    question: str
    summary: str
    why_not: str = ""
    until: str = ""

    @property
    def mark(self) -> Note:
        return _MARKS[self.danger]


def to_entry(question: OpenApproval, *, role: Role, name: str) -> WaitingEntry:
    """Say what a decision is about, and whether it is for a person of this role and name."""
    danger = {"outcome": Danger.OUTCOME, "tool": Danger.TOOL}.get(question.about, Danger.PLAN)
    if danger is Danger.PLAN and question.details.get("risk") == "critical":
        danger = Danger.CRITICAL
    why_not = _find_approver_fault(role)
    if question.first_by and question.first_by == name:
        why_not = "You have approved it. Another person must approve it too."
    summary = summarize_question(question)
    return WaitingEntry(danger=danger, question=describe_question(question), summary=summary, why_not=why_not)


def _find_approver_fault(role: Role) -> str:
    return "" if role.includes(Role.APPROVER) else f"It needs the role approver; you are {role.value}."


def to_flow_entry(question: FlowQuestion, flow: str, *, role: Role) -> WaitingEntry:
    """Say what a flow asks, and whether it is for a person of this role."""
    return WaitingEntry(
        danger=Danger.OUTCOME if question.about == "outcome" else Danger.PLAN,
        question=describe_flow_question(question, flow),
        summary=summarize_flow_question(question),
        why_not=_find_approver_fault(role),
    )


def to_stopped_entry(pause_reason: str | None, now: str, *, role: Role) -> WaitingEntry | None:
    """Say what a run that stopped needs; `None` if it needs nothing but an answer or a message."""
    question = find_pause(pause_reason).question
    why_not = "" if role.includes(Role.OPERATOR) else f"It needs the role operator; you are {role.value}."
    return WaitingEntry(danger=Danger.BUDGET, question=question, summary=now, why_not=why_not) if question else None


def to_failed_entry(now: str, ended_at: str | None) -> WaitingEntry:
    return WaitingEntry(danger=Danger.FAILED, question="It failed: look why.", summary=now, until=ended_at or "failed")


def to_turn_entry(pause_reason: str | None, updated_at: str) -> WaitingEntry | None:
    """Say that a conversation waits for what the person says next; `None` for what is none."""
    if pause_reason != PauseReason.MESSAGE:
        return None
    sentence = find_pause(pause_reason).sentence
    return WaitingEntry(danger=Danger.MESSAGE, question="It has answered.", summary=sentence, until=updated_at)
