"""A call that a person is asked about, as they would read it: the command, its folder, the rule that asked.

Rule: an agent wrote the arguments. They are passed on as text; what has not the expected shape is left out.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.presentation.status import OpenApproval
from holdfast.runtime.run_fold.call_line import describe_line
from holdfast.runtime.run_fold.payload_text import first_line

_LINE_CHARS = 200


@dataclass(frozen=True)
class QuestionedCall:
    """`line` is the call in one line, a command with its `$`."""

    tool: str
    line: str
    folder: str
    rule: str
    """The name of the rule that asked; its reason is the question's."""
    kind: str
    """What one answer may cover for the whole run; empty for a call that stands alone."""
    grant: str
    """What such an answer causes."""
    can_edit: bool
    """Whether the arguments are shown whole, so that they can be sent back changed."""


def read_call(question: OpenApproval) -> QuestionedCall | None:
    """Read the call of a question; `None` if it is about a phase's result."""
    if question.about == "phase":
        return None
    details = question.details
    policy = details.get("policy")
    return QuestionedCall(
        tool=str(details.get("tool") or details.get("key") or ""),
        line=describe_line(details),
        folder=str(details.get("folder") or ""),
        rule=str(policy.get("rule") or "") if isinstance(policy, Mapping) else "",
        kind=str(details.get("kind_text") or "") if details.get("kind") else "",
        grant=describe_grant(details) if details.get("kind") else "",
        can_edit=question.about == "tool" and details.get("is_whole") is True,
    )


def describe_grant(details: Mapping[str, Any]) -> str:
    """Say what an answer for the whole run causes."""
    return f"Nobody is asked again in this run about {details.get('kind_text', '')}."


def summarize_question(question: OpenApproval) -> str:
    """Say in one line what is to be decided: the call, or the summary of what the phase handed in."""
    if question.about != "phase":
        return describe_line(question.details)
    try:
        value = json.loads(str(question.details.get("content") or ""))
    except (ValueError, RecursionError):
        return ""
    summary = value.get("summary") if isinstance(value, dict) else None
    return first_line(summary, _LINE_CHARS) if isinstance(summary, str) else ""
