"""A run in lines, from its journal alone: pure, one line per event, safe to print.

Rule: what an event holds may have been written by anyone, so nothing of it reaches the terminal but printable text.
"""

from collections.abc import Iterable

from holdfast.runtime.event_text import clean, describe_event
from holdfast.runtime.events import Event, EventKind

_MAX_CHARS = 80


def transcript(events: Iterable[Event]) -> list[str]:
    """List what happened, in order: number, seconds since the first event, and what it was.

    Pieces of one streamed text become one line. An event of a newer version is shown with its kind and payload.
    """
    lines: list[str] = []
    first_at: float | None = None
    for event in join_texts(events):
        first_at = event.ts if first_at is None else first_at
        lines.append(f"{event.seq:>4}  {event.ts - first_at:>+8.2f} s  {_lane(event)}{_to_line(event)}")
    return lines


def join_texts(events: Iterable[Event]) -> Iterable[Event]:
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


def _to_line(event: Event) -> str:
    text = describe_event(event)
    detail = " ".join(text.detail.split())
    if not detail:
        return text.phrase
    return clean(f"{text.phrase}: {detail if len(detail) <= _MAX_CHARS else f'{detail[: _MAX_CHARS - 1]}…'}")


def _lane(event: Event) -> str:
    key = event.payload.get("key")
    is_in_key = isinstance(key, str) and key.startswith(f"{event.lane_id}/")
    return "" if event.lane_id == "main" or is_in_key else f"[{clean(event.lane_id)}] "
