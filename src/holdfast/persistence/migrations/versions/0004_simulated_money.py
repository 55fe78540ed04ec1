"""Money of rehearsals is marked in the ledger, so that it counts apart from real money."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("ledger", sa.Column("is_simulated", sa.BigInteger, nullable=False, server_default="0"))
    op.execute("UPDATE ledger SET is_simulated = 1 WHERE run_id IN (SELECT id FROM runs WHERE is_simulated <> 0)")
    # The day's sum is read before each model call.
    op.drop_index("ledger_by_day", "ledger")
    op.create_index("ledger_by_day", "ledger", ["day", "is_simulated"])


def downgrade() -> None:
    op.drop_index("ledger_by_day", "ledger")
    op.create_index("ledger_by_day", "ledger", ["day"])
    op.drop_column("ledger", "is_simulated")
