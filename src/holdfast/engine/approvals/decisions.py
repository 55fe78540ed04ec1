"""A person's answers to a run that waits, from any process: decisions on approvals, and more money."""

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from holdfast.engine.approvals import decisions
from holdfast.engine.approvals.phase import (
    Subject,
    check_action,
    check_fresh,
    check_open,
    check_other_person,
    decision,
    first_approval,
)
from holdfast.errors import ApprovalNotFound, ConfigInvalid, HoldfastError, RowRefused
from holdfast.persistence.db import Database
from holdfast.persistence.models import ApprovalRow
from holdfast.persistence.runs import find_approval, list_overdue
from holdfast.persistence.statements import now_text, to_time_text
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.events import EventKind, create_event
from holdfast.runtime.journal import Journal
from holdfast.runtime.records import Records
from holdfast.workflow import Phase

NOT_GIVEN: Any = object()
_log = logging.getLogger(__name__)


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
    result: Any = NOT_GIVEN,
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
    elif result is not NOT_GIVEN:
        action = "done"
    if result is not NOT_GIVEN and not is_outcome:
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
        lane, comment = f"{row.phase_key}/{row.attempt}", decisions.to_comment(row.deadline_at)
        try:
            key = _key_of(Records(await journal.read(row.run_id)), row.id)
            event, rows = decision(row.run_id, row.id, key, lane, action, comment=comment, by=decisions.BY)
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
    told: dict[str, Any] = {"amount_micros": amount, "by": by}
    exhausted = [e for e in await journal.read(run_id) if e.kind == EventKind.BUDGET_EXHAUSTED]
    if exhausted and exhausted[-1].payload.get("limit") == "phase":
        told["phase"] = exhausted[-1].payload.get("phase")
    raised = Statement(
        "UPDATE runs SET budget_micros = budget_micros + :amount WHERE id = :id AND budget_micros IS NOT NULL",
        {"amount": amount, "id": run_id},
        expect=None,
    )
    await journal.append(run_id, [create_event(run_id, EventKind.BUDGET_RAISED, **told)], rows=[raised, *beside])


__all__ = ["NOT_GIVEN", "check_action", "check_open", "decide_overdue", "write_decision", "write_top_up"]


BY = "deadline"


def find_deadline(phase: Phase, *, now: datetime) -> str | None:
    """Until when an approval of this phase that is asked now waits, as rows hold it; `None` is for ever."""
    if phase.approval_deadline_s is None:
        return None
    return to_time_text(now + timedelta(seconds=phase.approval_deadline_s))


def seconds_left(deadline_at: str | None, *, now: datetime) -> float | None:
    """How long an approval may still wait; `None` is for ever. A clock that was put back makes it wait longer."""
    if deadline_at is None:
        return None
    return max(0.0, (datetime.fromisoformat(deadline_at).astimezone(UTC) - now).total_seconds())


def is_over(deadline_at: str | None, *, now: datetime) -> bool:
    return seconds_left(deadline_at, now=now) == 0.0


def to_comment(deadline_at: str | None) -> str:
    return f"Nobody answered until {deadline_at}."
