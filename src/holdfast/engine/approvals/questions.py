"""The questions that a run puts to a person: about a phase's result, about a tool call, about a call's outcome.

Rule: each kind makes its own event and row, and knows which answers it takes. An answer counts for what the person saw.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from holdfast.engine.scope import ApprovalRequest
from holdfast.enums import ApprovalDecisionAction
from holdfast.errors import ApprovalStale, ConfigInvalid, SecondPersonNeeded
from holdfast.persistence.models import ApprovalRow
from holdfast.persistence.statements import NewApprovalRow, approve_first, ask_approval, decide_approval
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.events import Event, EventKind, create_event

UNSET: Any = object()


@dataclass(frozen=True)
class Subject:
    """What an approval is about. Its digest changes when anything in it does."""

    artifact_hash: str
    files: str
    """A hash of the files without any phase's artifact: others may hand in theirs while this one waits."""
    template_hash: str
    tree: str
    """All files, to show a difference by; it is not part of the digest."""

    @property
    def digest(self) -> str:
        parts = {name: getattr(self, name) for name in _NAMES}
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def differences(self, other: Mapping[str, Any]) -> list[str]:
        return [word for name, word in _NAMES.items() if other.get(name) != getattr(self, name)]


_NAMES = {"artifact_hash": "the artifact", "files": "the files", "template_hash": "the template"}


@dataclass(frozen=True)
class ApprovalDecision:
    """What somebody answers to a question."""

    action: ApprovalDecisionAction
    comment: str = ""
    by: str = ""
    digest: str | None = None
    """Of what they saw, if that is known."""
    result: Any = UNSET
    """Of a call whose outcome was unknown: it was made, and gave this."""
    args: Mapping[str, Any] | None = None
    """Of a tool call: it is approved with these arguments instead."""
    is_for_kind: bool = False
    """Of a tool call: it counts for every call of its kind in this run."""
    artifact: str | None = None
    """Of a phase's result: it is approved with this text of the artifact instead."""


@dataclass(frozen=True, kw_only=True)
class ApprovalQuestion:
    """A question that waits for a person, as its event and its row have it."""

    about: ClassVar[str]

    approval_id: str
    run_id: str
    phase_key: str
    attempt: int
    lane_id: str
    key: str = ""
    """Its name in the journal."""
    digest: str = ""
    content: Mapping[str, Any] = field(default_factory=dict)
    deadline_at: str | None = None
    title: str = ""
    risk: str = ""

    def to_request(self) -> ApprovalRequest:
        """Return the question as a callback gets it."""
        return ApprovalRequest(
            approval_id=self.approval_id,
            run_id=self.run_id,
            phase_key=self.phase_key,
            title=self.title,
            risk=self.risk,
            attempt=self.attempt,
            digest=self.digest,
            content=self.content,
            deadline_at=self.deadline_at,
        )

    def to_row(self) -> Statement:
        """Return the row with which the question is put."""
        return ask_approval(
            NewApprovalRow(
                id=self.approval_id,
                run_id=self.run_id,
                phase_key=self.phase_key,
                attempt=self.attempt,
                about=self.about,
                content=self._stored_content(),
                digest=self.digest,
                deadline_at=self.deadline_at,
            )
        )

    def check(self, answer: ApprovalDecision) -> None:
        """Raise `ApprovalStale` or `ConfigInvalid` if this question does not take the answer."""
        if answer.digest is not None and answer.digest != self.digest:
            raise ApprovalStale(
                f"Approval {self.approval_id} has digest {self.digest[:12]}…, "
                f"not the one that was seen ({answer.digest[:12]}…).",
                hint="Look at it again, then decide.",
            )

    def to_event(self, answer: ApprovalDecision) -> Event:
        """Return the event that an answer is."""
        return self._received(answer, answer.action)

    def to_answer_row(self, answer: ApprovalDecision) -> Statement:
        """Return the row change of an answer; it refuses the append if another answer was faster."""
        return decide_approval(self.approval_id, answer.action, comment=answer.comment, by=answer.by)

    def leaves_open(self, answer: ApprovalDecision) -> bool:
        """Tell whether the question still waits after this answer."""
        return False

    def _stored_content(self) -> Mapping[str, Any]:
        return self.content

    def _requested(self, **facts: Any) -> Event:
        payload: dict[str, Any] = {
            "approval_id": self.approval_id,
            "phase": self.phase_key,
            "attempt": self.attempt,
            "risk": self.risk,
            "digest": self.digest,
            "fingerprint": {"digest": self.digest},
            "show": dict(self.content),
            **facts,
        }
        return create_event(self.run_id, EventKind.HUMAN_APPROVAL_REQUESTED, self.lane_id, key=self.key, **payload)

    def _received(self, answer: ApprovalDecision, action: str, **facts: Any) -> Event:
        return create_event(
            self.run_id,
            EventKind.HUMAN_APPROVAL_RECEIVED,
            self.lane_id,
            key=self.key,
            approval_id=self.approval_id,
            action=str(action),
            comment=answer.comment,
            by=answer.by,
            **facts,
        )


