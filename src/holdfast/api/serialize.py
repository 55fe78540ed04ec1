"""From rows to what the wire says of them."""

import base64
import binascii
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from holdfast.api.access_schemas import TokenItem
from holdfast.api.schemas import (
    ApprovalItem,
    ArtifactItem,
    CatalogItem,
    Cause,
    PhaseItem,
    RunDetail,
    RunItem,
)
from holdfast.catalog.lookup import CatalogEntry
from holdfast.engine.run.load import read_template
from holdfast.engine.run.start import stays_paused
from holdfast.enums import Backend, Role, RunStatus
from holdfast.errors import CursorInvalid, TemplateLoadFailed
from holdfast.persistence.listings import ListedRun
from holdfast.persistence.models import ApprovalRow, ArtifactRow, RunPhaseRow, RunRow, TokenRow
from holdfast.persistence.runs import Spending, StoredRun
from holdfast.presentation.format import cost, describe_sandbox
from holdfast.presentation.message_box import describe_message_box
from holdfast.presentation.status import (
    Note,
    OpenApproval,
    PhaseFacts,
    RunFacts,
    describe_choices,
    describe_in_list,
    describe_question,
    describe_run,
    describe_wait,
    explain_question,
    find_pause,
    find_refusals,
    list_question_facts,
    run_title,
)
from holdfast.presentation.tool_call import read_call
from holdfast.presentation.trace import RunTrace
from holdfast.presentation.verdict import describe_merge, find_verdict
from holdfast.runtime.events import Event
from holdfast.runtime.run_fold.payload_text import phase_status
from holdfast.workflow import WorkflowTemplate


def to_usd(micros: int) -> float:
    return micros / 1_000_000


def to_run_item(listed: ListedRun, phases: Iterable[RunPhaseRow], *, reason: str | None) -> RunItem:
    facts = record_requests(listed.run, phases, reason=reason)
    return RunItem.model_validate(_run_fields(listed.run, facts, listed.spent))


def _run_fields(run: RunRow, facts: RunFacts, spent: Spending) -> dict[str, Any]:
    amounts = (spent.total_micros, spent.simulated_micros, spent.reserved_micros, spent.unanswered_micros)
    real_usd, simulated_usd, reserved_usd, unanswered_usd = map(to_usd, amounts)
    return {
        **{name: getattr(run, name) for name in _SAME_NAMES},
        "run_id": run.id,
        "cost_usd": real_usd,
        "simulated_usd": simulated_usd,
        "reserved_usd": reserved_usd,
        "perhaps_paid_usd": unanswered_usd,
        "cost": cost(real_usd, simulated_usd, reserved_usd, unanswered_usd),
        "waiting_for": facts.waiting_for,
        "heading": to_heading(run),
        "now": describe_in_list(facts),
        "verdict": Note(verdict.tone, verdict.mark) if (verdict := find_verdict(facts.verdict)) else None,
        "merged": describe_merge(run.merged_into),
    }


_SAME_NAMES = (
    *("state", "workflow", "title", "repo_path", "base_branch", "created_at", "updated_at", "started_at", "ended_at"),
    *("started_by", "is_simulated", "forked_from", "error", "pause_reason"),
    *("queue", "priority", "due_at", "waits_for", "schedule"),
)


def to_heading(run: RunRow) -> str:
    return run_title(title=run.title, requirements_md=run.requirements_md, workflow=run.workflow, run_id=run.id)


