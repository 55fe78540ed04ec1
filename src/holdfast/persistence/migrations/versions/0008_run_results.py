"""What became of a run that is over: the verdict of its review, and where its result was merged.

Rows of runs that ended before have neither: they are shown as they were.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_COLUMNS = ("verdict", "merged_into")


def upgrade() -> None:
    for name in _COLUMNS:
        op.add_column("runs", sa.Column(name, sa.Text, nullable=True))


def downgrade() -> None:
    for name in _COLUMNS:
        op.drop_column("runs", name)
