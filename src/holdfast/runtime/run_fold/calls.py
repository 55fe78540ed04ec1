"""The calls of a run: each from its request to its answer, with its tries, over crashes."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.run_fold.event_fold import EventFold, EventTable, to_lane, to_number, to_text
from holdfast.runtime.run_fold.payload_text import brief, error_text, first_line
from holdfast.runtime.run_fold.tool_outcomes import describe_failure


class CallType(StrEnum):
    MODEL = "model"
    TOOL = "tool"
    STEP = "step"


class CallStatus(StrEnum):
    """How a call stands; `cut` is one without an answer when its run ended."""

    OPEN = "open"
    DONE = "done"
    FAILED = "failed"
    CUT = "cut"


@dataclass
class CallSpan:
    """A model call, a tool call or a step of code, from its request to its answer, all its tries together."""

    key: str
    type: CallType
    label: str
    brief: str
    lane_id: str
    phase: str
    attempt: int
    since: float
    start_seq: int
    model: str = ""
    tool: str = ""
    until: float | None = None
    state: CallStatus = CallStatus.OPEN
    tries: int = 1
    error: str = ""
    outcome: str = ""
    """How it failed although it came back: denied, or with an exit code."""
    end_seq: int | None = None
    micros: int = 0
    is_unknown: bool = False
    is_in_flight: bool = False
    """It was made and nothing was recorded of its outcome; a try that failed has one, also if another follows."""


class CallLog(EventFold):
    """The calls of a run by their keys, in the order in which they began."""

    def __init__(self) -> None:
        self.by_key: dict[str, CallSpan] = {}

    def find_open(self) -> CallSpan | None:
        """Return the latest call that has begun and not ended."""
        return next((call for call in reversed(self.by_key.values()) if call.state is CallStatus.OPEN), None)

    def _start(self, event: Event) -> None:
        key = event.payload.get("key")
        if not isinstance(key, str):
            return
        call = self.by_key.get(key)
        if call is None:
            call = self._new_call(event, key, event.ts)
        else:  # again, after a crash or a failed try
            call.state, call.until, call.tries = CallStatus.OPEN, None, call.tries + 1
            call.lane_id = event.lane_id
        call.is_in_flight = True

    def _new_call(self, event: Event, key: str, since: float) -> CallSpan:
        lane, type_ = to_lane(event), CallType(event.kind.partition(".")[0])
        model, tool = (to_text(event.payload.get(name)) for name in ("model", "tool"))
        self.by_key[key] = call = CallSpan(
            key=key,
            type=type_,
            label=(model or "model") if type_ is CallType.MODEL else tool or key,
            brief=brief(event.payload.get("args")) or _command_line(event.payload.get("argv")),
            lane_id=event.lane_id,
            phase=lane.phase,
            attempt=lane.attempt,
            since=since,
            start_seq=event.seq,
            model=model,
            tool=tool,
        )
        return call

    def _end(self, event: Event) -> None:
        key, result = event.payload.get("key"), event.payload.get("result")
        if not isinstance(key, str):
            return
        # A call that re-runs safely is recorded once, when it has ended: it began as long before as it took.
        took = to_number(result.get("took_s")) if isinstance(result, dict) else 0
        call = self.by_key.get(key) or self._new_call(event, key, event.ts - took)
        call.state = CallStatus.OPEN if "retry_at" in event.payload else _OUTCOMES[event.kind]
        call.until, call.end_seq, call.is_in_flight = event.ts, event.seq, False
        call.error = error_text(event.payload.get("error"))
        call.outcome = describe_failure(result) if event.kind == EventKind.TOOL_RESULT else ""
        if call.outcome:
            call.state = CallStatus.FAILED
        call.brief = brief(event.payload.get("args")) or call.brief

    def _note_unknown(self, event: Event) -> None:
        call = self.by_key.get(to_text(event.payload.get("key")))
        # A command that went on by itself while its process was away is known as soon as that is back.
        if call is not None and event.payload.get("resolution") != "reattached":
            call.is_unknown = True

    def _cut(self, event: Event) -> None:
        for call in self.by_key.values():
            if call.state is CallStatus.OPEN:
                call.state, call.until = CallStatus.CUT, event.ts

    TABLE: ClassVar[EventTable] = {
        EventKind.MODEL_REQUEST: _start,
        EventKind.TOOL_STARTED: _start,
        EventKind.STEP_STARTED: _start,
        EventKind.MODEL_RESPONSE: _end,
        EventKind.MODEL_ERROR: _end,
        EventKind.TOOL_RESULT: _end,
        EventKind.TOOL_ERROR: _end,
        EventKind.STEP_COMPLETED: _end,
        EventKind.STEP_FAILED: _end,
        EventKind.TOOL_UNKNOWN: _note_unknown,
        EventKind.STEP_UNKNOWN: _note_unknown,
        EventKind.RUN_COMPLETED: _cut,
        EventKind.RUN_FAILED: _cut,
        EventKind.RUN_CANCELLED: _cut,
    }


def _command_line(argv: Any) -> str:
    """Return a command of the template, whose words are no arguments of a tool."""
    return first_line(" ".join(map(str, argv)), 100) if isinstance(argv, list) else ""


_OUTCOMES: Mapping[str, CallStatus] = {
    EventKind.MODEL_RESPONSE: CallStatus.DONE,
    EventKind.MODEL_ERROR: CallStatus.FAILED,
    EventKind.TOOL_RESULT: CallStatus.DONE,
    EventKind.TOOL_ERROR: CallStatus.FAILED,
    EventKind.STEP_COMPLETED: CallStatus.DONE,
    EventKind.STEP_FAILED: CallStatus.FAILED,
}
