"""What a run's journal says of each durable step: the events of a run, folded by step key.

Pure: the replay of a run is one bulk read, one pass here, and dictionary look-ups from then on.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from holdfast.enums import RunStatus
from holdfast.errors import Nondeterminism, PayloadInvalid
from holdfast.runtime.checkpoint.gc_pause import without_gc
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.inbox import Inbox
from holdfast.runtime.jsondata import to_canonical_json
from holdfast.runtime.state import status_after

MAIN_LANE = "main"
RecordType = Literal["step", "approval", "timer", "value", "wait", "child", "scope", "cancel", "version"]
_TYPE_NAMES: Mapping[RecordType, str] = {
    "step": "step",
    "approval": "approval",
    "timer": "sleep",
    "value": "value",
    "wait": "wait for",
    "child": "child flow",
    "scope": "compensation",
    "cancel": "cancellation at",
    "version": "version marker",
}


class StepState(StrEnum):
    OPEN = "open"
    """Nothing stands in the way of calling it: never called, or its failure was taken back by a retry of the run."""
    STARTED = "started"
    """An intent without an outcome: in flight now, or, read from the journal of a dead process, unknown."""
    WAITING = "waiting"
    """Failed and to be tried again at `retry_at`."""
    COMPLETED = "completed"
    FAILED = "failed"


_COMPLETED = StepState.COMPLETED  # looked up once: an attribute of an enum is slow to find


_NOTHING: Mapping[str, Any] = MappingProxyType({})


# A long replay makes one per step, and a dataclass takes three times as long.
class Record(msgspec.Struct, gc=False):
    """One step, approval or timer of a run."""

    key: str
    type: RecordType
    lane_id: str
    state: StepState = StepState.OPEN
    result: Any = None
    result_type: str | None = None
    """The name of the type that the result was declared to be; `None` for JSON data."""
    error: Mapping[str, Any] = _NOTHING
    attempt: int = 0
    retry_at: float = 0.0
    retry_in_s: float = 0.0
    """How long that was from when it failed, by the same clock: a clock that was wrong then makes no wait longer."""
    wake_at: float = 0.0
    child_run_id: str = ""
    event_name: str = ""
    """Of a wait that is over: the name of the event that ended it."""
    has_question: bool = False
    """A person was asked: for the approval itself, or what became of a step whose outcome is unknown."""
    answer: Mapping[str, Any] | None = None
    fingerprint: Mapping[str, str] = _NOTHING
    place: Mapping[str, Any] = _NOTHING
    """Where its command was begun, and what is known of that; empty for what is no command, or was begun long ago."""
    first_seq: int = 0
    last_seq: int = 0
    can_be_skipped: bool = False
    """It came after a failure that is tried again: the code may come this way once more, or take another one."""
    is_skipped: bool = False
    """The code took another way; what was recorded here no longer counts."""

    @property
    def is_waiting_for_person(self) -> bool:
        return self.has_question and self.answer is None

    @property
    def is_in_doubt(self) -> bool:
        """In the journal of a run without an owner: a call was made, and what became of it is not known."""
        return self.state is StepState.STARTED and self.answer is None


# What each kind of event says of the step it names, if it names one. The engine's own work is made of steps as well.
_MEANINGS: Mapping[str, tuple[RecordType, StepState | None]] = {
    EventKind.STEP_STARTED: ("step", StepState.STARTED),
    EventKind.STEP_COMPLETED: ("step", StepState.COMPLETED),
    EventKind.STEP_FAILED: ("step", StepState.FAILED),
    EventKind.STEP_UNKNOWN: ("step", None),
    EventKind.MODEL_REQUEST: ("step", StepState.STARTED),
    EventKind.MODEL_RESPONSE: ("step", StepState.COMPLETED),
    EventKind.MODEL_ERROR: ("step", StepState.FAILED),
    EventKind.TOOL_STARTED: ("step", StepState.STARTED),
    EventKind.TOOL_RESULT: ("step", StepState.COMPLETED),
    EventKind.TOOL_ERROR: ("step", StepState.FAILED),
    EventKind.TOOL_UNKNOWN: ("step", None),
    EventKind.TIMER_STARTED: ("timer", StepState.STARTED),
    EventKind.VALUE_RECORDED: ("value", StepState.COMPLETED),
    EventKind.WAIT_STARTED: ("wait", StepState.STARTED),
    EventKind.WAIT_COMPLETED: ("wait", StepState.COMPLETED),
    EventKind.WAIT_EXPIRED: ("wait", StepState.FAILED),
    EventKind.CHILD_STARTED: ("child", StepState.STARTED),
    EventKind.CHILD_COMPLETED: ("child", StepState.COMPLETED),
    EventKind.CHILD_FAILED: ("child", StepState.FAILED),
    EventKind.SCOPE_OPENED: ("scope", StepState.STARTED),
    EventKind.SCOPE_CLOSED: ("scope", StepState.COMPLETED),
    EventKind.CANCEL_DELIVERED: ("cancel", StepState.COMPLETED),
    EventKind.VERSION_MARKED: ("version", StepState.COMPLETED),
    EventKind.WORKSPACE_PREPARED: ("step", StepState.COMPLETED),
    EventKind.PHASE_STARTED: ("step", StepState.COMPLETED),
    EventKind.AGENT_STARTED: ("step", StepState.STARTED),
    EventKind.AGENT_FINISHED: ("step", StepState.COMPLETED),
    EventKind.AGENT_ERROR: ("step", StepState.FAILED),
    EventKind.ARTIFACT_WRITTEN: ("step", StepState.COMPLETED),
    EventKind.ARTIFACT_REJECTED: ("step", StepState.COMPLETED),
    EventKind.CHECKPOINT_SAVED: ("step", StepState.COMPLETED),
}


def find_record_type(event: Event) -> Sequence[RecordType]:
    """Return of what an event may be that names a key; nothing for one that is no part of a record."""
    if event.kind in (EventKind.HUMAN_APPROVAL_REQUESTED, EventKind.HUMAN_APPROVAL_RECEIVED):
        return ("step",) if event.payload.get("about") == "outcome" else ("approval", "step")
    meaning = _MEANINGS.get(event.kind)
    return () if meaning is None else (meaning[0],)


class Records:
    """All records of a run, and in which order each lane made them."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.by_key: dict[tuple[RecordType, str], Record] = {}
        self.lanes: dict[str, list[Record]] = {}
        self.status: RunStatus | str = RunStatus.PENDING
        self.last_seq = 0
        self.created: Mapping[str, Any] | None = None
        self.is_started = False
        self.end: Mapping[str, Any] = {}
        self.cancel_request: Mapping[str, Any] | None = None
        self.pause_request: Mapping[str, Any] | None = None
        self.cancel_requests = 0
        self.is_retry_requested = False
        """A person wants the failed run to go on, and nobody has taken it yet."""
        self.inbox = Inbox()
        self.notes: dict[tuple[str, str], int] = {}
        """How many notes each lane made after the operation of this key."""
        with without_gc():
            add_completed = self._add_completed
            for event in events:
                if event.kind is not _STEP_COMPLETED or not add_completed(event):
                    self.add(event)

    def add(self, event: Event) -> None:
        payload, kind = event.payload, event.kind
        self.last_seq = event.seq
        meaning = _MEANINGS.get(kind)
        if meaning is not None:
            self._add_step(event, *meaning)
        elif kind.startswith("run."):
            self._add_run_event(kind, payload)
        elif kind == EventKind.HUMAN_APPROVAL_REQUESTED:
            self._add_question(event)
        elif kind == EventKind.HUMAN_APPROVAL_RECEIVED:
            self._add_answer(payload)
        elif kind == EventKind.EVENT_RECEIVED:
            self.inbox.add(event)
        elif kind == EventKind.WORKSPACE_MOVED:
            self.leave_places()
        elif kind in NOTE_KINDS:
            place = event.lane_id, str(payload.get("after", ""))
            self.notes[place] = self.notes.get(place, 0) + 1

    def leave_places(self) -> None:
        """Note of commands in flight that the files they worked on were left: a place has others when it is next."""
        for record in self.by_key.values():
            if record.place:
                record.place = {**record.place, "is_left": True}

    def _add_run_event(self, kind: str, payload: Mapping[str, Any]) -> None:
        # A run ends once. What was appended beside its end, by a writer that did not know of it, changes nothing any
        # more.
        was_over = isinstance(self.status, RunStatus) and self.status.is_terminal
        self.status = status_after(self.status, kind)
        if kind == EventKind.RUN_CREATED and self.created is None:
            self.created = {**payload, "fingerprint": _object(payload.get("fingerprint"))}
        elif kind in (EventKind.RUN_STARTED, EventKind.RUN_RESUMED):
            self.is_started, self.is_retry_requested = True, False
            self.pause_request = None  # whoever goes on with it knows that it was to pause
        elif kind == EventKind.RUN_CANCEL_REQUESTED:
            self.cancel_requests += 1
            self.cancel_request = self.cancel_request or payload
        elif kind == EventKind.RUN_RESUME_REQUESTED:
            self.is_retry_requested = self.status is RunStatus.FAILED
        elif kind == EventKind.RUN_PAUSE_REQUESTED:
            self.pause_request = payload
        elif kind in _ENDS and not was_over:
            self.end = payload
            self.pause_request = None
            if kind != EventKind.RUN_PAUSED:
                self.cancel_request = None  # this is its answer, or it came too late
        # The failed steps that the run's own failure names are opened again, with their attempts counted anew: a retry
        # of the run makes them once more. Failures that the code has caught stay as they are and are replayed.
        if kind == EventKind.RUN_FAILED:
            for key in _texts(payload.get("steps")):
                for record in (self.by_key.get(("step", key)), self.by_key.get(("child", key))):
                    if record is not None and record.state is StepState.FAILED:
                        record.state, record.attempt = StepState.OPEN, 0
                        self._mark_reorderable(record)

    def _mark_reorderable(self, opened: Record) -> None:
        """Let the code take another way after a record that may now have another outcome."""
        # Only what came after the opened record can depend on its outcome. A lane beside it, of the same `gather`,
        # began before the outcome was known, so its order still holds.
        for lane_id, records in self.lanes.items():
            if not _are_parallel(lane_id, opened.lane_id):
                for record in records:
                    record.can_be_skipped |= record.first_seq > opened.last_seq

    def _add_step(self, event: Event, record_type: RecordType, state: StepState | None) -> None:
        payload = event.payload
        key = payload.get("key")
        if not isinstance(key, str):
            return  # an event of this kind that no durable step wrote
        record = self._find_scope(event) if record_type == "scope" else None
        if record is None:
            record = self._get(record_type, key, event)
        if record_type == "version":
            record.can_be_skipped = True  # a marker has no place: code that no longer asks for it is the same code
        elif record_type == "child" and "child" in payload:
            record.child_run_id = str(payload["child"])
        if "fingerprint" in payload:
            record.fingerprint = _object(payload["fingerprint"])
        if state is None:
            return
        record.state = state
        record.attempt = int(_number(payload["attempt"], 1)) if "attempt" in payload else record.attempt or 1
        if state is _COMPLETED:
            record.result = payload.get("result")
            record.result_type = payload.get("result_type")
            if record_type == "wait":
                record.result = self.inbox.take_from(payload)
                record.event_name = str(payload.get("name", ""))
        # A new attempt makes an earlier question about this step, and its answer, void.
        elif state is StepState.STARTED:
            record.has_question, record.answer = False, None
            record.place = _object(payload.get("place"))
            record.wake_at = _number(payload.get("wake_at"), 0.0)
        elif state is StepState.FAILED:
            record.error = _object(payload.get("error"))
            if "retry_at" in payload:
                record.state, record.retry_at = StepState.WAITING, _number(payload["retry_at"], 0.0)
                record.retry_in_s = max(0.0, record.retry_at - event.ts)

    def _add_completed(self, event: Event) -> bool:
        """Do what `add` does for the result of a step of which nothing was known; returns false for any other event."""
        payload, lane_id, seq = event.payload, event.lane_id, event.seq
        key, fingerprint = payload.get("key"), payload.get("fingerprint", _NOTHING)
        name: tuple[RecordType, Any] = ("step", key)
        is_odd = type(fingerprint) is not dict and fingerprint is not _NOTHING
        if is_odd or type(key) is not str or name in self.by_key or "attempt" in payload:
            return False
        result, result_type = payload.get("result"), payload.get("result_type")
        record = self.by_key[name] = Record(
            key, "step", lane_id, _COMPLETED, result, result_type, attempt=1, fingerprint=fingerprint
        )
        record.first_seq = record.last_seq = self.last_seq = seq
        lane = self.lanes.get(lane_id)
        if lane is None:
            lane = self.lanes[lane_id] = []
        lane.append(record)
        return True

    def _find_scope(self, event: Event) -> Record | None:
        """Find the scope that an event closes, or that a retry of the run has come to again: it keeps its place."""
        record = self.by_key.get(("scope", event.payload["key"]))
        if record is None or event.kind == EventKind.SCOPE_CLOSED:
            return record
        if not event.payload.get("again"):
            return None
        record.can_be_skipped = False
        return record

    def _add_question(self, event: Event) -> None:
        key = event.payload.get("key")
        if not isinstance(key, str):
            return
        record_type: RecordType = "step" if event.payload.get("about") == "outcome" else "approval"
        record = self._get(record_type, key, event)
        record.has_question, record.answer = True, None
        record.wake_at = _number(event.payload.get("wake_at"), 0.0)
        if record_type == "approval":
            record.fingerprint = _object(event.payload.get("fingerprint"))
            record.result = event.payload.get("approval_id")

    def _add_answer(self, payload: Mapping[str, Any]) -> None:
        key = payload.get("key")
        if not isinstance(key, str):
            return
        # An approval and a step of unknown outcome may have the same key. The answer is for the one that waits; where
        # nothing waits, it came too late and is passed over.
        found = [self.by_key.get(("approval", key)), self.by_key.get(("step", key))]
        record = next((r for r in found if r is not None and (r.is_waiting_for_person or r.is_in_doubt)), None)
        if record is not None:
            record.answer = payload
            self._mark_reorderable(record)

    def _get(self, record_type: RecordType, key: str, event: Event) -> Record:
        name, seq = (record_type, key), event.seq
        record = self.by_key.get(name)
        if record is not None and record.can_be_skipped:
            self.lanes[record.lane_id].remove(record)  # what happens again has its place here, not where it was before
            record = None
        if record is None:
            lane_id = event.lane_id
            record = self.by_key[name] = Record(key, record_type, lane_id, first_seq=seq)
            lane = self.lanes.get(lane_id)
            if lane is None:
                lane = self.lanes[lane_id] = []
            lane.append(record)
        record.last_seq = seq
        return record

    def open_scopes(self) -> list[Record]:
        """List the compensations that a cancellation would have to run."""
        return [one for one in self.by_key.values() if one.type == "scope" and one.state is StepState.STARTED]

    def open_children(self) -> list[Record]:
        """List the child flows that were started and have not come back."""
        return [one for one in self.by_key.values() if one.type == "child" and one.state is StepState.STARTED]

    def waiting_for_person(self) -> list[Record]:
        return [record for record in self.by_key.values() if record.is_waiting_for_person]


