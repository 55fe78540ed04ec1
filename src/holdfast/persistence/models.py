"""The rows. Ids, states and times are strings; every column that is not named in the contract has a default.

Rule: inside the product these classes are read only. Rows are written by `rows.py`, in the transaction of the event
that says why. `RunEventRow` maps the runtime's own table.
"""

import json
from typing import Any

from holdfast.extras import name_missing_extra

with name_missing_extra(__name__):
    from sqlalchemy import BigInteger, ForeignKey, Index, LargeBinary, Text
    from sqlalchemy.engine import Dialect
    from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
    from sqlalchemy.types import TypeDecorator

    from holdfast.persistence.due.indexes import approval_indexes, run_indexes
from holdfast.persistence.due.still_runs import RUN_FORMAT


class PlainText(TypeDecorator[str]):
    """Text that takes anything with a text form (UUIDs, numbers, enums) and gives text back."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else str(value)


class JsonText(TypeDecorator[Any]):
    """JSON data as text; what cannot be parsed comes back as the text it is, for the reader to refuse."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        try:
            return None if value is None else json.loads(value)
        except ValueError:
            return value


def _text(default: str = "") -> Mapped[str]:
    return mapped_column(PlainText, default=default, server_default=default)


class Base(DeclarativeBase):
    pass


class WorkflowTemplateRow(Base):
    __tablename__ = "workflow_templates"
    id: Mapped[str] = mapped_column(PlainText, primary_key=True)
    name: Mapped[str] = _text()
    version: Mapped[str] = _text()
    hash: Mapped[str] = mapped_column(PlainText, unique=True)
    definition: Mapped[Any] = mapped_column(JsonText, default="{}", server_default="{}")
    created_at: Mapped[str] = _text()


class AgentPersonaRow(Base):
    __tablename__ = "agent_personas"
    id: Mapped[str] = mapped_column(PlainText, primary_key=True)
    name: Mapped[str] = _text()
    version: Mapped[str] = _text()
    hash: Mapped[str] = mapped_column(PlainText, unique=True)
    definition: Mapped[Any] = mapped_column(JsonText, default="{}", server_default="{}")
    created_at: Mapped[str] = _text()


class RunRow(Base):
    __tablename__ = "runs"
    __table_args__ = (
        Index("runs_by_state", "state", "created_at"),
        Index("runs_by_time", "created_at"),
        Index("runs_by_user", "started_by", "driven_at"),
        *run_indexes(),
    )

    id: Mapped[str] = mapped_column(PlainText, primary_key=True)
    template_id: Mapped[str] = mapped_column(PlainText, ForeignKey("workflow_templates.id"))
    template_hash: Mapped[str] = _text()
    state: Mapped[str] = _text("pending")
    repo_path: Mapped[str] = _text()
    base_branch: Mapped[str] = _text("main")
    worktree_root: Mapped[str | None] = mapped_column(PlainText, default=None)
    created_at: Mapped[str] = _text()
    updated_at: Mapped[str] = _text()
    started_at: Mapped[str | None] = mapped_column(PlainText, default=None)
    ended_at: Mapped[str | None] = mapped_column(PlainText, default=None)
    title: Mapped[str] = _text()
    workflow: Mapped[str] = _text()
    requirements_md: Mapped[str] = _text()
    base_commit: Mapped[str | None] = mapped_column(PlainText, default=None)
    budget_micros: Mapped[int | None] = mapped_column(BigInteger, default=None)
    pause_reason: Mapped[str | None] = mapped_column(PlainText, default=None)
    error: Mapped[Any] = mapped_column(JsonText, default=None, nullable=True)
    final_report_path: Mapped[str | None] = mapped_column(PlainText, default=None)
    forked_from: Mapped[str | None] = mapped_column(PlainText, default=None)
    started_by: Mapped[str] = _text()
    is_simulated: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    wake: Mapped[str | None] = mapped_column(PlainText, default=None)  # a request to go on, each of its own
    open_questions: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")  # kept by the database
    verdict: Mapped[str | None] = mapped_column(PlainText, default=None)
    """What the last review of a run that is over says, in the word of its artifact."""
    merged_into: Mapped[str | None] = mapped_column(PlainText, default=None)
    """The branch or folder that the result was brought to last."""
    queue: Mapped[str] = _text("runs")
    priority: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    due_at: Mapped[str | None] = mapped_column(PlainText, default=None)  # left alone before; a pause ends then
    waits_for: Mapped[str | None] = mapped_column(PlainText, default=None)  # why it is due and yet not started
    schedule: Mapped[str | None] = mapped_column(PlainText, default=None)
    driven_at: Mapped[str | None] = mapped_column(PlainText, default=None)  # when a drive of it last began
    admitted_epoch: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")  # the claim with a place
    format: Mapped[int] = mapped_column(BigInteger, default=RUN_FORMAT, server_default="1")


