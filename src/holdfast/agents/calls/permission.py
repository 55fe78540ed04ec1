"""Leave for a tool call: the policy's word, and a person's where the policy wants one. It comes before the intent."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from holdfast.agents.calls.codec import encode_or_opaque
from holdfast.agents.policy.judgement import Judgement, denied
from holdfast.agents.redaction import SECRETS
from holdfast.agents.tools.rules import ToolCall
from holdfast.enums import ApprovalDecisionAction
from holdfast.persona import Verdict
from holdfast.runtime.step import CancelRun

Allow = Callable[[str, Mapping[str, Any]], Judgement | str | None]
"""Judges a call by name and arguments. A text is the reason of a denial; `None` lets the call pass unmentioned."""


@dataclass(frozen=True)
class ApprovalAnswer:
    """What a person said to one call."""

    action: ApprovalDecisionAction
    comment: str = ""
    by: str = ""
    approval_id: str = ""
    args: Mapping[str, Any] | None = None
    """Other arguments than were asked for: the call is approved with these."""


class ToolApprover(Protocol):
    """Asks a person for one call, durably."""

    async def ask(self, key: str, lane_id: str, call: ToolCall, judgement: Judgement) -> ApprovalAnswer:
        """The answer to the question of this key. Raises `Suspended` while there is none."""
        ...

    def find_answer(self, key: str) -> ApprovalAnswer | None:
        """The answer that was given to the call of this key, if someone was asked."""
        ...

    def was_asked(self, key: str) -> bool:
        """Whether someone was asked about the call of this key, answered or not."""
        ...


@dataclass(frozen=True)
class Permit:
    """Whether a call may be made: not if there is a `refusal`. `told` goes into the journal with the call."""

    refusal: str | None = None
    told: Mapping[str, Any] = field(default_factory=dict)
    has_network: bool = False
    args: Mapping[str, Any] | None = None
    """What a person has put in the place of the arguments."""


def digest_of(call: ToolCall) -> str:
    """What an approval of a call is bound to: its name and its arguments."""
    told = json.dumps([call.name, encode_or_opaque(dict(call.args))], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()


_NO_SUCH_TOOL = denied("no such tool", "the agent has no tool of this name")


class Permits:
    def __init__(self, allow: Allow | None, approver: ToolApprover | None) -> None:
        self._allow = allow
        self._approver = approver

    async def get(self, key: str, lane_id: str, call: ToolCall, *, is_new: bool, is_known: bool = True) -> Permit:
        """Leave for a call. One that was begun before had it, whatever would be said of it now.

        Nobody is asked about a tool that the agent does not have: its framework says so to the agent, and nothing
        happens. What someone was asked about by an earlier version is theirs to answer, or to end the run by it.
        """
        if not is_known and (self._approver is None or not self._approver.was_asked(key)):
            return Permit(None, {"policy": _NO_SUCH_TOOL.to_dict(), "denied": _NO_SUCH_TOOL.reason} if is_new else {})
        judgement = self._allow(call.name, call.args) if self._allow is not None else None
        if isinstance(judgement, str):
            judgement = denied("policy", judgement)
        if judgement is None:
            return Permit(has_network=self._allow is None)
        told = {"policy": judgement.to_dict()}
        if judgement.verdict is Verdict.ALLOW:
            return Permit(None, told, judgement.needs_network)
        if not is_new:
            given = self._approver.find_answer(key) if self._approver is not None else None
            return Permit(has_network=judgement.needs_network, args=given.args if given is not None else None)
        if judgement.verdict is Verdict.DENY:
            return _refused(judgement.reason, told)
        if self._approver is None:
            return _refused(f"{judgement.reason}; only a person could allow it, and nobody can be asked here", told)
        answer = await self._approver.ask(key, lane_id, call, judgement)
        permit = _by_answer(answer, judgement, told)
        return permit if permit.refusal is not None or permit.args is None else self._check_changed(call, permit)

    def _check_changed(self, call: ToolCall, permit: Permit) -> Permit:
        """A person may allow what is asked about, with whatever arguments, but not what is denied to everyone."""
        judgement = self._allow(call.name, permit.args or {}) if self._allow is not None else None
        if isinstance(judgement, str):
            judgement = denied("policy", judgement)
        if judgement is None or judgement.verdict is not Verdict.DENY:
            return replace(
                permit, has_network=permit.has_network or (judgement is not None and judgement.needs_network)
            )
        return _refused(f"with the arguments that were put in their place: {judgement.reason}", permit.told)


def _by_answer(answer: ApprovalAnswer, judgement: Judgement, told: dict[str, Any]) -> Permit:
    said: dict[str, Any] = {"action": answer.action.value, "by": answer.by, "approval_id": answer.approval_id}
    if answer.args is not None:
        said["args"] = SECRETS.scrub(encode_or_opaque(dict(answer.args)))
    told = {"policy": {**told["policy"], "answer": said}}
    who = answer.by or "A person"
    if answer.action is ApprovalDecisionAction.APPROVE:
        return Permit(None, told, judgement.needs_network, answer.args)
    if answer.action is ApprovalDecisionAction.ABORT:
        raise CancelRun(answer.comment, answer.by)
    if answer.action is ApprovalDecisionAction.REQUEST_CHANGES:
        return _refused(f"{who} wants it done otherwise: {answer.comment or 'no comment'}", told)
    return _refused(f"{who} said no: {answer.comment or judgement.reason}", told)


def _refused(reason: str, told: Mapping[str, Any]) -> Permit:
    return Permit(reason, {**told, "denied": reason})