@dataclass(frozen=True, kw_only=True)
class PhaseQuestion(ApprovalQuestion):
    """May the result of a phase count?"""

    about = "phase"

    subject: Subject | None = None
    """What it is about, by what lies in the workspace now, as far as that can be seen from here."""
    needs_two: bool = False
    first_by: str = ""
    """Who of the two people that are needed has approved already."""

    def to_requested_event(self) -> Event:
        """Return the event with which the question is put."""
        deadline = {"deadline_at": self.deadline_at} if self.deadline_at else {}
        assert self.subject is not None
        fingerprint = {"digest": self.digest, "artifact": self.subject.artifact_hash}
        return self._requested(subject=vars(self.subject), fingerprint=fingerprint, **deadline)

    def check(self, answer: ApprovalDecision) -> None:
        """Raise also if what lies there now is not what was seen, or `SecondPersonNeeded`."""
        super().check(answer)
        if self.subject is not None and self.subject.digest != self.digest:
            changed = self.subject.differences(self.content.get("subject", {}))
            raise ApprovalStale(
                f"Since approval {self.approval_id} was asked, {' and '.join(changed) or 'something'} changed.",
                hint="Resume the run: it asks again and shows what is there now.",
                changed=changed,
            )
        _check_no_result(answer)
        _check_no_args(answer)
        _check_one_call(answer)
        is_approved = answer.action is ApprovalDecisionAction.APPROVE
        if not is_approved or self.needs_two:
            _check_no_artifact(answer)
        if self.needs_two and is_approved and (not answer.by or self.first_by == answer.by):
            raise SecondPersonNeeded(f"Approval {self.approval_id} is of risk critical and needs two different people.")

    def to_event(self, answer: ApprovalDecision) -> Event:
        """Return the event that an answer is; the first of two approvals leaves the question open."""
        if not self.leaves_open(answer):
            edited = {} if answer.artifact is None else {"artifact": answer.artifact}
            return self._received(answer, answer.action, **edited)
        payload: dict[str, Any] = {"approval_id": self.approval_id, "comment": answer.comment, "by": answer.by}
        return create_event(self.run_id, EventKind.HUMAN_APPROVAL_FIRST, self.lane_id, **payload)

    def to_answer_row(self, answer: ApprovalDecision) -> Statement:
        if self.leaves_open(answer):
            return approve_first(self.approval_id, answer.by)
        return super().to_answer_row(answer)

    def leaves_open(self, answer: ApprovalDecision) -> bool:
        """Tell whether a second person is to answer after this one."""
        return self.needs_two and answer.action is ApprovalDecisionAction.APPROVE and not self.first_by

    def _stored_content(self) -> Mapping[str, Any]:
        return {**self.content, "subject": vars(self.subject)}