def record_requests(
    run: RunRow,
    phases: Iterable[RunPhaseRow],
    questions: Sequence[OpenApproval] = (),
    *,
    reason: str | None = None,
) -> RunFacts:
    """Collect what the words about a run are made from."""
    return RunFacts(
        state=run.state,
        created_at=run.created_at,
        updated_at=run.updated_at,
        started_at=run.started_at,
        ended_at=run.ended_at,
        pause_reason=run.pause_reason,
        stays_paused=stays_paused(run),
        is_for_later=run.state == RunStatus.PENDING and run.due_at is not None,
        waiting_for=find_pause(run.pause_reason).sentence
        if run.state == RunStatus.PAUSED
        else reason or describe_wait(run.waits_for, run.due_at),
        error=run.error,
        phases=[
            PhaseFacts(
                key=row.phase_key, state=row.state, attempts=row.attempt, started_at=row.started_at, error=row.error
            )
            for row in phases
        ],
        questions=questions,
        verdict=run.verdict if run.state == RunStatus.COMPLETED else None,
        merged_into=run.merged_into,
    )


def to_question(row: ApprovalRow, template: WorkflowTemplate | None = None) -> OpenApproval:
    phase = next((phase for phase in template.phases if phase.key == row.phase_key), None) if template else None
    return OpenApproval(
        about=row.about,
        phase_key=row.phase_key,
        attempt=row.attempt,
        requested_at=row.requested_at,
        first_by=row.first_by,
        details=row.shown if isinstance(row.shown, dict) else {},
        title=phase.title if phase else "",
        risk=phase.risk.value if phase else "",
    )


def find_template(stored: StoredRun) -> WorkflowTemplate | None:
    """Find the run's workflow; `None` if what is stored of it cannot be read any more."""
    try:
        return read_template(stored)
    except TemplateLoadFailed:
        return None


def find_deaf_phases(stored: StoredRun, template: WorkflowTemplate | None) -> list[str]:
    """Find the phases whose agent reads no messages while it works."""
    roles = {role for role, (binding, _persona) in stored.bindings.items() if binding.backend == Backend.COMMAND}
    return [phase.key for phase in template.phases if phase.role in roles] if template is not None else []


@dataclass(frozen=True)
class RunRecord:
    """What the database holds of a run, as far as its page shows it; `events` are the last ones."""

    stored: StoredRun
    artifacts: Sequence[ArtifactRow]
    approvals: Sequence[ApprovalRow]
    spent: Spending
    events: Sequence[Event]


def to_detail(record: RunRecord, *, reason: str | None, trace: RunTrace, role: Role) -> RunDetail:
    stored, artifacts, approvals, events = record.stored, record.artifacts, record.approvals, record.events
    run = stored.run
    template = find_template(stored)
    questions = [to_question(row, template) for row in approvals if row.state == "pending"]
    facts = record_requests(run, stored.phases.values(), questions, reason=reason)
    accepted = {row.phase_key: row.path for row in artifacts if row.state == "accepted"}
    current: dict[tuple[str, int], ArtifactRow] = {}
    for row in artifacts:  # a repair turn replaces what the same attempt handed in before
        known = current.get((row.phase_key, row.attempt))
        if known is None or known.state != "accepted" or row.state == "accepted":
            current[row.phase_key, row.attempt] = row
    return RunDetail.model_validate(
        {
            **_run_fields(run, facts, record.spent),
            "requirements_md": run.requirements_md,
            "images": trace.progress.images,
            "phases": [_to_phase(row, accepted.get(row.phase_key), run.state) for row in stored.phases.values()],
            "artifacts": [_to_artifact(row, is_current=row in current.values()) for row in artifacts],
            "approvals": [to_approval(row, template) for row in approvals],
            "workflow_version": str(template.version) if template else "",
            "sandbox": describe_sandbox(trace.progress.sandbox, trace.progress.unsandboxed_by),
            "telling": describe_run(facts, trace),
            "refusals": find_refusals(facts, role),
            "message_box": describe_message_box(facts, run.workflow, role, find_deaf_phases(stored, template)),
            "unsettled_usd": to_usd(record.spent.reserved_micros),
            "budget_usd": None if run.budget_micros is None else to_usd(run.budget_micros),
            "final_report_path": run.final_report_path,
            "seq": events[-1].seq if events else 0,
            "last_events": [event.to_dict() for event in events],
        }
    )


