"""What was spent on each day, in one row; and how many questions of a run are open, so that what is due has an index.

The number is kept by the database itself: processes of the version before write answers too.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_SUM_UP = """
INSERT INTO budget_days (day, spent_micros)
SELECT day, SUM(amount_micros) FROM (
    SELECT day, amount_micros FROM ledger WHERE is_simulated = 0
    UNION ALL SELECT day, amount_micros FROM past_spending WHERE is_simulated = 0
) AS spent GROUP BY day
"""

_DUE = {
    "runs_requested": "wake IS NOT NULL AND state IN ('paused', 'failed')",
    "runs_answered": "open_questions = 0 AND state = 'paused' AND pause_reason = 'approval'",
}
_COUNTS = {
    "approvals_asked": ("INSERT ON approvals FOR EACH ROW WHEN (NEW.state = 'pending')", "NEW", "+ 1"),
    "approvals_answered": (
        "UPDATE OF state ON approvals FOR EACH ROW WHEN (OLD.state = 'pending' AND NEW.state <> 'pending')",
        "NEW",
        "- 1",
    ),
    "approvals_reopened": (
        "UPDATE OF state ON approvals FOR EACH ROW WHEN (OLD.state <> 'pending' AND NEW.state = 'pending')",
        "NEW",
        "+ 1",
    ),
    "approvals_removed": ("DELETE ON approvals FOR EACH ROW WHEN (OLD.state = 'pending')", "OLD", "- 1"),
}


def upgrade() -> None:
    op.create_table(
        "budget_days",
        sa.Column("day", sa.Text, primary_key=True, nullable=False),
        sa.Column("spent_micros", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.execute(_SUM_UP)
    op.add_column("runs", sa.Column("open_questions", sa.BigInteger, nullable=False, server_default="0"))
    op.execute(
        "UPDATE runs SET open_questions = "
        "(SELECT COUNT(*) FROM approvals AS a WHERE a.run_id = runs.id AND a.state = 'pending')"
    )
    for name, condition in _DUE.items():
        where = sa.text(condition)
        op.create_index(name, "runs", ["created_at"], sqlite_where=where, postgresql_where=where)
    is_postgres = op.get_bind().dialect.name == "postgresql"
    for name, (change, row, amount) in _COUNTS.items():
        update = f"UPDATE runs SET open_questions = open_questions {amount} WHERE id = {row}.run_id;"  # noqa: S608 - ours
        if is_postgres:
            op.execute(
                f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {update} RETURN NULL; END $$"
            )
            op.execute(f"CREATE TRIGGER {name} AFTER {change} EXECUTE FUNCTION {name}()")
        else:
            op.execute(f"CREATE TRIGGER {name} AFTER {change} BEGIN {update} END")


def downgrade() -> None:
    is_postgres = op.get_bind().dialect.name == "postgresql"
    for name in _COUNTS:
        op.execute(f"DROP TRIGGER {name}{' ON approvals' if is_postgres else ''}")
        if is_postgres:
            op.execute(f"DROP FUNCTION {name}()")
    for name in _DUE:
        op.drop_index(name, "runs")
    op.drop_column("runs", "open_questions")
    op.drop_table("budget_days")
