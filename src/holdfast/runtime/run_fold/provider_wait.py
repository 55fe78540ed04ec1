"""For which provider a run waits, by what its journal said last.

Rule: only a wait of some seconds is in a journal. What was said of a lane holds until its next event of another kind,
and a moment that was named no longer than until then.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from holdfast.runtime.events import EventKind

SHOWN_AFTER_S = 3.0  # a shorter wait is not worth an event
WAIT_KINDS = (EventKind.AGENT_PROGRESS.value, EventKind.MODEL_ERROR.value)
_TOO_MANY = "rate_limited"


@dataclass(frozen=True)
class ProviderWait:
    """A sentence, and the moment in epoch seconds at which it ends if a time alone is waited for."""

    text: str
    until: float | None = None

    def describe(self) -> str:
        if self.until is None:
            return self.text
        return f"{self.text.removesuffix('.')}, until {datetime.fromtimestamp(self.until, UTC):%H:%M:%S} UTC."

    def is_over(self, now_s: float) -> bool:
        return self.until is not None and self.until <= now_s

    def to_payload(self) -> dict[str, Any]:
        return {"waiting_for": self.text} | ({} if self.until is None else {"until": self.until})


def find_wait(events: Iterable[tuple[str, Mapping[str, Any]]], now_s: float) -> ProviderWait | None:
    """Find what a run waits for, by its last events in order: the kind and the body of each."""
    waits: dict[str, ProviderWait] = {}
    for kind, body in events:
        lane_id = str(body.get("lane_id", "main"))
        if kind.startswith("run."):
            waits.clear()
        wait = _read_wait(kind, body)
        if wait is not None:
            waits[lane_id] = wait
        else:
            waits.pop(lane_id, None)
    return next((wait for wait in reversed(waits.values()) if not wait.is_over(now_s)), None)


def _read_wait(kind: str, body: Mapping[str, Any]) -> ProviderWait | None:
    payload = body.get("payload")
    if kind not in WAIT_KINDS or not isinstance(payload, Mapping):
        return None
    if kind == EventKind.AGENT_PROGRESS:
        text, until = payload.get("waiting_for"), payload.get("until")
        return ProviderWait(str(text), until if isinstance(until, float) else None) if text else None
    until, error = payload.get("retry_at"), payload.get("error")
    if not isinstance(until, float) or until < float(body.get("ts", until)) + SHOWN_AFTER_S:
        return None
    facts = error if isinstance(error, Mapping) else {}
    why = ": too many requests" if facts.get("code") == _TOO_MANY else " to be asked again"
    return ProviderWait(f"Waits for {facts.get('model') or 'the model'}{why}.", until)
