"""What a schedule could not start stays to be seen, and so do times that were skipped for an open run."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("schedules", sa.Column("problem_at", sa.Text, nullable=True))
    op.add_column("schedules", sa.Column("skipped", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("schedules", sa.Column("skipped_for", sa.Text, nullable=True))


def downgrade() -> None:
    for column in ("problem_at", "skipped", "skipped_for"):
        op.drop_column("schedules", column)
