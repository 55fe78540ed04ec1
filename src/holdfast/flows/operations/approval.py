"""A question to a person: asked once, answered by `decide`, or by nobody within its time limit."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from holdfast.enums import ApprovalDecisionAction
from holdfast.errors import ApprovalRejected, EventTimeout, SequenceConflict
from holdfast.flows.lane import LaneCursor
from holdfast.runtime.clock import now
from holdfast.runtime.events import EventKind
from holdfast.runtime.jsondata import to_json
from holdfast.runtime.records import Record, fingerprint_of
from holdfast.runtime.run_log import RunLog
from holdfast.runtime.step import CancelRun, Suspended

_TIMED_OUT = "timeout"  # what is recorded as the answer when nobody gave one in time


class Decision(str):
    """What a person answered: a string (`"approve"`) that also knows the comment and who gave it."""

    __slots__ = ("by", "comment")

    comment: str
    by: str

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> "Decision":
        decision = cls(payload.get("action", ""))
        decision.comment = payload.get("comment", "")
        decision.by = payload.get("by", "")
        return decision


async def ask(log: RunLog, lane: LaneCursor, key: str, show: Any, timeout_s: float | None) -> Decision:
    """Return the answer that approves. Raises `Suspended` while there is none."""
    content = to_json(show, f"what approval {key!r} shows")[1]
    fingerprint = fingerprint_of(show=content)
    record = log.find("approval", key, fingerprint)
    if record is None:
        limit = {} if timeout_s is None else {"wake_at": now() + timeout_s, "seconds": timeout_s}
        await log.append(
            log.event(
                EventKind.HUMAN_APPROVAL_REQUESTED,
                lane.lane_id,
                key=key,
                show=content,
                fingerprint=fingerprint,
                **limit,
            )
        )
        raise Suspended(key)
    if record.answer is None and record.wake_at and now() >= record.wake_at:
        await _expire(log, lane, record)
    if record.answer is None:
        raise Suspended(key)
    return _check(log, key, record.answer)


async def _expire(log: RunLog, lane: LaneCursor, record: Record) -> None:
    """Record that nobody has answered in time, unless somebody does so now: the first answer counts."""
    answer = {"key": record.key, "action": _TIMED_OUT, "comment": "", "by": ""}
    while True:
        await log.flush_deferred()  # notes would take the number
        await log.catch_up()
        if record.answer is not None:
            return
        event = log.event(EventKind.HUMAN_APPROVAL_RECEIVED, lane.lane_id, **answer)
        try:
            # With its number: an answer that comes in between is not passed over.
            await log.append(replace(event, seq=log.head + 1))
        except SequenceConflict:
            continue
        # crash: before this the question is open, and whoever goes on finds it as late as it was.
        record.answer = answer
        return


def _check(log: RunLog, key: str, answer: Mapping[str, Any]) -> Decision:
    decision = Decision.from_payload(answer)
    if decision == ApprovalDecisionAction.APPROVE.value:
        return decision
    if decision == ApprovalDecisionAction.ABORT.value:
        raise CancelRun(decision.comment, decision.by)
    if decision == _TIMED_OUT:
        raise EventTimeout(
            f"Nobody answered approval {key!r} of run {log.run_id!r} in time.",
            hint="Ask again, or give it more time.",
            run_id=log.run_id,
            name=key,
        )
    raise ApprovalRejected(
        f"Approval {key!r} was answered with {str(decision)!r}: {decision.comment or 'no comment'}.",
        action=str(decision),
        comment=decision.comment,
    )
