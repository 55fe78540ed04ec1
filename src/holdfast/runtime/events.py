"""The one vocabulary of what happened. Events are for ever: a kind only gains optional payload fields.

Rule for readers: an event of a newer version is still an event. Its unknown kind stays a string and its unknown keys
stay in `extra`, so that reading and writing it again loses nothing.
"""

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, cast

import msgspec

from holdfast.errors import PayloadInvalid
from holdfast.runtime.jsondata import from_json, to_json


class EventKind(StrEnum):
    RUN_CREATED = "run.created"
    RUN_STARTED = "run.started"
    RUN_RESUMED = "run.resumed"
    RUN_PAUSED = "run.paused"
    RUN_FINISHED = "run.finished"
    RUN_COMPLETED = "run.completed"
    RUN_FAILED = "run.failed"
    RUN_CANCELLED = "run.cancelled"
    RUN_ERROR = "run.error"
    RUN_CANCEL_REQUESTED = "run.cancel.requested"
    RUN_RESUME_REQUESTED = "run.resume.requested"
    RUN_PAUSE_REQUESTED = "run.pause.requested"
    RUN_MERGE_REQUESTED = "run.merge.requested"
    RUN_MERGED = "run.merged"
    RUN_CHANGED = "run.changed"

    PHASE_STARTED = "phase.started"
    PHASE_SKIPPED = "phase.skipped"
    PHASE_COMPLETED = "phase.completed"
    PHASE_FAILED = "phase.failed"
    PHASE_REOPENED = "phase.reopened"
    WORKSPACE_PREPARED = "workspace.prepared"
    WORKSPACE_MOVED = "workspace.moved"
    WORKSPACE_CARRIED = "workspace.carried"

    STEP_STARTED = "step.started"
    STEP_COMPLETED = "step.completed"
    STEP_FAILED = "step.failed"
    STEP_UNKNOWN = "step.unknown"
    TIMER_STARTED = "timer.started"
    VALUE_RECORDED = "value.recorded"
    EVENT_RECEIVED = "event.received"
    WAIT_STARTED = "wait.started"
    WAIT_COMPLETED = "wait.completed"
    WAIT_EXPIRED = "wait.expired"
    CHILD_STARTED = "child.started"
    CHILD_COMPLETED = "child.completed"
    CHILD_FAILED = "child.failed"
    SCOPE_OPENED = "scope.opened"
    SCOPE_CLOSED = "scope.closed"
    CANCEL_DELIVERED = "cancel.delivered"
    VERSION_MARKED = "version.marked"
    LOG_WRITTEN = "log.written"
    STATUS_SET = "status.set"
    PARTIAL_EMITTED = "partial.emitted"

    AGENT_STARTED = "agent.started"
    AGENT_PROGRESS = "agent.progress"
    AGENT_FINISHED = "agent.finished"
    AGENT_ERROR = "agent.error"
    REASONING_SUMMARY = "reasoning.summary"

    MODEL_REQUEST = "model.request"
    MODEL_RESPONSE = "model.response"
    MODEL_ERROR = "model.error"
    TEXT_DELTA = "text.delta"
    TEXT_DONE = "text.done"

    TOOL_STARTED = "tool.started"
    TOOL_ARGS = "tool.args"
    TOOL_RESULT = "tool.result"
    TOOL_ERROR = "tool.error"
    TOOL_UNKNOWN = "tool.unknown"

    STATE_SNAPSHOT = "state.snapshot"
    STATE_DELTA = "state.delta"
    CHECKPOINT_SAVED = "checkpoint.saved"

    HUMAN_APPROVAL_REQUESTED = "human.approval.requested"
    HUMAN_APPROVAL_RECEIVED = "human.approval.received"
    HUMAN_APPROVAL_FIRST = "human.approval.first"

    MESSAGE_RECEIVED = "message.received"

    ARTIFACT_WRITTEN = "artifact.written"
    ARTIFACT_ACCEPTED = "artifact.accepted"
    ARTIFACT_REJECTED = "artifact.rejected"

    BUDGET_RESERVED = "budget.reserved"
    BUDGET_SETTLED = "budget.settled"
    BUDGET_EXHAUSTED = "budget.exhausted"
    BUDGET_RAISED = "budget.raised"

    TOKEN_CREATED = "token.created"  # noqa: S105 - a kind, no secret
    TOKEN_REVOKED = "token.revoked"  # noqa: S105
    SESSION_OPENED = "session.opened"
    SESSION_ENDED = "session.ended"


class Visibility(StrEnum):
    """Who an event is for: users, operators, developers."""

    PUBLIC = "public"
    INTERNAL = "internal"
    DEBUG = "debug"


