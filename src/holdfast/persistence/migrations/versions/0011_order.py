"""Which run comes next and when: queues, priorities, times, limits for all processes, and schedules."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_INDEXES = {
    "runs_timed": "due_at IS NOT NULL AND state = 'paused' AND pause_reason = 'budget'",
    "runs_admitted": "admitted_epoch > 0",
    "runs_scheduled": "schedule IS NOT NULL AND state IN ('pending', 'running', 'paused')",
}
_COLUMNS = ("queue", "priority", "due_at", "waits_for", "schedule", "driven_at", "admitted_epoch")


def _text(name: str, default: str = "") -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False, server_default=default)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0")


def _optional(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text)


def _key(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, primary_key=True, nullable=False)


def upgrade() -> None:
    op.add_column("runs", _text("queue", "runs"))
    for name in ("priority", "admitted_epoch"):
        op.add_column("runs", _number(name))
    for name in ("due_at", "waits_for", "schedule", "driven_at"):
        op.add_column("runs", _optional(name))
    op.create_index("runs_by_user", "runs", ["started_by", "driven_at"])
    for name, condition in _INDEXES.items():
        where = sa.text(condition)
        op.create_index(name, "runs", ["created_at"], sqlite_where=where, postgresql_where=where)
    op.create_table("limits", _key("kind"), _key("name"), _number("amount"), _text("set_at"), _text("set_by"))
    op.create_table(
        "schedules",
        _key("name"),
        *(_text(name) for name in ("target", "kind", "cron", "zone", "missed", "overlap", "repo_path")),
        _text("options", "{}"),
        _number("is_paused"),
        _text("created_at"),
        _text("created_by"),
        _text("last_at"),
        _optional("next_at"),
        _optional("last_run_id"),
        _optional("problem"),
    )
    op.create_table("provider_shares", _key("provider"), _key("holder"), _number("share"), _text("seen_at"))
    op.create_table("provider_holds", _key("provider"), _text("hold_until"))


def downgrade() -> None:
    for table in ("provider_holds", "provider_shares", "schedules", "limits"):
        op.drop_table(table)
    for name in (*_INDEXES, "runs_by_user"):
        op.drop_index(name, "runs")
    for column in _COLUMNS:
        op.drop_column("runs", column)
