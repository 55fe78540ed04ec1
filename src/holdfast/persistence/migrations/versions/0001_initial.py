"""The first tables: templates, personas, runs, phases, bindings, approvals, artifacts, ledger."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _text(name: str, default: str | None = "", *, is_key: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, primary_key=is_key, nullable=default is None, server_default=default)


def _key(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, primary_key=True, nullable=False)


def _link(name: str, target: str, *, is_key: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, sa.ForeignKey(target), primary_key=is_key, nullable=False)


def _number(name: str, *, is_key: bool = False, is_optional: bool = False) -> sa.Column[int]:
    default = None if is_optional or is_key else "0"
    return sa.Column(name, sa.BigInteger, primary_key=is_key, nullable=is_optional, server_default=default)


def upgrade() -> None:
    for table in ("workflow_templates", "agent_personas"):
        op.create_table(
            table,
            _key("id"),
            _text("name"),
            _text("version"),
            sa.Column("hash", sa.Text, nullable=False, unique=True),
            _text("definition", "{}"),
            _text("created_at"),
        )
    op.create_table(
        "runs",
        _key("id"),
        _link("template_id", "workflow_templates.id"),
        _text("template_hash"),
        _text("state", "pending"),
        _text("repo_path"),
        _text("base_branch", "main"),
        _text("worktree_root", None),
        _text("created_at"),
        _text("updated_at"),
        _text("started_at", None),
        _text("ended_at", None),
        _text("title"),
        _text("workflow"),
        _text("requirements_md"),
        _text("base_commit", None),
        _number("budget_micros", is_optional=True),
        _text("pause_reason", None),
        _text("error", None),
        _text("final_report_path", None),
        _text("forked_from", None),
        _text("started_by"),
        _number("is_simulated"),
    )
    op.create_index("runs_by_state", "runs", ["state", "created_at"])
    op.create_index("runs_by_time", "runs", ["created_at"])
    op.create_table(
        "run_phases",
        _link("run_id", "runs.id", is_key=True),
        _key("phase_key"),
        _text("state", "pending"),
        _text("started_at", None),
        _text("ended_at", None),
        _number("position"),
        _number("attempt"),
        _text("comment"),
        _text("error", None),
        _text("tree", None),
        _text("snapshot", None),
    )
    op.create_table(
        "run_bindings",
        _key("id"),
        _link("run_id", "runs.id"),
        _text("role_id"),
        _link("persona_id", "agent_personas.id"),
        _text("persona_hash"),
        _text("backend"),
        _text("binding_hash"),
        _text("explanation"),
    )
    op.create_index("run_bindings_by_run", "run_bindings", ["run_id"])
    _create_decisions_and_money()


def _create_decisions_and_money() -> None:
    op.create_table(
        "approvals",
        _key("id"),
        _link("run_id", "runs.id"),
        _text("phase_key"),
        _number("attempt"),
        _text("about", "phase"),
        _text("state", "pending"),
        _text("digest"),
        _text("shown", "{}"),
        _text("requested_at"),
        _text("deadline_at", None),
        _text("decided_at", None),
        _text("action", None),
        _text("comment"),
        _text("decided_by"),
    )
    op.create_index("approvals_by_state", "approvals", ["state", "requested_at"])
    op.create_index("approvals_by_run", "approvals", ["run_id"])
    op.create_table(
        "artifacts",
        _link("run_id", "runs.id", is_key=True),
        _key("phase_key"),
        _number("attempt", is_key=True),
        _number("turn", is_key=True),
        _text("path"),
        _text("schema_id"),
        _text("hash"),
        _text("state", "rejected"),
        _text("findings", "[]"),
        _text("content"),
        _text("created_at"),
    )
    op.create_table(
        "ledger",
        _key("id"),
        _link("run_id", "runs.id"),
        _text("phase_key"),
        _number("attempt"),
        _text("step_key"),
        _text("state", "reserved"),
        _number("amount_micros"),
        _number("reserved_micros"),
        _text("model"),
        _text("persona"),
        _number("input_tokens"),
        _number("output_tokens"),
        _text("day"),
        _text("created_at"),
        _text("settled_at", None),
    )
    op.create_index("ledger_by_run", "ledger", ["run_id"])
    op.create_index("ledger_by_day", "ledger", ["day"])


def downgrade() -> None:
    for table in ("ledger", "artifacts", "approvals", "run_bindings", "run_phases", "runs"):
        op.drop_table(table)
    for table in ("agent_personas", "workflow_templates"):
        op.drop_table(table)
