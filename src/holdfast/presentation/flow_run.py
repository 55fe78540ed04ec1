"""A flow run for people: its steps, waits, questions and end, from its journal alone."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from holdfast.enums import RunStatus
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.records import Record, Records, StepState, fingerprint_of


@dataclass
class FlowStep:
    """One thing that a flow has asked for, with its latest outcome."""

    key: str
    lane: str
    type: str
    state: str
    attempts: int = 1
    started_at: float | None = None
    ended_at: float | None = None
    retry_at: float | None = None
    wake_at: float | None = None
    result: Any = None
    error: Mapping[str, Any] | None = None


@dataclass
class FlowQuestion:
    """What a person is asked: an approval, or what became of a call."""

    key: str
    about: str
    show: Any
    requested_at: float
    digest: str = ""
    """Of what is shown: an answer can name what it is about."""


@dataclass
class FlowView:
    """All that the journal says of a flow run, as it is shown."""

    run_id: str
    flow: str = ""
    state: str = RunStatus.PENDING
    args: Any = ()
    kwargs: Any = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    created_at: float | None = None
    ended_at: float | None = None
    result: Any = None
    error: Mapping[str, Any] | None = None
    steps: list[FlowStep] = field(default_factory=list)
    questions: list[FlowQuestion] = field(default_factory=list)


def view_flow(run_id: str, events: Iterable[Event]) -> FlowView:
    """Fold a flow's events into what is shown of it."""
    events = list(events)
    records = Records(events)
    created = records.created or {}
    view = FlowView(run_id, str(created.get("flow") or ""), str(records.status))
    view.args, view.kwargs = created.get("args", []), created.get("kwargs", {})
    view.tags = created.get("tags") or {}
    times: dict[str, list[float]] = {}
    shows: dict[str, Event] = {}
    for event in events:
        if event.kind == EventKind.RUN_CREATED:
            view.created_at = event.ts
        elif event.is_terminal:
            view.ended_at = event.ts
        if isinstance(key := event.payload.get("key"), str):
            times.setdefault(key, []).append(event.ts)
            if event.kind == EventKind.HUMAN_APPROVAL_REQUESTED:
                shows[key] = event
    if records.status is RunStatus.COMPLETED:
        view.result = records.end.get("result")
    elif records.status is RunStatus.FAILED:
        view.error = records.end.get("error")
    view.steps = [
        _to_step(record, times.get(record.key, []))
        for record in sorted(records.by_key.values(), key=lambda record: record.first_seq)
    ]
    if not (isinstance(records.status, RunStatus) and records.status.is_terminal):
        view.questions = [_to_question(record, shows[record.key]) for record in records.waiting_for_person()]
    return view


def to_wire(item: Any) -> dict[str, Any]:
    """Return a view, or a row, as plain data in which every moment is a text: ISO 8601 in UTC."""
    return {name: _to_wire_value(name, value) for name, value in asdict(item).items()}


def _to_wire_value(name: str, value: Any) -> Any:
    if name.endswith("_at"):
        return None if value is None else datetime.fromtimestamp(value, UTC).isoformat(timespec="milliseconds")
    if name in ("steps", "questions"):
        return [{key: _to_wire_value(key, each) for key, each in item.items()} for item in value]
    return value


def _to_step(record: Record, times: list[float]) -> FlowStep:
    state = str(record.state)
    if record.type == "approval" or record.has_question:
        state = "waiting" if record.answer is None else str(record.answer.get("action") or "answered")
    is_ended = record.state in (StepState.COMPLETED, StepState.FAILED) or record.answer is not None
    return FlowStep(
        record.key,
        record.lane_id,
        record.type,
        state,
        attempts=max(record.attempt, 1),
        started_at=times[0] if times else None,
        ended_at=times[-1] if times and is_ended else None,
        retry_at=record.retry_at or None,
        wake_at=record.wake_at or None,
        result=record.result if record.type != "approval" else None,
        error=record.error or None,
    )


def _to_question(record: Record, event: Event) -> FlowQuestion:
    about = "outcome" if record.type == "step" else "approval"
    show = event.payload.get("show")
    return FlowQuestion(record.key, about, show, event.ts, fingerprint_of(show=show)["show"])
