"""Leave for a tool call: the policy's word, and a person's where the policy wants one. It comes before the intent."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.agents.codec import encode_or_opaque
from holdfast.agents.judgements import Judgement, denied
from holdfast.agents.tool_rules import ToolCall
from holdfast.enums import ApprovalDecisionAction
from holdfast.persona import Verdict
from holdfast.runtime.durable import CancelRun

Allow = Callable[[str, Mapping[str, Any]], Judgement | str | None]
"""Judges a call by name and arguments. A text is the reason of a denial; `None` lets the call pass unmentioned."""


@dataclass(frozen=True)
class PersonsAnswer:
    """What a person said to one call."""

    action: ApprovalDecisionAction
    comment: str = ""
    by: str = ""
    approval_id: str = ""


class ToolApprover(Protocol):
    """Asks a person for one call, durably."""

    async def ask(self, key: str, lane_id: str, call: ToolCall, judgement: Judgement) -> PersonsAnswer:
        """The answer to the question of this key. Raises `Suspended` while there is none."""
        ...


@dataclass(frozen=True)
class Permit:
    """Whether a call may be made: not if there is a `refusal`. `told` goes into the journal with the call."""

    refusal: str | None = None
    told: Mapping[str, Any] = field(default_factory=dict)
    has_network: bool = False


def digest_of(call: ToolCall) -> str:
    """What an approval of a call is bound to: its name and its arguments."""
    told = json.dumps([call.name, encode_or_opaque(dict(call.args))], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()


class Permits:
    def __init__(self, allow: Allow | None, approver: ToolApprover | None) -> None:
        self._allow = allow
        self._approver = approver

    async def get(self, key: str, lane_id: str, call: ToolCall, *, is_new: bool) -> Permit:
        """Leave for a call. One that was begun before had it; then only what it may use is told again."""
        judgement = self._allow(call.name, call.args) if self._allow is not None else None
        if isinstance(judgement, str):
            judgement = denied("policy", judgement)
        if judgement is None:
            return Permit(has_network=self._allow is None)
        if not is_new:
            return Permit(has_network=judgement.needs_network)
        told = {"policy": judgement.to_dict()}
        if judgement.verdict is Verdict.ALLOW:
            return Permit(None, told, judgement.needs_network)
        if judgement.verdict is Verdict.DENY:
            return _refused(judgement.reason, told)
        if self._approver is None:
            return _refused(f"{judgement.reason}; only a person could allow it, and nobody can be asked here", told)
        answer = await self._approver.ask(key, lane_id, call, judgement)
        return _by_answer(answer, judgement, told)


def _by_answer(answer: PersonsAnswer, judgement: Judgement, told: dict[str, Any]) -> Permit:
    said = {"action": answer.action.value, "by": answer.by, "approval_id": answer.approval_id}
    told = {"policy": {**told["policy"], "answer": said}}
    who = answer.by or "A person"
    if answer.action is ApprovalDecisionAction.APPROVE:
        return Permit(None, told, judgement.needs_network)
    if answer.action is ApprovalDecisionAction.ABORT:
        raise CancelRun(answer.comment, answer.by)
    if answer.action is ApprovalDecisionAction.REQUEST_CHANGES:
        return _refused(f"{who} wants it done otherwise: {answer.comment or 'no comment'}", told)
    return _refused(f"{who} said no: {answer.comment or judgement.reason}", told)


def _refused(reason: str, told: Mapping[str, Any]) -> Permit:
    return Permit(reason, {**told, "denied": reason})
