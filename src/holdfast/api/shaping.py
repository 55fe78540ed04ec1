"""From rows to what the wire says of them."""

import base64
import binascii
import json
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from holdfast.api.schemas import ApprovalItem, ArtifactItem, CatalogItem, PhaseItem, RunDetail, RunItem, TokenItem
from holdfast.catalog.lookup import CatalogEntry
from holdfast.errors import CursorInvalid
from holdfast.persistence.models import ApprovalRow, ArtifactRow, RunPhaseRow, RunRow, TokenRow
from holdfast.persistence.runs import Spent, StoredRun
from holdfast.runtime.events import Event


def to_usd(micros: int) -> float:
    return micros / 1_000_000


def to_run_item(run: RunRow, *, cost_micros: int, reason: str | None) -> RunItem:
    return RunItem.model_validate(_run_facts(run, cost_micros, reason))


def _run_facts(run: RunRow, cost_micros: int, reason: str | None) -> dict[str, Any]:
    names: tuple[str, ...] = (
        "state",
        "workflow",
        "title",
        "repo_path",
        "base_branch",
        "created_at",
        "updated_at",
        "started_at",
    )
    names += ("ended_at", "started_by", "is_simulated", "forked_from", "error", "pause_reason")
    facts = {name: getattr(run, name) for name in names}
    waiting_for = _PAUSES.get(run.pause_reason or "", run.pause_reason) if run.state == "paused" else reason
    return {**facts, "run_id": run.id, "cost_usd": to_usd(cost_micros), "waiting_for": waiting_for}


_PAUSES = {
    "approval": "It waits for a person's approval.",
    "budget": "Its budget is used up; it waits for more.",
    "person": "A person paused it.",
    "message": "It waits for what you say next.",
    "outcome": "What became of a call is not known; it waits for a person.",
}


def to_detail(
    stored: StoredRun,
    *,
    artifacts: Sequence[ArtifactRow],
    approvals: Sequence[ApprovalRow],
    spent: Spent,
    events: Sequence[Event],
    reason: str | None,
) -> RunDetail:
    run = stored.run
    accepted = {row.phase_key: row.path for row in artifacts if row.state == "accepted"}
    return RunDetail.model_validate(
        {
            **_run_facts(run, spent.total_micros, reason),
            "requirements_md": run.requirements_md,
            "phases": [_to_phase(row, accepted.get(row.phase_key)) for row in stored.phases.values()],
            "artifacts": [_to_artifact(row) for row in artifacts],
            "approvals": [to_approval(row) for row in approvals],
            "unsettled_usd": to_usd(spent.reserved_micros),
            "budget_usd": None if run.budget_micros is None else to_usd(run.budget_micros),
            "final_report_path": run.final_report_path,
            "seq": events[-1].seq if events else 0,
            "last_events": [event.to_dict() for event in events],
        }
    )


def _to_phase(row: RunPhaseRow, artifact: str | None) -> PhaseItem:
    return PhaseItem.model_validate(
        {
            "key": row.phase_key,
            "state": row.state,
            "attempts": row.attempt,
            "artifact": artifact,
            "started_at": row.started_at,
            "ended_at": row.ended_at,
            "error": row.error,
        }
    )


def _to_artifact(row: ArtifactRow) -> ArtifactItem:
    names = ("phase_key", "attempt", "turn", "path", "schema_id", "hash", "state", "findings", "created_at")
    facts = {name: getattr(row, name) for name in names}
    return ArtifactItem(name=PurePosixPath(row.path).name or row.phase_key, **facts)


def to_approval(row: ApprovalRow) -> ApprovalItem:
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
    names += ("deadline_at", "decided_by", "first_by", "shown")
    return ApprovalItem(approval_id=row.id, **{name: getattr(row, name) for name in names})


def to_token(row: TokenRow) -> TokenItem:
    return TokenItem.model_validate({name: getattr(row, name) for name in TokenItem.model_fields})


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


def to_cursor(run: RunRow) -> str:
    return base64.urlsafe_b64encode(json.dumps([run.created_at, run.id]).encode()).decode().rstrip("=")


def from_cursor(cursor: str) -> tuple[str, str]:
    """Raises `CursorInvalid`."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        created_at, run_id = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, TypeError, binascii.Error, RecursionError) as error:
        raise CursorInvalid("The cursor is not one of this server's.") from error
    if not (isinstance(created_at, str) and isinstance(run_id, str)) or "\0" in created_at + run_id:
        raise CursorInvalid("The cursor is not one of this server's.")
    try:
        (created_at + run_id).encode()
    except UnicodeEncodeError as error:
        raise CursorInvalid("The cursor is not one of this server's.") from error
    return created_at, run_id
