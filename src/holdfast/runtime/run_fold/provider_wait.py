"""For which provider a run waits, by what its journal said last: the same on every server and for every command.

Rule: only a wait of some seconds is in a journal, and nothing else is written for it. What was said of a lane holds
until its next event, and a moment that was named no longer than until then. A run that stands still writes no events,
so that its last few say why; of a run that nobody drives they say nothing.
"""

import itertools
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast.runtime.clock import now
from holdfast.runtime.events import EventKind

if TYPE_CHECKING:
    from holdfast.runtime.checkpoint.base import JournalStore

LONG_S = 3.0  # a shorter wait is not worth an event
_WAIT_KINDS = (EventKind.AGENT_PROGRESS.value, EventKind.MODEL_ERROR.value)
_TOO_MANY = "rate_limited"
_LAST_EVENTS = 20  # of one run; other lanes, and people, may write while one of its lanes waits
_LAST = f"""
SELECT e.run_id, e.type, e.body FROM journal_runs AS j JOIN events AS e ON e.run_id = j.run_id
WHERE j.run_id IN ({{names}}) AND e.seq >= (SELECT min(w.seq) FROM events AS w
    WHERE w.run_id = j.run_id AND w.seq > j.head - {_LAST_EVENTS} AND w.type IN {_WAIT_KINDS})
ORDER BY e.run_id, e.seq
"""  # noqa: S608 - ours


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


def read_provider_waits(store: "JournalStore", run_ids: Collection[str]) -> dict[str, str]:
    """Say of each of these runs that a living process drives, and that waits for a provider, for which and why."""
    found = describe_waits(store.read_rows(*select_last_events(run_ids))) if run_ids else {}
    owned = store.find_owned(list(found)) if found else set()
    return {run_id: text for run_id, text in found.items() if run_id in owned}


def select_last_events(run_ids: Collection[str]) -> tuple[str, dict[str, str]]:
    """Return the query, with its parameters, for what `describe_waits` needs to know of these runs."""
    params = {f"run_{number}": run_id for number, run_id in enumerate(run_ids)}
    return _LAST.format(names=", ".join(f":{name}" for name in params)), params


def describe_waits(rows: Iterable[Sequence[Any]]) -> dict[str, str]:
    """Say of each run that waits for a provider for which and why, by the rows that the query has found."""
    found: dict[str, str] = {}
    for run_id, events in itertools.groupby(rows, key=lambda row: str(row[0])):
        wait = find_wait([(str(kind), json.loads(body)) for _, kind, body in events], now())
        if wait is not None:
            found[run_id] = wait.describe()
    return found


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
    if kind not in _WAIT_KINDS or not isinstance(payload, Mapping):
        return None
    if kind == EventKind.AGENT_PROGRESS:
        text, until = payload.get("waiting_for"), payload.get("until")
        return ProviderWait(str(text), until if isinstance(until, float) else None) if text else None
    until, error = payload.get("retry_at"), payload.get("error")
    if not isinstance(until, float) or until < float(body.get("ts", until)) + LONG_S:
        return None
    facts = error if isinstance(error, Mapping) else {}
    why = ": too many requests" if facts.get("code") == _TOO_MANY else " to be asked again"
    return ProviderWait(f"Waits for {facts.get('model') or 'the model'}{why}.", until)
