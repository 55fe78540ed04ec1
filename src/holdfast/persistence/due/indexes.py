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
"""The condition of each."""
_BY_TIME = ("runs_later", "runs_timed")


def due_conditions(*, is_sqlite: bool) -> dict[str, str]:
    """Return the condition of each index in the words that a query must say too.

    SQLite keeps to the index of all states where a plain `state` is compared: it takes few of them for many.
    """
    state = "+state" if is_sqlite else "state"
    return {name: condition.replace("state", state) for name, condition in DUE_INDEXES.items()}


def run_indexes() -> Iterator[Index]:
    """Make the indexes of the table of runs."""
    on_sqlite = due_conditions(is_sqlite=True)
    for name, condition in DUE_INDEXES.items():
        column = "due_at" if name in _BY_TIME else "created_at"
        yield Index(name, column, sqlite_where=text(on_sqlite[name]), postgresql_where=text(condition))


def approval_indexes() -> Iterator[Index]:
    """Make the index of the table of approvals."""
    is_open = text("deadline_at IS NOT NULL AND state = 'pending'")
    yield Index("approvals_overdue", "deadline_at", sqlite_where=is_open, postgresql_where=is_open)
