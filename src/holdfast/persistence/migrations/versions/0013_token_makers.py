"""Which token a token was made with: whoever takes one back takes back what came of it."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("tokens", sa.Column("made_with", sa.Text, nullable=True))


def downgrade() -> None:
    op.drop_column("tokens", "made_with")
