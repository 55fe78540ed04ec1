"""A person's answers to a run that waits, from any process: decisions on approvals, and more money."""

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from holdfast.engine.approvals.questions import ApprovalDecision, ApprovalQuestion, OutcomeQuestion, to_question
from holdfast.enums import ApprovalDecisionAction
from holdfast.errors import (
    ApprovalAnswered,
    ApprovalNotFound,
    ApprovalStale,
    ConfigInvalid,
    HoldfastError,
    RowRefused,
)
from holdfast.persistence.db import Database
from holdfast.persistence.models import ApprovalRow
from holdfast.persistence.runs import find_approval, list_overdue
from holdfast.persistence.statements import now_text, raise_budget, set_wake, to_time_text
from holdfast.runtime.events import EventKind, create_event
from holdfast.runtime.journal import Journal
from holdfast.runtime.records import Records
from holdfast.runtime.step import SameCommit
from holdfast.workflow import Phase

_log = logging.getLogger(__name__)
ACTIONS = tuple(action.value for action in ApprovalDecisionAction)


async def write_decision(
    db: Database,
    journal: Journal,
    question: ApprovalQuestion,
    answer: ApprovalDecision,
    *,
    also: SameCommit = SameCommit(),  # noqa: B008 - frozen
) -> None:
    """Answer an open approval, and write what lets its run go on; the first of two people who are needed leaves it
    open, and the run waits.

    Raises `ApprovalStale`, `ApprovalNotFound` if someone was faster, `SecondPersonNeeded`.
    """
    question.check(answer)
    try:
        await _append_answer(journal, question, answer, SameCommit() if question.leaves_open(answer) else also)
    except RowRefused:
        row = await find_approval(db, question.approval_id)
        check_open(row, question.run_id, question.approval_id)
        raise


async def _append_answer(
    journal: Journal,
    question: ApprovalQuestion,
    answer: ApprovalDecision,
    also: SameCommit = SameCommit(),  # noqa: B008 - frozen
) -> None:
    if not question.key:
        key = _find_key(Records(await journal.read(question.run_id)), question.approval_id)
        question = replace(question, key=key)
    # The rows of a run say by themselves that its approvals are all answered; of a call's outcome they do not.
    wake = [set_wake(question.run_id)] if isinstance(question, OutcomeQuestion) else []
    rows = [question.to_answer_row(answer), *wake, *also.rows]
    await journal.append(question.run_id, [question.to_event(answer), *also.events], rows=rows)


async def decide_overdue(
    db: Database,
    journal: Journal,
    *,
    run_id: str | None = None,
    now: str | None = None,
    undecided: set[str] | None = None,
) -> list[str]:
    """Answer what nobody has answered until its deadline, of every run or of one; the ids of the runs concerned.

    Called by whoever looks after runs, in any process and at any time: of several answers the first counts. The answer
    is only written down; who drives the run acts on it. `now` is the time by another clock than this machine's,
    `undecided` the approvals of which the log says already that they cannot be answered; others are added.
    """
    answered: list[str] = []
    for row in await list_overdue(db, now or now_text(), run_id=run_id):
        question = to_question(row)
        try:
            action = check_action(question.content.get("on_deadline", "reject"))
            answer = ApprovalDecision(action, to_comment(row.deadline_at), BY)
            # crash: before it the question is still open and overdue; after it the run is due, its question answered.
            await _append_answer(journal, question, answer)
            answered.append(row.run_id)
        except RowRefused:
            continue  # someone was faster
        except HoldfastError as error:
            # One journal that cannot be read must not keep the other runs waiting.
            if undecided is None or row.id not in undecided:
                facts = {"run_id": row.run_id, "code": error.code}
                _log.warning("an overdue approval could not be answered", extra=facts)
            if undecided is not None:
                undecided.add(row.id)
    return answered


def _find_key(records: Records, approval_id: str) -> str:
    for record in records.by_key.values():
        if record.type == "approval" and record.result == approval_id:
            return record.key
    raise ApprovalNotFound(f"Approval {approval_id} is not in the journal of its run.")


async def write_top_up(
    journal: Journal,
    run_id: str,
    amount_usd: float | Decimal,
    *,
    by: str,
    also: SameCommit = SameCommit(),  # noqa: B008 - frozen
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
    await journal.append(run_id, [event, *also.events], rows=[raise_budget(run_id, amount), *also.rows])


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
