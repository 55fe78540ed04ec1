"""Runs of flows for programs: what one of them shows and waits for now, and which there are."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from holdfast.enums import RunStatus
from holdfast.errors import StoreUnsupported
from holdfast.runtime import flow_rows
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.flow_filter import FlowFilter
from holdfast.runtime.flow_rows import FlowRow
from holdfast.runtime.records import Records
from holdfast.runtime.stores import StoreLike, open_journal


@dataclass(frozen=True, kw_only=True)
class FlowSummary:
    """A run of a flow as it is listed."""

    run_id: str
    flow: str
    status: RunStatus
    tags: Mapping[str, str]
    parent_run_id: str | None
    created_at: datetime
    updated_at: datetime
    """When it last started, paused, parked, went on or ended; in details, when anything was last recorded."""


@dataclass(frozen=True, kw_only=True)
class FlowDetails(FlowSummary):
    """What a run shows and waits for now."""

    status_text: str
    """What the flow last said with `ctx.set_status`."""
    last_value: Any
    """What it last handed out with `ctx.emit`."""
    approvals: tuple[str, ...]
    """The keys that `decide` can answer now."""
    error: str | None
    """Why it failed, if it has."""


async def list_flows(
    *,
    store: StoreLike = "holdfast.db",
    flow: str | None = None,
    status: RunStatus | str | None = None,
    tags: Mapping[str, str] | None = None,
    limit: int = 100,
) -> list[FlowSummary]:
    """List runs of flows, the newest first: of one flow, in one status, with all of these tags.

    Raises `StoreUnsupported` for a store that holds no rows.
    """
    matching = FlowFilter(
        status=None if status is None else RunStatus(status).value,
        flow=flow,
        tags=[f"{name}={value}" for name, value in (tags or {}).items()],
    )
    async with open_journal(store) as journal:
        if not journal.store.has_rows:
            raise StoreUnsupported(
                "Flows can be listed in a store that holds rows.", hint="Use a SQLite path or a postgresql:// URL."
            )
        rows = await journal.query(lambda found: flow_rows.read_page(found, matching, limit=limit))
    return [_to_summary(row) for row in rows]


def _to_summary(row: FlowRow) -> FlowSummary:
    return FlowSummary(
        run_id=row.run_id,
        flow=row.flow,
        status=RunStatus(row.status),
        tags=row.tags,
        parent_run_id=row.parent_run_id,
        created_at=datetime.fromtimestamp(row.created_at, UTC),
        updated_at=datetime.fromtimestamp(row.updated_at, UTC),
    )


def describe_run(run_id: str, events: Iterable[Event]) -> FlowDetails:
    """Fold a run's events, of which there is at least one, into what it shows now."""
    events = list(events)
    records = Records(events)
    created = records.created or {}
    notes = {event.kind: event.payload for event in events if event.kind in _LATEST_KINDS}
    error = records.end.get("error") if records.status is RunStatus.FAILED else None
    parent = created.get("parent")
    return FlowDetails(
        run_id=run_id,
        flow=str(created.get("flow", "")),
        status=find_status(records),
        tags=created.get("tags") or {},
        parent_run_id=parent.get("run_id") if isinstance(parent, dict) else None,
        created_at=datetime.fromtimestamp(events[0].ts, UTC),
        updated_at=datetime.fromtimestamp(events[-1].ts, UTC),
        status_text=str(notes.get(EventKind.STATUS_SET, {}).get("text", "")),
        last_value=notes.get(EventKind.PARTIAL_EMITTED, {}).get("value"),
        approvals=tuple(record.key for record in records.waiting_for_person()),
        error=f"{error.get('type')}: {error.get('message')}" if isinstance(error, dict) else None,
    )


def find_status(records: Records) -> RunStatus:
    """Return a run's status; one that failed and is to be run again waits for that."""
    return RunStatus.PENDING if records.is_retry_requested else RunStatus(records.status)


_LATEST_KINDS = (EventKind.STATUS_SET, EventKind.PARTIAL_EMITTED)
