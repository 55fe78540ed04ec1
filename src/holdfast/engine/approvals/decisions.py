"""A person's answers to a run that waits, from any process: decisions on approvals, and more money."""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from holdfast.enums import ApprovalDecisionAction
from holdfast.errors import (
    ApprovalAnswered,
    ApprovalNotFound,
    ApprovalStale,
    ConfigInvalid,
    HoldfastError,
    RowRefused,
    SecondPersonNeeded,
)
from holdfast.persistence.db import Database
from holdfast.persistence.models import ApprovalRow
from holdfast.persistence.runs import find_approval, list_overdue
from holdfast.persistence.statements import now_text, raise_budget, to_time_text, update
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.events import Event, EventKind, create_event
from holdfast.runtime.journal import Journal
from holdfast.runtime.records import Records
from holdfast.workflow import Phase

UNSET: Any = object()
_log = logging.getLogger(__name__)
ACTIONS = tuple(action.value for action in ApprovalDecisionAction)


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


async def write_decision(
    db: Database,
    journal: Journal,
    row: ApprovalRow,
    action: str,
    *,
    subject: Subject | None,
    digest: str | None,
    comment: str,
    by: str,
    result: Any = UNSET,
    args: Mapping[str, Any] | None = None,
    needs_two: bool = False,
) -> None:
    """Answer an open approval; the first of two people who are needed leaves it open.

    Raises `ApprovalStale`, `ApprovalNotFound` if someone was faster, `SecondPersonNeeded`.
    """
    is_outcome = row.about == "outcome"
    needs_two = needs_two and row.about == "phase"
    if not is_outcome:
        check_fresh(row, digest, subject if row.about == "phase" else None)
    elif result is not UNSET:
        action = "done"
    if result is not UNSET and not is_outcome:
        raise ConfigInvalid("Only a call whose outcome is unknown can be given a result.", key="result")
    key = row.shown["key"] if is_outcome else _key_of(Records(await journal.read(row.run_id)), row.id)
    if args is not None and (row.about != "tool" or action != "approve"):
        raise ConfigInvalid("Only a tool call that is approved can be given other arguments.", key="args")
    told: dict[str, Any] = {"result": result} if action == "done" else {}
    if args is not None:
        told["args"] = dict(args)
    lane = f"{row.phase_key}/{row.attempt}"
    if needs_two and action == "approve":
        check_other_person(row, by)
    if needs_two and action == "approve" and not row.first_by:
        event, rows = first_approval(row, lane, comment=comment, by=by)
    else:
        event, rows = decision(row.run_id, row.id, key, lane, action, comment=comment, by=by, **told)
    try:
        await journal.append(row.run_id, [event], rows=rows)
    except RowRefused:
        check_open(await find_approval(db, row.id), row.run_id, row.id)
        raise


async def decide_overdue(db: Database, journal: Journal, *, run_id: str | None = None) -> list[str]:
    """Answer what nobody has answered until its deadline, of every run or of one; the ids of the runs concerned.

    Called by whoever looks after runs, in any process and at any time: of several answers the first counts. The answer
    is only written down; who drives the run acts on it.
    """
    answered: list[str] = []
    for row in await list_overdue(db, now_text(), run_id=run_id):
        action = row.shown.get("on_deadline", "reject") if isinstance(row.shown, dict) else "reject"
        lane, comment = f"{row.phase_key}/{row.attempt}", to_comment(row.deadline_at)
        try:
            key = _key_of(Records(await journal.read(row.run_id)), row.id)
            event, rows = decision(row.run_id, row.id, key, lane, action, comment=comment, by=BY)
            # crash: before it the question is still open and overdue; after it the run is due, its question answered.
            await journal.append(row.run_id, [event], rows=rows)
            answered.append(row.run_id)
        except RowRefused:
            continue  # someone was faster
        except HoldfastError as error:
            # One journal that cannot be read must not keep the other runs waiting.
            _log.warning("an overdue approval could not be answered", extra={"run_id": row.run_id, "code": error.code})
    return answered


def _key_of(records: Records, approval_id: str) -> str:
    for record in records.by_key.values():
        if record.type == "approval" and record.result == approval_id:
            return record.key
    raise ApprovalNotFound(f"Approval {approval_id} is not in the journal of its run.")


async def write_top_up(
    journal: Journal, run_id: str, amount_usd: float | Decimal, *, by: str, beside: Sequence[Statement] = ()
) -> None:
    """Raise the run's limit, and the phase's if that is what the run waits for."""
    amount = round(Decimal(str(amount_usd)) * 1_000_000)
    if amount <= 0:
        raise ConfigInvalid("A top-up is more than 0 dollars.", key="amount_usd")
    payload: dict[str, Any] = {"amount_micros": amount, "by": by}
    exhausted = [e for e in await journal.read(run_id) if e.kind == EventKind.BUDGET_EXHAUSTED]
    if exhausted and exhausted[-1].payload.get("limit") == "phase":
        payload["phase"] = exhausted[-1].payload.get("phase")
    event = create_event(run_id, EventKind.BUDGET_RAISED, **payload)
    await journal.append(run_id, [event], rows=[raise_budget(run_id, amount), *beside])


