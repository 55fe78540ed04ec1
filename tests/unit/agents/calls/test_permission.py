"""Leave for a tool call: who is asked, and who is not."""

from typing import Any

import pytest

from holdfast.agents.calls.permission import ApprovalAnswer, ToolPermissions
from holdfast.agents.policy.judgement import Judgement, needs_approval
from holdfast.agents.tools.rules import ToolCall
from holdfast.enums import ApprovalDecisionAction
from holdfast.runtime.step import CancelRun

CALL = ToolCall("execute", {"command": "pip install x"})


class Person:
    """An approver with one answer; `keys` are the calls somebody was asked about before."""

    def __init__(self, action: str = "approve", *keys: str) -> None:
        self.action = ApprovalDecisionAction(action)
        self.keys = set(keys)
        self.questions: list[str] = []

    async def ask(self, key: str, _lane_id: str, _call: ToolCall, _judgement: Judgement) -> ApprovalAnswer:
        self.questions.append(key)
        return ApprovalAnswer(self.action, by="ann")

    def find_answer(self, _key: str) -> ApprovalAnswer | None:
        return None

    def has_question(self, key: str) -> bool:
        return key in self.keys


def judge(_name: str, _args: Any) -> Judgement:
    return needs_approval("network", "it wants the network")


async def test_a_person_is_asked_about_a_tool_that_is_there() -> None:
    person = Person()

    permit = await ToolPermissions(judge, person).get("k", "lane", CALL, is_new=True)

    assert (permit.refusal, person.questions) == (None, ["k"])


async def test_nobody_is_asked_about_a_tool_that_is_not_there() -> None:
    person = Person()
    permits = ToolPermissions(judge, person)

    new = await permits.get("k", "lane", CALL, is_new=True, is_known=False)
    replayed = await permits.get("k", "lane", CALL, is_new=False, is_known=False)

    assert person.questions == []
    assert new.facts == {
        "policy": {"verdict": "deny", "rule": "no such tool", "reason": "the agent has no tool of this name"},
        "denied": "the agent has no tool of this name",
    }
    assert (replayed.refusal, replayed.facts) == (None, {})  # what is recorded counts


async def test_a_question_that_an_earlier_version_asked_still_counts() -> None:
    person = Person("abort", "k")

    with pytest.raises(CancelRun):
        await ToolPermissions(judge, person).get("k", "lane", CALL, is_new=True, is_known=False)
