"""How far a worker's clock is off, and in which format a run is: an older worker leaves what it cannot drive."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("workers", sa.Column("clock_off_s", sa.Float(53), nullable=False, server_default="0"))
    op.add_column("runs", sa.Column("format", sa.BigInteger, nullable=False, server_default="1"))


def downgrade() -> None:
    op.drop_column("runs", "format")
    op.drop_column("workers", "clock_off_s")