BY = "deadline"


def find_deadline(phase: Phase, *, now: datetime) -> str | None:
    """Return until when an approval of this phase that is requested now waits, as rows hold it; `None` is for ever."""
    if phase.approval_deadline_s is None:
        return None
    return to_time_text(now + timedelta(seconds=phase.approval_deadline_s))


def seconds_left(deadline_at: str | None, *, now: datetime) -> float | None:
    """Return how long an approval may still wait; `None` is for ever. With a clock put back it waits longer."""
    if deadline_at is None:
        return None
    return max(0.0, (datetime.fromisoformat(deadline_at).astimezone(UTC) - now).total_seconds())


def is_over(deadline_at: str | None, *, now: datetime) -> bool:
    return seconds_left(deadline_at, now=now) == 0.0


def to_comment(deadline_at: str | None) -> str:
    return f"Nobody answered until {deadline_at}."


def check_action(action: ApprovalDecisionAction | str) -> ApprovalDecisionAction:
    if str(action) not in ACTIONS:
        raise ConfigInvalid(f"{str(action)!r} is no answer to an approval.", hint=f"Use one of {', '.join(ACTIONS)}.")
    return ApprovalDecisionAction(str(action))


def decision(
    run_id: str,
    approval_id: str,
    key: str,
    lane_id: str,
    action: str,
    *,
    comment: str = "",
    by: str = "",
    **told: Any,
) -> tuple[Event, list[Statement]]:
    """An answer as event and row; the row refuses it if another answer was faster."""
    event = create_event(
        run_id,
        EventKind.HUMAN_APPROVAL_RECEIVED,
        lane_id,
        key=key,
        approval_id=approval_id,
        action=str(action),
        comment=comment,
        by=by,
        **told,
    )
    values = {"state": "decided", "action": str(action), "comment": comment, "decided_by": by, "decided_at": now_text()}
    return event, [update("approvals", values, {"id": approval_id, "state": "pending"})]


def first_approval(row: ApprovalRow, lane_id: str, *, comment: str, by: str) -> tuple[Event, list[Statement]]:
    """The approval of the first of two people; the question stays open."""
    event = create_event(
        row.run_id, EventKind.HUMAN_APPROVAL_FIRST, lane_id, approval_id=row.id, comment=comment, by=by
    )
    return event, [update("approvals", {"first_by": by}, {"id": row.id, "state": "pending", "first_by": ""})]


def check_other_person(row: ApprovalRow, by: str) -> None:
    """Raise `SecondPersonNeeded` if this person has approved already, or nobody knows who it is."""
    if not by or row.first_by == by:
        raise SecondPersonNeeded(f"Approval {row.id} is of risk critical and needs two different people.")


def check_open(row: ApprovalRow | None, run_id: str, approval_id: str) -> ApprovalRow:
    """Raise `ApprovalNotFound` unless the approval is this run's and nobody has answered it, `ApprovalStale` if it was
    asked anew."""
    if row is None or row.run_id != run_id:
        raise ApprovalNotFound(
            f"Run {run_id} has no approval {approval_id}.", hint="List the approvals to see what waits."
        )
    if row.state == "superseded":
        raise ApprovalStale(
            f"What approval {approval_id} was about has changed, and it was asked anew.",
            hint="List the approvals and answer the new one.",
        )
    if row.state != "pending":
        by = row.decided_by or "someone"
        raise ApprovalAnswered(
            f"Approval {approval_id} was answered with {row.action!r} by {by} at {row.decided_at}.",
            hint="Nothing is left to decide here.",
        )
    return row


def check_fresh(row: ApprovalRow, digest: str | None, now: Subject | None) -> None:
    """Raise `ApprovalStale` if the person saw something else than was asked, or than lies there now."""
    if digest is not None and digest != row.digest:
        raise ApprovalStale(
            f"Approval {row.id} has digest {row.digest[:12]}…, not the one that was seen ({digest[:12]}…).",
            hint="Look at it again, then decide.",
        )
    if now is not None and now.digest != row.digest:
        content = row.shown if isinstance(row.shown, dict) else {}
        changed = now.differences(content.get("subject", {}))
        raise ApprovalStale(
            f"Since approval {row.id} was asked, {' and '.join(changed) or 'something'} changed.",
            hint="Resume the run: it asks again and shows what is there now.",
            changed=changed,
        )
