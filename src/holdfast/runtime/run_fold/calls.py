"""The calls of a run: each from its request to its answer, with its tries, over crashes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar

from holdfast.runtime.event_text import iter_messages
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.run_fold.call_line import describe_subject
from holdfast.runtime.run_fold.event_fold import EventFold, EventTable, to_lane, to_number, to_text
from holdfast.runtime.run_fold.payload_text import error_text, first_line
from holdfast.runtime.run_fold.tool_outcomes import describe_failure

DELEGATION = "task"
"""The tool by which an agent starts a subagent, whose calls have the key of that tool call as their lane."""
_TOOL_MARK = ".t"
_BRIEF_CHARS = 80


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
    tokens_in: int = 0
    tokens_out: int = 0
    is_in_flight: bool = False
    """It was made and nothing was recorded of its outcome; a try that failed has one, also if another follows."""


class CallLog(EventFold):
    """The calls of a run by their keys, in the order in which they began."""

    def __init__(self) -> None:
        self.by_key: dict[str, CallSpan] = {}
        self._answers: dict[str, tuple[str, Any]] = {}
        """By lane the last answer of its model, with its key: it has the arguments of the subagents that come next."""
        self._inferred: set[str] = set()

    def find_open(self) -> CallSpan | None:
        """Return the latest call that has begun and not ended."""
        return next((call for call in reversed(self.by_key.values()) if call.state is CallStatus.OPEN), None)

    def _start(self, event: Event) -> None:
        key = event.payload.get("key")
        if not isinstance(key, str):
            return
        self._infer_delegation(event)
        call = self.by_key.get(key)
        if call is None:
            call = self._new_call(event, key, event.ts)
        else:  # again, after a crash or a failed try
            call.state, call.until, call.tries = CallStatus.OPEN, None, call.tries + 1
            call.lane_id = event.lane_id
        call.is_in_flight = True

    def _infer_delegation(self, event: Event) -> None:
        """Open the call that began the subagent of this event: it is recorded when it ends, after all of theirs."""
        lane = str(event.lane_id or "")
        asking, _, position = lane.rpartition(_TOOL_MARK)
        if not position.isdecimal() or lane in self.by_key:
            return
        parent = asking.rpartition("/")[0]
        key, answer = self._answers.get(parent, ("", None))
        request = _find_request(answer, int(position)) if key == asking else {}
        start = replace(event, lane_id=parent, kind=EventKind.TOOL_STARTED, payload={"tool": DELEGATION, **request})
        self._new_call(start, lane, event.ts)
        self._inferred.add(lane)

    def _new_call(self, event: Event, key: str, since: float) -> CallSpan:
        lane, type_ = to_lane(event), CallType(event.kind.partition(".")[0])
        model, tool = (to_text(event.payload.get(name)) for name in ("model", "tool"))
        self.by_key[key] = call = CallSpan(
            key=key,
            type=type_,
            label=(model or "model") if type_ is CallType.MODEL else _label_tool(tool, event.payload) or key,
            brief=describe_subject(event.payload, _BRIEF_CHARS),
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
        if key in self._inferred:
            self._inferred.remove(key)
            call.since, call.start_seq = min(call.since, event.ts - took), event.seq
            call.label = _label_tool(call.tool, event.payload)
        call.state = CallStatus.OPEN if "retry_at" in event.payload else _OUTCOMES[event.kind]
        call.until, call.end_seq, call.is_in_flight = event.ts, event.seq, False
        call.error = error_text(event.payload.get("error"))
        call.outcome = describe_failure(result) if event.kind == EventKind.TOOL_RESULT else ""
        if call.outcome:
            call.state = CallStatus.FAILED
        call.brief = describe_subject({"tool": call.tool, **event.payload}, _BRIEF_CHARS) or call.brief
        if event.kind == EventKind.MODEL_RESPONSE and isinstance(result, dict):
            self._answers[event.lane_id] = (key, result)
            usage = result.get("usage")
            counts = usage if isinstance(usage, dict) else {}
            call.tokens_in, call.tokens_out = (
                round(to_number(counts.get(name))) for name in ("input_tokens", "output_tokens")
            )

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


def _to_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _find_request(answer: Any, position: int) -> dict[str, Any]:
    """Return tool and arguments of the call at this position in a model's answer; nothing where it has none."""
    requests = [each for message in iter_messages(answer) for each in _to_list(message.get("tool_calls"))]
    request = requests[position] if position < len(requests) else None
    if not isinstance(request, Mapping):
        return {}
    return {"tool": to_text(request.get("name")) or DELEGATION, "args": request.get("args")}


def _label_tool(tool: str, payload: Mapping[str, Any]) -> str:
    """Return what a tool call is called: of a delegation the name of the subagent."""
    args = payload.get("args")
    name = to_text(args.get("subagent_type")) if tool == DELEGATION and isinstance(args, Mapping) else ""
    return f"subagent {first_line(name, 60)}" if name else tool


_OUTCOMES: Mapping[str, CallStatus] = {
    EventKind.MODEL_RESPONSE: CallStatus.DONE,
    EventKind.MODEL_ERROR: CallStatus.FAILED,
    EventKind.TOOL_RESULT: CallStatus.DONE,
    EventKind.TOOL_ERROR: CallStatus.FAILED,
    EventKind.STEP_COMPLETED: CallStatus.DONE,
    EventKind.STEP_FAILED: CallStatus.FAILED,
}
