"""A flow run for people: its steps, waits, questions and end, from its journal alone."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from holdfast.enums import PauseReason, RunStatus
from holdfast.flows.typed_values.call_record import to_plain_argument
from holdfast.persistence.flow_listings import to_time
from holdfast.presentation.format import moment
from holdfast.presentation.status import find_pause
from holdfast.runtime.clock import now
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.records import NOTE_KINDS, Record, Records, StepState, fingerprint_of
from holdfast.runtime.run_fold.payload_text import first_line

INTERRUPTED = "interrupted"
"""What is said of a run that its process has left under way."""
_LINE_CHARS = 200
_MOST_NOTES = 200


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
    child_run_id: str | None = None
    """Of a child flow: its own run."""


@dataclass
class FlowNote:
    """What a flow has told its watchers: a log line, a status text or a partial result."""

    kind: str
    text: str
    written_at: float
    value: Any = None
    """The fields of a log line, or the partial result."""


@dataclass
class FlowQuestion:
    """What a person is asked: an approval, or what became of a call."""

    key: str
    about: str
    show: Any
    requested_at: float
    digest: str = ""
    """Of what is shown: an answer can name what it is about."""
    answer: Mapping[str, Any] | None = None
    answered_at: float | None = None
    deadline_at: float | None = None
    """Until when it can be answered, if not for ever."""


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
    cancelled_for: str = ""
    """Why it was cancelled, and by whom, if it was."""
    status_text: str = ""
    """What the flow last said of itself."""
    notes: list[FlowNote] = field(default_factory=list)
    """The last ones, the oldest first."""
    steps: list[FlowStep] = field(default_factory=list)
    questions: list[FlowQuestion] = field(default_factory=list)
    """What waits for an answer; the next one: what was answered."""
    answered: list[FlowQuestion] = field(default_factory=list)


def view_flow(run_id: str, events: Iterable[Event]) -> FlowView:
    """Fold a flow's events into what is shown of it."""
    events = list(events)
    records = Records(events)
    created = records.created or {}
    view = FlowView(run_id, str(created.get("flow") or ""), str(records.status))
    view.args = [to_plain_argument(item) for item in created.get("args", [])]
    view.kwargs = {name: to_plain_argument(item) for name, item in created.get("kwargs", {}).items()}
    view.tags = created.get("tags") or {}
    spans: dict[str, _Span] = {}
    questions = Questions()
    notes = [event for event in events if event.kind in NOTE_KINDS]
    view.notes = [_to_note(event) for event in notes[-_MOST_NOTES:]]
    view.status_text = next(
        (str(event.payload.get("text")) for event in reversed(notes) if event.kind == EventKind.STATUS_SET), ""
    )
    for event in events:
        if event.kind == EventKind.RUN_CREATED:
            view.created_at = event.ts
        elif event.is_terminal:
            view.ended_at = event.ts
        if isinstance(key := event.payload.get("key"), str):
            spans.setdefault(key, _Span()).add(event)
            questions.add(event)
    if records.status is RunStatus.COMPLETED:
        view.result = records.end.get("result")
    elif records.status is RunStatus.FAILED:
        view.error = records.end.get("error")
    elif records.status is RunStatus.CANCELLED:
        view.cancelled_for = describe_cancellation(records.end)
    view.steps = [
        _to_step(record, spans.get(record.key, _Span()), is_passed=_is_passed(record, records))
        for record in sorted(records.by_key.values(), key=lambda record: record.first_seq)
    ]
    view.answered = questions.answered
    if not (isinstance(records.status, RunStatus) and records.status.is_terminal):
        view.questions = questions.open
    return view


