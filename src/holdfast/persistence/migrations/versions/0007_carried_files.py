"""What a run needs on another machine: its schemas, its report, and its files as git packs."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def _key(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, primary_key=True, nullable=False)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, primary_key=True, nullable=False, autoincrement=False)


def _text(name: str, default: str = "") -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False, server_default=default)


def upgrade() -> None:
    op.create_table("run_schemas", _key("run_id"), _key("schema_id"), _text("document", "{}"))
    op.create_table("run_reports", _key("run_id"), _text("report", "{}"))
    op.create_table(
        "run_bases",
        _key("run_id"),
        *(_text(name) for name in ("origin", "place", "commit_id", "digest", "prefix")),
        sa.Column("is_private", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.create_index("run_bases_by_digest", "run_bases", ["digest"])
    op.create_table(
        "base_packs",
        _key("digest"),
        _number("part"),
        sa.Column("data", sa.LargeBinary, nullable=False),
        _text("used_at"),
    )
    op.create_table(
        "tree_packs",
        _key("run_id"),
        _number("number"),
        _text("kind", "step"),
        _text("objects", "[]"),
        _text("refs", "{}"),
        sa.Column("pack", sa.LargeBinary, nullable=False),
        _text("created_at"),
    )


def downgrade() -> None:
    for table in ("tree_packs", "base_packs", "run_bases", "run_reports", "run_schemas"):
        op.drop_table(table)
