"""Who drives runs here, which of them looked at a run in vain, and how a run comes into the queue with its events.

The queue's own tables hold nothing that rows do not say: whoever serves the queue makes them, and makes them again.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

# Never refuses the append that it stands beside: without the queue's table the sweep finds the run.
_ENQUEUE = """
CREATE FUNCTION holdfast_enqueue(run_id text, queue text, priority bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO procrastinate_jobs (queue_name, task_name, priority, queueing_lock, args)
    VALUES (queue, 'drive', priority::integer, run_id, jsonb_build_object('run_id', run_id))
    ON CONFLICT DO NOTHING;
EXCEPTION WHEN undefined_table OR undefined_column OR undefined_function THEN
    NULL;
END $$
"""


def _key(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, primary_key=True, nullable=False)


def _text(name: str, default: str = "") -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False, server_default=default)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0")


def _moment(name: str) -> sa.Column[float]:
    return sa.Column(name, sa.Float(53), nullable=False, server_default="0")


def upgrade() -> None:
    op.create_table(
        "workers",
        _key("name"),
        *(_text(name) for name in ("process", "machine", "version")),
        *(_text(name, "[]") for name in ("queues", "flows")),
        *(_number(name) for name in ("slots", "driven", "is_draining")),
        *(_moment(name) for name in ("since", "seen_at", "sweeps_until")),
    )
    op.create_table(
        "run_looks",
        _key("run_id"),
        _key("worker"),
        _text("missing"),
        _text("reason"),
        _moment("again_at"),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(_ENQUEUE)


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION holdfast_enqueue(text, text, bigint)")
    op.drop_table("run_looks")
    op.drop_table("workers")
