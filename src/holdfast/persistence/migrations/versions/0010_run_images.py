"""Images that people give with requirements and messages: once for each run, by the hash of their bytes."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "run_images",
        sa.Column("run_id", sa.Text, primary_key=True, nullable=False),
        sa.Column("digest", sa.Text, primary_key=True, nullable=False),
        sa.Column("media_type", sa.Text, nullable=False, server_default=""),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("run_images")