_random = random.Random()  # noqa: S311 - names of spans are no secret; seeded by the system, without a call for each
os.register_at_fork(after_in_child=_random.seed)

_KINDS: dict[str, EventKind] = {kind.value: kind for kind in EventKind}
_VISIBILITIES: dict[str, Visibility] = {visibility.value: visibility for visibility in Visibility}
_TERMINAL = {"run.completed", "run.failed", "run.cancelled", "run.finished", "run.error"}


@dataclass(frozen=True)
class Event:
    """One thing that happened in a run. `seq` 0 means "not numbered yet"; `ts` is in epoch seconds."""

    run_id: str
    session_id: str = ""
    lane_id: str = "main"
    span_id: str = field(default_factory=lambda: new_span_id())
    parent_span_id: str | None = None
    seq: int = 0
    ts: float = field(default_factory=time.time)
    kind: EventKind | str = ""
    visibility: Visibility | str = Visibility.PUBLIC
    payload: dict[str, Any] = field(default_factory=dict, hash=False)
    extra: dict[str, Any] = field(default_factory=dict, hash=False, repr=False)

    def __post_init__(self) -> None:
        if not self.kind:
            raise TypeError("Event needs a kind")
        known = _KINDS.get(self.kind)
        if known is not None and known is not self.kind:
            object.__setattr__(self, "kind", known)
        visibility = _VISIBILITIES.get(self.visibility)
        if visibility is not None and visibility is not self.visibility:
            object.__setattr__(self, "visibility", visibility)

    @property
    def is_terminal(self) -> bool:
        return self.kind in _TERMINAL

    @property
    def is_error(self) -> bool:
        return self.kind.endswith((".error", ".failed"))

    def to_dict(self) -> dict[str, Any]:
        return {**self.extra, "run_id": self.run_id, "seq": self.seq, **_content(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Event":
        """Rebuild an event. Raises `PayloadInvalid` if it names no run or no kind."""
        known = {key: value for key, value in data.items() if key in _FIELDS}
        unknown = {key: value for key, value in data.items() if key not in _FIELDS}
        kind = known.get("kind")
        is_event = known.get("run_id") and kind and isinstance(kind, str) and isinstance(known.get("payload", {}), dict)
        if not is_event:
            raise PayloadInvalid("An event needs run_id, kind and, if at all, a payload that is an object.")
        if "ts" in known:
            known["ts"] = float(known["ts"])
        return cls(**known, extra=unknown)


_CONTENT = ["session_id", "lane_id", "span_id", "parent_span_id", "ts", "kind", "visibility", "payload"]
_FIELDS = {*_CONTENT, "run_id", "seq"}


def _content(event: Event) -> dict[str, Any]:
    return {
        "session_id": event.session_id,
        "lane_id": event.lane_id,
        "span_id": event.span_id,
        "parent_span_id": event.parent_span_id,
        "ts": float(event.ts),
        "kind": str(event.kind),
        "visibility": str(event.visibility),
        "payload": event.payload,
    }


def create_event(
    run_id: str,
    kind: EventKind | str,
    lane_id: str = "main",
    seq: int = 0,
    parent_span_id: str | None = None,
    visibility: Visibility | str = Visibility.PUBLIC,
    **payload: Any,
) -> Event:
    """Make an event; every other keyword becomes part of its payload."""
    if not kind:
        raise TypeError("create_event needs a kind")
    return _make(
        run_id,
        "",
        lane_id,
        new_span_id(),
        parent_span_id,
        seq,
        time.time(),
        _KINDS.get(kind, kind),
        _VISIBILITIES.get(visibility, visibility),
        payload,
    )


def new_span_id() -> str:
    """Return a name for a new span, random and of 16 digits."""
    return _random.getrandbits(64).to_bytes(8, "big").hex()


class _Unfrozen:
    """An event while it is made. A frozen dataclass sets its attributes by a call each, which is three times as slow;
    reading 100,000 events, or appending for 64 runs at once, is where that counts."""

    def __init__(
        self,
        run_id: str,
        session_id: str,
        lane_id: str,
        span_id: str,
        parent_span_id: str | None,
        seq: int,
        ts: float,
        kind: EventKind | str,
        visibility: Visibility | str,
        payload: dict[str, Any],
    ) -> None:
        self.run_id = run_id
        self.session_id = session_id
        self.lane_id = lane_id
        self.span_id = span_id
        self.parent_span_id = parent_span_id
        self.seq = seq
        self.ts = ts
        self.kind = kind
        self.visibility = visibility
        self.payload = payload
        self.extra: dict[str, Any] = {}
        self.__class__ = Event  # type: ignore[assignment]  # from here on it is frozen


_make = cast("Callable[..., Event]", _Unfrozen)


class _StoredEvent(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A body of ours: what is left out holds its default. Whatever does not fit takes the careful way."""

    kind: str
    ts: float
    span_id: str
    payload: dict[str, Any]
    session_id: str = ""
    lane_id: str = "main"
    parent_span_id: str | None = None
    visibility: str = "public"


_decode_stored = msgspec.json.Decoder(_StoredEvent).decode
_decode_many = msgspec.json.Decoder(list[_StoredEvent]).decode


def to_body(event: Event) -> tuple[bytes, dict[str, Any]]:
    """Encode all of an event but its run and number, which the store adds; returns a copy of its payload too.

    What holds its default is left out, which saves a fifth of the store. Raises `PayloadInvalid`.
    """
    ts = event.ts
    if type(ts) is not float or type(event.payload) is not dict or "\0" in event.kind or event.extra:
        _check_odd(event)
        ts = float(ts)
    if not (type(event.lane_id) is type(event.session_id) is type(event.span_id) is str):
        _check_texts(event)
    stored = {**event.extra, "kind": str(event.kind), "ts": ts, "span_id": event.span_id, "payload": event.payload}
    if event.session_id:
        stored["session_id"] = event.session_id
    if event.lane_id != "main":
        stored["lane_id"] = event.lane_id
    if event.parent_span_id is not None:
        stored["parent_span_id"] = event.parent_span_id
    if event.visibility != "public":
        stored["visibility"] = str(event.visibility)
    body, copy = to_json(stored, "event")
    return body, copy["payload"]


def content_of(event: Event, payload: dict[str, Any]) -> dict[str, Any]:
    """Return all of an event but its run and number, with this payload."""
    return {**event.extra, **_content(event), "payload": payload}


def _check_texts(event: Event) -> None:
    for name in ("session_id", "lane_id", "span_id"):
        if not isinstance(getattr(event, name), str):
            raise PayloadInvalid(f"{name} of an event must be a string, not {getattr(event, name)!r}.")


def _check_odd(event: Event) -> None:
    if isinstance(event.ts, bool) or not isinstance(event.ts, int | float):
        raise PayloadInvalid(f"ts of an event must be a number of epoch seconds, not {event.ts!r}.")
    if not isinstance(event.payload, dict):
        raise PayloadInvalid(f"The payload of an event must be an object, not a {type(event.payload).__name__}.")
    if "\0" in event.kind:
        raise PayloadInvalid("The kind of an event must not hold NUL.")
    if any(key.startswith("$") for key in event.extra):
        raise PayloadInvalid("A key of an event must not start with '$'; such keys are the store's own.")


def from_body(run_id: str, seq: int, body: bytes | str) -> Event:
    """Decode what `to_body` made, or an older or newer version of it. Raises what a body that is no event raises."""
    try:
        return _from_stored(run_id, seq, _decode_stored(body))
    except msgspec.ValidationError:
        return from_content(run_id, seq, from_json(body))


def from_bodies(run_id: str, numbers: Sequence[int], bodies: Sequence[bytes]) -> list[Event] | None:
    """Decode many bodies at once, in half the time of `from_body`; `None` if one of them is not of this version."""
    try:
        many = _decode_many(b"[%b]" % b",".join(bodies))
    except msgspec.MsgspecError:
        return None
    if len(many) != len(bodies):
        return None
    return [_from_stored(run_id, seq, stored) for seq, stored in zip(numbers, many, strict=True)]


def _from_stored(run_id: str, seq: int, stored: _StoredEvent) -> Event:
    kind, visibility = stored.kind, stored.visibility
    return _make(
        run_id,
        stored.session_id,
        stored.lane_id,
        stored.span_id,
        stored.parent_span_id,
        seq,
        stored.ts,
        _KINDS.get(kind, kind),
        _VISIBILITIES.get(visibility, visibility),
        stored.payload,
    )


def from_content(run_id: str, seq: int, content: dict[str, Any]) -> Event:
    if list(content) != _CONTENT:  # our own order; anything else takes the careful way
        return Event.from_dict({**content, "run_id": run_id, "seq": seq})
    kind, visibility = content["kind"], content["visibility"]
    return _make(
        run_id,
        content["session_id"],
        content["lane_id"],
        content["span_id"],
        content["parent_span_id"],
        seq,
        content["ts"],
        _KINDS.get(kind, kind),
        _VISIBILITIES.get(visibility, visibility),
        content["payload"],
    )
