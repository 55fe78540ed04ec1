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
        """Return a person's answer about the call of this key. Raises `Suspended` while there is none."""
        ...

    def find_answer(self, key: str) -> ApprovalAnswer | None:
        """Find the recorded answer about the call of this key, if there is one."""
        ...

    def has_question(self, key: str) -> bool:
        """Tell whether a person was asked about the call of this key, answered or not."""
        ...


@dataclass(frozen=True)
class ToolPermission:
    """Whether a call may be made: not if there is a `refusal`. `facts` go into the journal with the call."""

    refusal: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    has_network: bool = False
    args: Mapping[str, Any] | None = None
    """What a person has put in the place of the arguments."""


def digest_of(call: ToolCall) -> str:
    """Hash what an approval of a call is bound to: its name and its arguments."""
    essence = json.dumps([call.name, encode_or_opaque(dict(call.args))], sort_keys=True)
    return hashlib.sha256(essence.encode()).hexdigest()


_NO_SUCH_TOOL = denied("no such tool", "the agent has no tool of this name")


class ToolPermissions:
    def __init__(self, allow: Allow | None, approver: ToolApprover | None) -> None:
        self._allow = allow
        self._approver = approver

    async def get(
        self, key: str, lane_id: str, call: ToolCall, *, is_new: bool, is_known: bool = True
    ) -> ToolPermission:
        """Return the permission for a call. One that was begun before had it, whatever would be said of it now.

        Nobody is asked about a tool that the agent does not have: its framework says so to the agent, and nothing
        happens. What someone was asked about is theirs to answer, or to end the run by it, also where the policy has
        become another since: by another version, or because a person chose to go without a sandbox.
        """
        if not is_known and (self._approver is None or not self._approver.has_question(key)):
            return ToolPermission(
                None, {"policy": _NO_SUCH_TOOL.to_dict(), "denied": _NO_SUCH_TOOL.reason} if is_new else {}
            )
        judgement = self._allow(call.name, call.args) if self._allow is not None else None
        if isinstance(judgement, str):
            judgement = denied("policy", judgement)
        if judgement is None:
            return ToolPermission(has_network=self._allow is None)
        facts = {"policy": judgement.to_dict()}
        has_question = is_new and self._approver is not None and self._approver.has_question(key)
        if judgement.verdict is Verdict.ALLOW and not has_question:
            return ToolPermission(None, facts, judgement.needs_network)
        if not is_new:
            recorded = self._approver.find_answer(key) if self._approver is not None else None
            return ToolPermission(
                has_network=judgement.needs_network, args=recorded.args if recorded is not None else None
            )
        if judgement.verdict is Verdict.DENY:
            return _refused(judgement.reason, facts)
        if self._approver is None:
            return _refused(f"{judgement.reason}; only a person could allow it, and nobody can be asked here", facts)
        answer = await self._approver.ask(key, lane_id, call, judgement)
        permit = _by_answer(answer, judgement, facts)
        return permit if permit.refusal is not None or permit.args is None else self._check_changed(call, permit)

    def _check_changed(self, call: ToolCall, permit: ToolPermission) -> ToolPermission:
        """Judge the arguments that a person put in place of the agent's: nobody can allow what the policy denies."""
        judgement = self._allow(call.name, permit.args or {}) if self._allow is not None else None
        if isinstance(judgement, str):
            judgement = denied("policy", judgement)
        if judgement is None or judgement.verdict is not Verdict.DENY:
            return replace(
                permit, has_network=permit.has_network or (judgement is not None and judgement.needs_network)
            )
        return _refused(f"with the arguments that were put in their place: {judgement.reason}", permit.facts)


def _by_answer(answer: ApprovalAnswer, judgement: Judgement, facts: dict[str, Any]) -> ToolPermission:
    answer_facts: dict[str, Any] = {"action": answer.action.value, "by": answer.by, "approval_id": answer.approval_id}
    if answer.args is not None:
        answer_facts["args"] = SECRETS.scrub(encode_or_opaque(dict(answer.args)))
    facts = {"policy": {**facts["policy"], "answer": answer_facts}}
    who = answer.by or "A person"
    if answer.action is ApprovalDecisionAction.APPROVE:
        return ToolPermission(None, facts, judgement.needs_network, answer.args)
    if answer.action is ApprovalDecisionAction.ABORT:
        raise CancelRun(answer.comment, answer.by)
    if answer.action is ApprovalDecisionAction.REQUEST_CHANGES:
        return _refused(f"{who} wants it done otherwise: {answer.comment or 'no comment'}", facts)
    return _refused(f"{who} said no: {answer.comment or judgement.reason}", facts)


def _refused(reason: str, facts: Mapping[str, Any]) -> ToolPermission:
    return ToolPermission(reason, {**facts, "denied": reason})
