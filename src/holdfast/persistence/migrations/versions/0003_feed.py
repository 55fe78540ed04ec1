"""The feed: in which order events of all runs are told to those who follow all of them."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "feed",
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False, nullable=False),
        sa.Column("run_id", sa.Text, nullable=False, server_default=""),
        sa.Column("first_seq", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("last_seq", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.create_index("feed_by_run", "feed", ["run_id", "last_seq"])


def downgrade() -> None:
    op.drop_table("feed")