class RunPhaseRow(Base):
    __tablename__ = "run_phases"
    run_id: Mapped[str] = mapped_column(PlainText, ForeignKey("runs.id"), primary_key=True)
    phase_key: Mapped[str] = mapped_column(PlainText, primary_key=True)
    state: Mapped[str] = _text("pending")
    started_at: Mapped[str | None] = mapped_column(PlainText, default=None)
    ended_at: Mapped[str | None] = mapped_column(PlainText, default=None)
    position: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    attempt: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    comment: Mapped[str] = _text()
    error: Mapped[Any] = mapped_column(JsonText, default=None, nullable=True)
    tree: Mapped[str | None] = mapped_column(PlainText, default=None)
    snapshot: Mapped[str | None] = mapped_column(PlainText, default=None)


class RunEventRow(Base):
    """The runtime's table, as it is; it is made and upgraded there."""

    __tablename__ = "events"
    __table_args__ = ({"info": {"owner": "runtime"}},)
    run_id: Mapped[str] = mapped_column(PlainText, primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    type: Mapped[str] = _text()
    body: Mapped[str] = _text()
    hash: Mapped[bytes] = mapped_column(LargeBinary, default=b"")

    @property
    def payload(self) -> dict[str, Any]:
        """The event's payload; big values stand as digests in the store and are missing here."""
        content = json.loads(self.body) if self.body else {}
        payload = content.get("payload", {})
        return payload if isinstance(payload, dict) else {}


class RunBindingRow(Base):
    __tablename__ = "run_bindings"
    __table_args__ = (Index("run_bindings_by_run", "run_id"),)
    id: Mapped[str] = mapped_column(PlainText, primary_key=True)
    run_id: Mapped[str] = mapped_column(PlainText, ForeignKey("runs.id"))
    role_id: Mapped[str] = _text()
    persona_id: Mapped[str] = mapped_column(PlainText, ForeignKey("agent_personas.id"))
    persona_hash: Mapped[str] = _text()
    backend: Mapped[str] = _text()
    binding_hash: Mapped[str] = _text()
    explanation: Mapped[str] = _text()


class ApprovalRow(Base):
    __tablename__ = "approvals"
    __table_args__ = (
        Index("approvals_by_state", "state", "requested_at"),
        Index("approvals_by_run", "run_id"),
        *approval_indexes(),
    )
    id: Mapped[str] = mapped_column(PlainText, primary_key=True)
    run_id: Mapped[str] = mapped_column(PlainText, ForeignKey("runs.id"))
    phase_key: Mapped[str] = _text()
    attempt: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    about: Mapped[str] = _text("phase")
    state: Mapped[str] = _text("pending")
    digest: Mapped[str] = _text()
    shown: Mapped[Any] = mapped_column(JsonText, default="{}", server_default="{}")
    requested_at: Mapped[str] = _text()
    deadline_at: Mapped[str | None] = mapped_column(PlainText, default=None)
    decided_at: Mapped[str | None] = mapped_column(PlainText, default=None)
    action: Mapped[str | None] = mapped_column(PlainText, default=None)
    comment: Mapped[str] = _text()
    decided_by: Mapped[str] = _text()
    first_by: Mapped[str] = _text()


class ArtifactRow(Base):
    """One version of an artifact as an attempt left it; the content itself is a blob of the journal or this text."""

    __tablename__ = "artifacts"
    run_id: Mapped[str] = mapped_column(PlainText, ForeignKey("runs.id"), primary_key=True)
    phase_key: Mapped[str] = mapped_column(PlainText, primary_key=True)
    attempt: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    turn: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    path: Mapped[str] = _text()
    schema_id: Mapped[str] = _text()
    hash: Mapped[str] = _text()
    state: Mapped[str] = _text("rejected")
    findings: Mapped[Any] = mapped_column(JsonText, default="[]", server_default="[]")
    content: Mapped[str] = _text()
    created_at: Mapped[str] = _text()


class LedgerRow(Base):
    """One model call's money, in micro-dollars: reserved with its request, settled with its response."""

    __tablename__ = "ledger"
    __table_args__ = (Index("ledger_by_run", "run_id"), Index("ledger_by_day", "day", "is_simulated"))
    id: Mapped[str] = mapped_column(PlainText, primary_key=True)
    run_id: Mapped[str] = mapped_column(PlainText, ForeignKey("runs.id"))
    phase_key: Mapped[str] = _text()
    attempt: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    step_key: Mapped[str] = _text()
    state: Mapped[str] = _text("reserved")
    amount_micros: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    reserved_micros: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    model: Mapped[str] = _text()
    persona: Mapped[str] = _text()
    input_tokens: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    output_tokens: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    day: Mapped[str] = _text()
    is_simulated: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    """Play money of the simulated model: it counts apart, and against no limit of real money."""
    created_at: Mapped[str] = _text()
    settled_at: Mapped[str | None] = mapped_column(PlainText, default=None)


class FeedRow(Base):
    """A stretch of a run's events in the order over all runs; `position` is that of its last event.

    Never changed, and deleted only with its run. The last one stays even then: positions are what followers come back
    with, and none is given twice.
    """

    __tablename__ = "feed"
    __table_args__ = (Index("feed_by_run", "run_id", "last_seq"),)
    position: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    run_id: Mapped[str] = _text()
    first_seq: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    last_seq: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")


class PastSpendingRow(Base):
    """What deleted runs spent on one day, by what it was spent on: limits and totals go on counting it."""

    __tablename__ = "past_spending"
    day: Mapped[str] = mapped_column(PlainText, primary_key=True)
    workflow: Mapped[str] = mapped_column(PlainText, primary_key=True)
    persona: Mapped[str] = mapped_column(PlainText, primary_key=True)
    model: Mapped[str] = mapped_column(PlainText, primary_key=True)
    is_simulated: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    amount_micros: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")


class BudgetDayRow(Base):
    """The real money of one day (UTC), spent or reserved, of deleted runs too: what the day's limit is checked with."""

    __tablename__ = "budget_days"
    day: Mapped[str] = mapped_column(PlainText, primary_key=True)
    spent_micros: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")


class DeletedRunRow(Base):
    """A run that is gone from the database, with files or refs that may still be there; gone itself when they are."""

    __tablename__ = "deleted_runs"
    run_id: Mapped[str] = mapped_column(PlainText, primary_key=True)
    data_dir: Mapped[str] = _text()
    repo: Mapped[str] = _text()
    """The git directory that holds its refs; empty if it never had one."""
    deleted_at: Mapped[str] = _text()


class RunSchemaRow(Base):
    """An artifact schema as it was when the run was made: whoever drives the run checks by this one."""

    __tablename__ = "run_schemas"
    run_id: Mapped[str] = mapped_column(PlainText, primary_key=True)
    schema_id: Mapped[str] = mapped_column(PlainText, primary_key=True)
    document: Mapped[Any] = mapped_column(JsonText, default="{}", server_default="{}")


class RunReportRow(Base):
    """The final report of a run that is over, as `common/final-report@1` has it."""

    __tablename__ = "run_reports"
    run_id: Mapped[str] = mapped_column(PlainText, primary_key=True)
    report: Mapped[Any] = mapped_column(JsonText, default="{}", server_default="{}")


class RunImageRow(Base):
    """An image that a person gave to a run, by the hash of its bytes."""

    __tablename__ = "run_images"
    run_id: Mapped[str] = mapped_column(PlainText, primary_key=True)
    digest: Mapped[str] = mapped_column(PlainText, primary_key=True)
    media_type: Mapped[str] = _text()
    data: Mapped[bytes] = mapped_column(LargeBinary)


class RunBaseRow(Base):
    """What another machine needs to begin with a run's files: where they came from, and the pack of their commit."""

    __tablename__ = "run_bases"
    __table_args__ = (Index("run_bases_by_digest", "digest"),)
    run_id: Mapped[str] = mapped_column(PlainText, primary_key=True)
    origin: Mapped[str] = _text()  # the place, by `find_place`, whose folder the run was started on
    place: Mapped[str] = _text()  # the one whose worktree the run works in now
    commit_id: Mapped[str] = _text()
    digest: Mapped[str] = _text()
    """The base pack's; empty where the repository itself can be reached."""
    prefix: Mapped[str] = _text()
    """The subfolder that the run works in."""
    is_private: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")


class BasePackRow(Base):
    """A part of the pack of a commit without its history, shared by all runs that start from it."""

    __tablename__ = "base_packs"
    digest: Mapped[str] = mapped_column(PlainText, primary_key=True)
    part: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    data: Mapped[bytes] = mapped_column(LargeBinary)
    used_at: Mapped[str] = _text()


class TreePackRow(Base):
    """The objects by which a recorded tree differs from those before it, as a thin git pack."""

    __tablename__ = "tree_packs"
    run_id: Mapped[str] = mapped_column(PlainText, primary_key=True)
    number: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    kind: Mapped[str] = _text("step")
    """`step`, `setup` or `phase`; a phase's takes the place of the steps before it."""
    objects: Mapped[Any] = mapped_column(JsonText, default="[]", server_default="[]")
    """The trees and commits that it brings whole, together with the packs before it."""
    refs: Mapped[Any] = mapped_column(JsonText, default="{}", server_default="{}")
    """Names below the run's refs, and the commits they stand for."""
    pack: Mapped[bytes] = mapped_column(LargeBinary)
    created_at: Mapped[str] = _text()


class TokenRow(Base):
    """A program's right to use the API; the token itself is known only to whoever it was shown to."""

    __tablename__ = "tokens"
    id: Mapped[str] = mapped_column(PlainText, primary_key=True)
    name: Mapped[str] = _text()
    role: Mapped[str] = _text("viewer")
    hash: Mapped[str] = _text()
    created_at: Mapped[str] = _text()
    created_by: Mapped[str] = _text()
    made_with: Mapped[str | None] = mapped_column(PlainText, default=None)
    expires_at: Mapped[str | None] = mapped_column(PlainText, default=None)
    last_used_at: Mapped[str | None] = mapped_column(PlainText, default=None)
    revoked_at: Mapped[str | None] = mapped_column(PlainText, default=None)
    revoked_by: Mapped[str] = _text()


class SessionRow(Base):
    """A browser that has logged in; `id` is the hash of what its cookie holds."""

    __tablename__ = "sessions"
    id: Mapped[str] = mapped_column(PlainText, primary_key=True)
    token_id: Mapped[str | None] = mapped_column(PlainText, default=None)
    name: Mapped[str] = _text()
    role: Mapped[str] = _text("viewer")
    created_at: Mapped[str] = _text()
    expires_at: Mapped[str] = _text()
    ended_at: Mapped[str | None] = mapped_column(PlainText, default=None)


class IdempotencyRow(Base):
    """A request that was carried out under a key its sender chose, and the run it made."""

    __tablename__ = "idempotency_keys"
    actor: Mapped[str] = mapped_column(PlainText, primary_key=True)
    key: Mapped[str] = mapped_column(PlainText, primary_key=True)
    request_hash: Mapped[str] = _text()
    run_id: Mapped[str] = mapped_column(PlainText, ForeignKey("runs.id"))
    created_at: Mapped[str] = _text()
