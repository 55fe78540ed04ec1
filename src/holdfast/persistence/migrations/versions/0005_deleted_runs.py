"""Deleted runs: what is still to be removed of them, and what they spent."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "past_spending",
        *(
            sa.Column(name, sa.Text, primary_key=True, nullable=False)
            for name in ("day", "workflow", "persona", "model")
        ),
        sa.Column("is_simulated", sa.BigInteger, primary_key=True, autoincrement=False, nullable=False),
        sa.Column("amount_micros", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.create_table(
        "deleted_runs",
        sa.Column("run_id", sa.Text, primary_key=True, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False, server_default="") for name in ("data_dir", "repo", "deleted_at")),
    )


def downgrade() -> None:
    op.drop_table("deleted_runs")
    op.drop_table("past_spending")