_STEP_COMPLETED = EventKind.STEP_COMPLETED
NOTE_KINDS = (EventKind.LOG_WRITTEN, EventKind.STATUS_SET, EventKind.PARTIAL_EMITTED)
_ENDS = (EventKind.RUN_COMPLETED, EventKind.RUN_FAILED, EventKind.RUN_CANCELLED, EventKind.RUN_PAUSED)


def _are_parallel(lane_id: str, other: str) -> bool:
    """Return true if two lanes ran beside each other, being of one `gather`, and not one after the other."""
    for mine, others in zip(lane_id.split("/"), other.split("/"), strict=False):
        if mine != others:
            return mine.partition(".")[0] == others.partition(".")[0]
    return False


# An outside writer can put anything into an event; the fold takes what makes sense of it.


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any, default: float) -> float:
    return value if isinstance(value, int | float) else default


def _texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list | tuple) else []


def fingerprint_of(**components: Any) -> dict[str, str]:
    """Hash each component, so that a replay can tell *what* changed; an empty text for what is no JSON data."""
    hashes: dict[str, str] = {}
    for name, value in components.items():
        try:
            hashes[name] = hashlib.sha256(to_canonical_json(value)).hexdigest()[:16]
        except PayloadInvalid:
            hashes[name] = ""
    return hashes


def check_fingerprint(what: str, recorded: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise `Nondeterminism` naming the components that differ; what either side does not know is not compared."""
    changed = [name for name, value in now.items() if value and recorded.get(name) and recorded[name] != value]
    if changed:
        raise Nondeterminism(f"{what} was recorded with other {' and '.join(changed)} than now.", changed=changed)


def describe(record_type: RecordType, key: str) -> str:
    return f"{_TYPE_NAMES[record_type]} {key!r}"
