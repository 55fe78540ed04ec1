"""Since when a worker's signs of life come without a gap: so one that starts knows that the database was there."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("workers", sa.Column("steady_since", sa.Float(53), nullable=False, server_default="0"))


def downgrade() -> None:
    with op.batch_alter_table("workers") as table:
        table.drop_column("steady_since")
