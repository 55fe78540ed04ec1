"""Since when a process waits for a place of a provider's limit."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("provider_shares", sa.Column("waits_since", sa.Text, nullable=True))


def downgrade() -> None:
    op.drop_column("provider_shares", "waits_since")
