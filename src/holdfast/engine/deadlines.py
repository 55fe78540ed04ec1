"""Deadlines of approvals: what nobody has answered in time is answered by the template's default, which is never yes.

Rule: a deadline is a time in the approval's row, fixed when the question was asked. Whoever looks first after it writes
the answer, through the same row that a person's answer goes through, so that exactly one of them counts.
"""

from datetime import UTC, datetime, timedelta

from holdfast.persistence.statements import to_time_text
from holdfast.workflow import Phase

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