def _to_phase(row: RunPhaseRow, artifact: str | None, run_state: str) -> PhaseItem:
    return PhaseItem.model_validate(
        {
            "key": row.phase_key,
            "state": row.state,
            "status": phase_status(row.state, run_state),
            "attempts": row.attempt,
            "artifact": artifact,
            "started_at": row.started_at,
            "ended_at": row.ended_at,
            "error": row.error,
        }
    )


def _to_artifact(row: ArtifactRow, *, is_current: bool) -> ArtifactItem:
    names = ("phase_key", "attempt", "turn", "path", "schema_id", "hash", "state", "findings", "created_at")
    facts = {name: getattr(row, name) for name in names}
    return ArtifactItem(name=PurePosixPath(row.path).name or row.phase_key, is_current=is_current, **facts)


def to_approval(row: ApprovalRow, template: WorkflowTemplate | None = None) -> ApprovalItem:
    names: tuple[str, ...] = (
        "run_id",
        "phase_key",
        "attempt",
        "state",
        "digest",
        "requested_at",
        "decided_at",
        "action",
        "comment",
    )
    names += ("deadline_at", "decided_by", "first_by", "shown", "about")
    question = to_question(row, template)
    causes = describe_choices(question)
    return ApprovalItem(
        approval_id=row.id,
        question=describe_question(question),
        facts=list_question_facts(question),
        reason=explain_question(question),
        since_answer=question.details.get("since_answer"),
        call=read_call(question),
        causes=[Cause(action=action, label=label, text=text) for action, (label, text) in causes.items()],
        **{name: getattr(row, name) for name in names},
    )


def to_tokens(rows: Iterable[TokenRow], now: str) -> list[TokenItem]:
    """List tokens, those that work first, the newest on top."""
    newest_first = sorted(rows, key=lambda row: row.created_at, reverse=True)
    return sorted((_to_token(row, now) for row in newest_first), key=lambda token: token.is_over)


def _to_token(row: TokenRow, now: str) -> TokenItem:
    is_past = row.expires_at is not None and row.expires_at <= now
    status = Note("good", "Works")
    if row.revoked_at or is_past:
        status = Note("idle", f"Revoked by {row.revoked_by or 'someone'}" if row.revoked_at else "Over")
    names = set(TokenItem.model_fields) - {"is_over", "status"}
    facts = {name: getattr(row, name) for name in names}
    return TokenItem.model_validate({**facts, "is_over": status.tone == "idle", "status": status})


def to_catalog_item(entry: CatalogEntry[Any]) -> CatalogItem:
    definition = entry.definition
    return CatalogItem(
        name=definition.name,
        version=str(definition.version),
        description=definition.description,
        source=entry.source.value,
        hash=definition.content_hash,
        definition=definition.model_dump(by_alias=True, mode="json"),
    )


def to_cursor(*parts: str | int) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


def from_cursor(cursor: str) -> tuple[str, str]:
    """Return the time of creation and the id that a cursor stands for. Raises `CursorInvalid`."""
    parts = read_cursor(cursor)
    if len(parts) != 2 or not all(isinstance(part, str) for part in parts):
        raise cursor_error()
    return str(parts[0]), str(parts[1])


def read_cursor(cursor: str) -> list[str | int]:
    """Return the texts and numbers that a cursor stands for. Raises `CursorInvalid`."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        parts = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        texts = [part for part in parts if isinstance(part, str)]
        "".join(texts).encode()
    except (ValueError, TypeError, binascii.Error, RecursionError) as error:
        raise cursor_error() from error
    is_plain = isinstance(parts, list) and all(type(part) in (str, int) for part in parts)
    if not is_plain or any("\0" in text for text in texts):
        raise cursor_error()
    return list(parts)


def cursor_error() -> CursorInvalid:
    return CursorInvalid("The cursor is not one of this server's.")
