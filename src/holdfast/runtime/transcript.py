"""A run told from its journal alone: pure, one line per event, safe to print.

Rule: what an event holds may have been written by anyone, so nothing of it reaches the terminal but printable text.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.jsondata import to_json

_MAX_CHARS = 80
_PHRASES: Mapping[str, str] = {
    EventKind.RUN_CREATED: "run created: {purpose}",
    EventKind.RUN_STARTED: "run started",
    EventKind.RUN_RESUMED: "run resumed",
    EventKind.RUN_PAUSED: "run paused, waits for {waiting}",
    EventKind.RUN_COMPLETED: "run completed: {result}",
    EventKind.RUN_FAILED: "run failed: {error}",
    EventKind.RUN_CANCEL_REQUESTED: "cancelling asked for{by}{reason}",
    EventKind.RUN_CANCELLED: "run cancelled{by}{reason}",
    EventKind.STEP_STARTED: "{key} started{attempt}",
    EventKind.STEP_COMPLETED: "{key} completed{attempt}{resolved}: {result}",
    EventKind.STEP_FAILED: "{key} failed{attempt}: {error}{retry_at}",
    EventKind.STEP_UNKNOWN: "{key} was in flight when its process died: {resolution}",
    EventKind.TIMER_STARTED: "{key} for {seconds} s",
    EventKind.HUMAN_APPROVAL_REQUESTED: "{key} waits for a person: {show}",
    EventKind.HUMAN_APPROVAL_RECEIVED: "{key} answered{by}: {action}{comment}",
    EventKind.TEXT_DELTA: "{text}",
}
_IF_THERE: Mapping[str, str] = {
    "by": " by {}",
    "reason": ": {}",
    "comment": ", {}",
    "resolved": ", {}",
    "retry_at": ", to be tried again",
}


def transcript(events: Iterable[Event]) -> list[str]:
    """Tell what happened, in order: number, seconds since the first event, and what it was.

    Pieces of one streamed text become one line. An event of a newer version is shown with its kind and payload.
    """
    lines: list[str] = []
    first_at: float | None = None
    for event in _joined(events):
        first_at = event.ts if first_at is None else first_at
        lines.append(f"{event.seq:>4}  {event.ts - first_at:>+8.2f} s  {_lane(event)}{_tell(event)}")
    return lines


def _joined(events: Iterable[Event]) -> Iterable[Event]:
    """Put the pieces of a streamed text together where they follow each other."""
    pending: Event | None = None
    for event in events:
        if pending is not None and _continues(pending, event):
            text = f"{pending.payload['text']}{event.payload['text']}"
            pending = Event.from_dict({**pending.to_dict(), "payload": {**pending.payload, "text": text}})
            continue
        if pending is not None:
            yield pending
        pending = event
    if pending is not None:
        yield pending


def _continues(before: Event, event: Event) -> bool:
    is_text = before.kind == event.kind == EventKind.TEXT_DELTA and before.lane_id == event.lane_id
    return is_text and all(isinstance(one.payload.get("text"), str) for one in (before, event))


def _lane(event: Event) -> str:
    key = event.payload.get("key")
    is_in_key = isinstance(key, str) and key.startswith(f"{event.lane_id}/")
    return "" if event.lane_id == "main" or is_in_key else f"[{_clean(event.lane_id)}] "


def _tell(event: Event) -> str:
    phrase = _PHRASES.get(event.kind)
    if phrase is None:
        details = _show(event.payload) if event.payload else ""
        return f"{_clean(event.kind)} {details}".rstrip()
    return phrase.format_map(_Words(event.payload))


class _Words(dict[str, str]):
    """The words of a payload as a phrase asks for them; what is not there says nothing."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        super().__init__()
        self._payload = payload

    def __missing__(self, name: str) -> str:
        value = self._payload.get(name)
        if name == "attempt":
            return f" (attempt {_show(value)})" if value not in (None, 1) else ""
        if name in _IF_THERE:
            return _IF_THERE[name].format(_show(value)) if value else ""
        if name == "error" and isinstance(value, dict):
            value = value.get("message") or value.get("type")
        if name == "waiting" and isinstance(value, list):
            return " and ".join(_show(item) for item in value)
        return _show(value)


def _show(value: Any) -> str:
    text = value if isinstance(value, str) else to_json(value)[0].decode()
    return _clean(text if len(text) <= _MAX_CHARS else f"{text[: _MAX_CHARS - 1]}…")


def _clean(text: str) -> str:
    return text if text.isprintable() else "".join(char if char.isprintable() else " " for char in text)
