"""Writes of the table `approvals`: the questions to people, and their answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.persistence.statements.table import insert, now_text, update
from holdfast.runtime.checkpoint.base import Statement


@dataclass(frozen=True)
class NewApprovalRow:
    """A question to a person as it is inserted: pending. `content` is what they get to see."""

    id: str
    run_id: str
    phase_key: str
    attempt: int
    about: str
    content: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""
    deadline_at: str | None = None


def ask_approval(approval: NewApprovalRow) -> Statement:
    """Insert a question that waits for a person."""
    values = {**vars(approval), "state": "pending", "requested_at": now_text()}
    values["shown"] = dict(values.pop("content"))
    return insert("approvals", values)


def decide_approval(approval_id: str, action: str, *, comment: str, by: str) -> Statement:
    """Answer an open question; refused if another answer was faster."""
    values = {"state": "decided", "action": action, "comment": comment, "decided_by": by, "decided_at": now_text()}
    return _set_open_approval(approval_id, values)


def approve_first(approval_id: str, by: str) -> Statement:
    """Note the first of two people who approve; refused if someone was faster. The question stays open."""
    return update("approvals", {"first_by": by}, {"id": approval_id, "state": "pending", "first_by": ""})


def supersede_approval(approval_id: str, *, must_be_open: bool) -> Statement:
    """Take back a question; with `must_be_open` it is refused if somebody has just answered it."""
    values = {"state": "superseded", "decided_at": now_text()}
    return _set_open_approval(approval_id, values, expect=1 if must_be_open else None)


def _set_open_approval(approval_id: str, values: Mapping[str, Any], *, expect: int | None = 1) -> Statement:
    return update("approvals", values, {"id": approval_id, "state": "pending"}, expect=expect)
