"""The indexes by which due runs are found: what waits or is over is in none of them, or lies behind its time."""

from collections.abc import Iterator

from sqlalchemy import Index, text

DUE_INDEXES = {
    "runs_open": "due_at IS NULL AND state IN ('pending', 'running')",
    "runs_later": "due_at IS NOT NULL AND state IN ('pending', 'running')",
    "runs_requested": "wake IS NOT NULL AND state IN ('paused', 'failed')",
    "runs_answered": "open_questions = 0 AND state = 'paused' AND pause_reason = 'approval'",
    "runs_timed": "due_at IS NOT NULL AND state = 'paused' AND pause_reason = 'budget'",
    "runs_admitted": "admitted_epoch > 0",
    "runs_scheduled": "schedule IS NOT NULL AND state IN ('pending', 'running', 'paused')",
}
"""The condition of each; a query says it in the same words."""
_BY_TIME = ("runs_later", "runs_timed")


def run_indexes() -> Iterator[Index]:
    """Make the indexes of the table of runs."""
    for name, condition in DUE_INDEXES.items():
        yield _make(name, "due_at" if name in _BY_TIME else "created_at", condition)


def approval_indexes() -> Iterator[Index]:
    """Make the index of the table of approvals."""
    yield _make("approvals_overdue", "deadline_at", "deadline_at IS NOT NULL AND state = 'pending'")


def _make(name: str, column: str, condition: str) -> Index:
    return Index(name, column, sqlite_where=text(condition), postgresql_where=text(condition))
