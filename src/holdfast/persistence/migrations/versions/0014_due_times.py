"""What is due by a time has indexes of the times; and whatever of the queue is lost, no append fails for it."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_TIMED = "due_at IS NOT NULL AND state = 'paused' AND pause_reason = 'budget'"
_NEW = {
    "runs_open": ("runs", "created_at", "due_at IS NULL AND state IN ('pending', 'running')"),
    "runs_later": ("runs", "due_at", "due_at IS NOT NULL AND state IN ('pending', 'running')"),
    "approvals_overdue": ("approvals", "deadline_at", "deadline_at IS NOT NULL AND state = 'pending'"),
}
_OLDER = {
    "runs_requested": "wake IS NOT NULL AND state IN ('paused', 'failed')",
    "runs_answered": "open_questions = 0 AND state = 'paused' AND pause_reason = 'approval'",
    "runs_scheduled": "schedule IS NOT NULL AND state IN ('pending', 'running', 'paused')",
}
_ENQUEUE = """
CREATE OR REPLACE FUNCTION holdfast_enqueue(run_id text, queue text, priority bigint) RETURNS void LANGUAGE plpgsql
AS $$ BEGIN
    INSERT INTO procrastinate_jobs (queue_name, task_name, priority, queueing_lock, args)
    VALUES (queue, 'drive', priority::integer, run_id, jsonb_build_object('run_id', run_id))
    ON CONFLICT DO NOTHING;
EXCEPTION WHEN {errors} THEN
    NULL;
END $$
"""


def _create(name: str, table: str, column: str, condition: str) -> None:
    """Make an index that SQLite uses too: where a plain `state` is compared it keeps to the index of all states."""
    on_sqlite = condition.replace("state", "+state") if table == "runs" else condition
    op.create_index(name, table, [column], sqlite_where=sa.text(on_sqlite), postgresql_where=sa.text(condition))


def _create_as_before(name: str, condition: str) -> None:
    op.create_index(name, "runs", ["created_at"], sqlite_where=sa.text(condition), postgresql_where=sa.text(condition))


def upgrade() -> None:
    op.drop_index("runs_timed", "runs")
    _create("runs_timed", "runs", "due_at", _TIMED)
    for name, index in _NEW.items():
        _create(name, *index)
    if op.get_bind().dialect.name == "postgresql":
        op.execute(_ENQUEUE.format(errors="others"))
        return
    for name, condition in _OLDER.items():
        op.drop_index(name, "runs")
        _create(name, "runs", "created_at", condition)


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(_ENQUEUE.format(errors="undefined_table OR undefined_column OR undefined_function"))
    else:
        for name, condition in _OLDER.items():
            op.drop_index(name, "runs")
            _create_as_before(name, condition)
    for name, (table, _, _) in _NEW.items():
        op.drop_index(name, table)
    op.drop_index("runs_timed", "runs")
    _create_as_before("runs_timed", _TIMED)