class Questions:
    """What a flow has asked a person, from its events in their order."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], FlowQuestion] = {}
        self.answered: list[FlowQuestion] = []

    def add(self, event: Event) -> None:
        """Take the next event of the run; most say nothing of this."""
        key = str(event.payload.get("key", ""))
        if event.kind == EventKind.HUMAN_APPROVAL_REQUESTED:
            about = "outcome" if event.payload.get("about") == "outcome" else "approval"
            show = event.payload.get("show")
            question = FlowQuestion(key, about, show, event.ts, fingerprint_of(show=show)["show"])
            if isinstance(wake_at := event.payload.get("wake_at"), int | float):
                question.deadline_at = wake_at
            self._open[about, key] = question
        elif event.kind == EventKind.HUMAN_APPROVAL_RECEIVED:
            # An approval and a step may have the same key; the answer is for the one that waits.
            place = next((each for each in (("approval", key), ("outcome", key)) if each in self._open), None)
            if place is not None:
                question = self._open.pop(place)
                question.answer, question.answered_at = event.payload, event.ts
                self.answered.append(question)

    @property
    def open(self) -> list[FlowQuestion]:
        return list(self._open.values())


def to_wire(item: Any) -> dict[str, Any]:
    """Return a view, or a row, as plain data in which every moment is a text: ISO 8601 in UTC."""
    return {name: _to_wire_value(name, value) for name, value in asdict(item).items()}


def _to_wire_value(name: str, value: Any) -> Any:
    if name.endswith("_at"):
        return None if value is None else to_time(value)
    if name in ("steps", "questions", "answered", "notes"):
        return [{key: _to_wire_value(key, each) for key, each in item.items()} for item in value]
    return value


class _Span:
    """From when to when something was done the last time, by the events that name it."""

    def __init__(self) -> None:
        self.started_at: float | None = None
        self.ended_at: float | None = None
        self._has_begun = False

    def add(self, event: Event) -> None:
        took_s = event.payload.get("took_s", 0)
        if event.kind.endswith(_BEGINNINGS):
            self.started_at, self._has_begun = event.ts, True
            return
        if not self._has_begun:  # nothing is written before most calls
            self.started_at = event.ts - took_s if isinstance(took_s, int | float) else event.ts
        self.ended_at, self._has_begun = event.ts, False


_BEGINNINGS = (".started", ".opened", ".requested")


def _is_passed(record: Record, records: Records) -> bool:
    """Tell whether the flow has gone on behind what a record is of."""
    return records.lanes[record.lane_id][-1] is not record or records.status is RunStatus.COMPLETED


def _to_step(record: Record, span: _Span, *, is_passed: bool) -> FlowStep:
    state, ended_at = str(record.state), None
    if record.type == "approval" or record.has_question:
        state = "waiting" if record.answer is None else str(record.answer.get("action") or "answered")
    elif record.state is StepState.OPEN and record.error:
        state = StepState.FAILED.value  # the run's next try makes it again
    if state == StepState.FAILED or record.state is StepState.COMPLETED or record.answer is not None:
        ended_at = span.ended_at
    elif record.type == "timer" and is_passed:  # its end is no event
        state, ended_at = StepState.COMPLETED.value, record.wake_at or None
    return FlowStep(
        record.key,
        record.lane_id,
        record.type,
        state,
        attempts=max(record.attempt, 1),
        started_at=span.started_at,
        ended_at=ended_at,
        retry_at=record.retry_at or None,
        wake_at=record.wake_at or None,
        result=_to_result(record),
        error=record.error or None,
        child_run_id=record.child_run_id or None,
    )


def _to_result(record: Record) -> Any:
    if record.type == "wait" and " or " in record.key and record.event_name:
        return [record.event_name, record.result]  # as `wait_for_any` returns it
    return record.result if record.type != "approval" else None


def _to_note(event: Event) -> FlowNote:
    payload = event.payload
    if event.kind == EventKind.PARTIAL_EMITTED:
        return FlowNote(event.kind, "", event.ts, payload.get("value"))
    text = payload.get("text") if event.kind == EventKind.STATUS_SET else payload.get("message")
    return FlowNote(event.kind, str(text), event.ts, payload.get("fields") or None)


def describe_flow_now(row: Mapping[str, Any]) -> str:
    """Say in a few words what a flow run is doing, by its row and whether it `is_driven`."""
    is_open = row["state"] in (RunStatus.PAUSED, RunStatus.RUNNING) and not row["is_driven"]
    if is_open and row["wake_at"] and row["wake_at"] <= str(to_time(now())):
        return "is to go on"  # what it waited for is there, and nobody has taken it yet
    if describe_flow_crashes(row):
        line = find_pause(PauseReason.CRASHING).line
        return f"{line[0].lower()}{line[1:]}"
    if row["state"] == RunStatus.PAUSED:
        return f"waits for {row['waits_for']}" if row["waits_for"] else "paused"
    if row["state"] == RunStatus.PENDING:
        return f"waits for {row['waits_for']}" if row["waits_for"] else "is to be started"
    if row["state"] != RunStatus.RUNNING:
        return ""
    if row["is_driven"]:
        return "runs"
    if row["wake_at"]:
        return f"sleeps until {moment(row['wake_at'])}"
    return f"waits for {row['waits_for']}" if row["waits_for"] else INTERRUPTED


def describe_flow_crashes(row: Mapping[str, Any]) -> str:
    """Say what to do about a flow run that was paused because it kills whoever drives it; nothing of any other."""
    is_stopped = row["state"] == RunStatus.PAUSED and row["waits_for"] == PauseReason.CRASHING
    if not is_stopped or row.get("wake_at"):  # a person has let it go on
        return ""
    return (
        "Three processes in a row died with it before anything was recorded. Correct the cause, then run it again on "
        f"its page, or with holdfast resume {row['run_id']} --flows MODULE; holdfast abort {row['run_id']} ends it."
    )


def describe_flow_end(state: str, end: Mapping[str, Any]) -> str:
    """Say in one line why a flow failed or was cancelled, by what its last event says; nothing if it did not."""
    if state == RunStatus.FAILED and isinstance(error := end.get("error"), dict):
        return first_line(describe_failure(error), _LINE_CHARS)
    return first_line(describe_cancellation(end), _LINE_CHARS) if state == RunStatus.CANCELLED else ""


def describe_flow_question(question: FlowQuestion, flow: str) -> str:
    if question.about == "outcome":
        return f"What became of “{question.key}” in {flow}?"
    return f"Approve “{question.key}” of {flow}?"


def summarize_flow_question(question: FlowQuestion) -> str:
    """Say in one line what is to be decided on."""
    show = question.show
    if isinstance(show, dict) and isinstance(show.get("question"), str):
        show = show["question"]
    return first_line(show if isinstance(show, str) else json.dumps(show, ensure_ascii=False), _LINE_CHARS)


def list_flow_answers(question: FlowQuestion) -> dict[str, tuple[str, str]]:
    """Return by action what its button is called and what it causes, in the order they are offered."""
    if question.about == "outcome":
        return {
            "approve": ("Run it again", "The step is run again. If it had worked, its effect happens twice."),
            "reject": ("Count it as failed", "The step fails, and the flow's own code decides what follows."),
            "result": ("Give the result", "It had worked: the flow goes on with the result you give."),
            "abort": ("Cancel the run", "The run is cancelled; what it has begun to undo is undone."),
        }
    return {
        "approve": ("Approve", "The flow goes on."),
        "request_changes": ("Request changes", "The flow's own code decides what follows; it reads your comment."),
        "reject": ("Reject", "The flow's own code decides what follows; if it handles no rejection, the run fails."),
        "abort": ("Cancel the run", "The run is cancelled; what it has begun to undo is undone."),
    }


def describe_cancellation(end: Mapping[str, Any]) -> str:
    """Say by whom and why a flow was cancelled, as far as that was told."""
    by, reason = end.get("by"), end.get("reason")
    return f"{f'cancelled by {by}' if by else 'cancelled'}{f': {reason}' if reason else ''}" if by or reason else ""


def describe_failure(error: Mapping[str, Any]) -> str:
    """Say with which exception a flow or a step ended, as Python prints it: the class, then its message."""
    return f"{str(error.get('type')).removeprefix('builtins.')}: {error.get('message')}"
