"""Access over HTTP: tokens, sessions, idempotency keys; requests to go on, and the first of two people."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def _text(name: str, default: str | None = "") -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=default is None, server_default=default)


def _key(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, primary_key=True, nullable=False)


def upgrade() -> None:
    op.add_column("runs", _text("wake", None))
    op.add_column("approvals", _text("first_by"))
    op.create_table(
        "tokens",
        _key("id"),
        _text("name"),
        _text("role", "viewer"),
        _text("hash"),
        _text("created_at"),
        _text("created_by"),
        _text("expires_at", None),
        _text("last_used_at", None),
        _text("revoked_at", None),
        _text("revoked_by"),
    )
    op.create_table(
        "sessions",
        _key("id"),
        _text("token_id", None),
        _text("name"),
        _text("role", "viewer"),
        _text("created_at"),
        _text("expires_at"),
        _text("ended_at", None),
    )
    op.create_table(
        "idempotency_keys",
        _key("actor"),
        _key("key"),
        _text("request_hash"),
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.id"), nullable=False),
        _text("created_at"),
    )


def downgrade() -> None:
    for table in ("idempotency_keys", "sessions", "tokens"):
        op.drop_table(table)
    op.drop_column("approvals", "first_by")
    op.drop_column("runs", "wake")