@dataclass(frozen=True, kw_only=True)
class ToolQuestion(ApprovalQuestion):
    """May the agent make this tool call?"""

    about = "tool"

    def to_requested_event(self) -> Event:
        """Return the event with which the question is put."""
        return self._requested(about=self.about)

    def check(self, answer: ApprovalDecision) -> None:
        """Raise also if there are arguments for a call that is not approved."""
        super().check(answer)
        _check_no_result(answer)
        _check_no_artifact(answer)
        if answer.action is not ApprovalDecisionAction.APPROVE:
            _check_no_args(answer)
        if answer.is_for_kind and (answer.action is not ApprovalDecisionAction.APPROVE or not self.content.get("kind")):
            raise ConfigInvalid(
                "This call stands alone: an approval of it covers no others.",
                key="is_for_kind",
                hint="Approve this one call, or add a rule to the persona's permissions.",
            )

    def to_event(self, answer: ApprovalDecision) -> Event:
        """Return the event that an answer is, with the arguments that a person has put in place of the agent's."""
        facts: dict[str, Any] = {} if answer.args is None else {"args": dict(answer.args)}
        if answer.is_for_kind:
            facts["allowed_kind"] = self.content["kind"]
        return self._received(answer, answer.action, **facts)


@dataclass(frozen=True, kw_only=True)
class OutcomeQuestion(ApprovalQuestion):
    """What became of a call that was in flight when its process died? The pause of the run is its event."""

    about = "outcome"

    def check(self, answer: ApprovalDecision) -> None:
        """Raise `ConfigInvalid` if there are arguments; it has no digest that could be stale."""
        _check_no_args(answer)
        _check_no_artifact(answer)
        _check_one_call(answer)

    def to_event(self, answer: ApprovalDecision) -> Event:
        """Return the event that an answer is; with a result the call is done."""
        if answer.result is UNSET:
            return super().to_event(answer)
        return self._received(answer, _DONE, result=answer.result)

    def to_answer_row(self, answer: ApprovalDecision) -> Statement:
        action = answer.action if answer.result is UNSET else _DONE
        return decide_approval(self.approval_id, action, comment=answer.comment, by=answer.by)


_DONE = "done"


def _check_no_result(answer: ApprovalDecision) -> None:
    if answer.result is not UNSET:
        raise ConfigInvalid("Only a call whose outcome is unknown can be given a result.", key="result")


def _check_no_args(answer: ApprovalDecision) -> None:
    if answer.args is not None:
        raise ConfigInvalid("Only a tool call that is approved can be given other arguments.", key="args")


def _check_one_call(answer: ApprovalDecision) -> None:
    if answer.is_for_kind:
        raise ConfigInvalid("Only the approval of a tool call can cover others of its kind.", key="is_for_kind")


def _check_no_artifact(answer: ApprovalDecision) -> None:
    if answer.artifact is not None:
        raise ConfigInvalid(
            "Only the result of a phase that one person approves can be edited with the answer.",
            key="artifact",
            hint="Where two people must approve, edit the file in the run's worktree; both then see what they approve.",
        )


def to_question(row: ApprovalRow, *, subject: Subject | None = None, needs_two: bool = False) -> ApprovalQuestion:
    """Return the question of a row; only one about an outcome has its `key` there.

    `subject` is what a phase's result is now, and `needs_two` that two people must approve it.
    """
    content = row.shown if isinstance(row.shown, dict) else {}
    facts: dict[str, Any] = {
        "approval_id": row.id,
        "run_id": row.run_id,
        "phase_key": row.phase_key,
        "attempt": row.attempt,
        "lane_id": f"{row.phase_key}/{row.attempt}",
        "digest": row.digest,
        "content": content,
        "deadline_at": row.deadline_at,
    }
    if row.about == OutcomeQuestion.about:
        return OutcomeQuestion(**facts, key=str(content["key"]))
    if row.about == ToolQuestion.about:
        return ToolQuestion(**facts)
    return PhaseQuestion(**facts, subject=subject, needs_two=needs_two, first_by=row.first_by)
