"""What must be true after everything that went wrong, read from the database, the streams and the world outside.

Each check yields sentences of what is not so; of the database only its rows and journals are believed, and the
processes' own words nowhere.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from tests.support.chaos.jobs import CALL_MICROS, PAY, SHIP_MICROS, Workshop

from holdfast.persistence.event_feed import is_turn
from holdfast.runtime.checkpoint.base import JournalStore
from holdfast.runtime.events import Event, EventKind

WATCH_SQL = """
CREATE TABLE chaos_writes (run_id text, seq bigint, kind text, machine text, owner text, epoch bigint);
CREATE FUNCTION chaos_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
INSERT INTO chaos_writes SELECT NEW.run_id, NEW.seq, NEW.type, current_setting('chaos.machine', true), r.owner, r.epoch
FROM journal_runs AS r WHERE r.run_id = NEW.run_id;
RETURN NULL; END $$;
CREATE TRIGGER chaos_note AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION chaos_note();
"""
_STALE = """
SELECT run_id, seq, kind, machine, owner::json->>'host' FROM chaos_writes
WHERE machine <> '' AND owner IS NOT NULL AND owner::json->>'host' <> machine AND kind <> 'human.approval.received'
"""
_LEDGER = "SELECT run_id, state, amount_micros, model FROM ledger"
_DAYS = "SELECT coalesce(sum(spent_micros), 0) FROM budget_days"
_EPOCHS = "SELECT run_id, epoch FROM journal_runs"
_WRITTEN = "SELECT run_id, seq, epoch FROM chaos_writes"


@dataclass(frozen=True)
class Outside:
    """What the world outside of the database has seen."""

    workshop: Workshop
    calls: Counter[str]
    """Of each run at the model server."""
    frozen: frozenset[str]
    """Processes that were held for longer than a lease: what they had begun before may have been done after it."""
    stream: Sequence[Mapping[str, Any]]
    """The server's stream of all runs."""
    flow_streams: Sequence[Mapping[str, Any]]
    """Each flow's own."""


class Audit:
    def __init__(self, url: str, store: JournalStore, outside: Outside) -> None:
        self._outside = outside
        with psycopg.connect(url) as connection:
            self._stale = connection.execute(_STALE).fetchall()
            self._ledger = connection.execute(_LEDGER).fetchall()
            self._spent = int(str((connection.execute(_DAYS).fetchone() or (0,))[0]))
            self._epochs = dict(connection.execute(_EPOCHS).fetchall())
            written = connection.execute(_WRITTEN).fetchall()
            self._epoch_of = {(run_id, seq): int(str(epoch)) for run_id, seq, epoch in written}
        # Reading checks each journal's chain of hashes.
        self.journals = {run_id: store.list_events(run_id) for run_id in self._epochs}

    def run(self, runs: Sequence[str], flows: Sequence[str]) -> list[str]:
        """Every sentence of what is not as it must be."""
        found = [*self._check_writers(), *self._check_streams(runs, flows), *self._check_ledger()]
        for run_id in (*runs, *flows):
            found += self._check_end(run_id)
        for run_id in runs:
            found += self._check_calls(run_id)
        for run_id in flows:
            found += self._check_steps(run_id)
        return found

    def count_recorded(self) -> int:
        """The results that the journals hold, of steps and of calls."""
        kinds = (EventKind.STEP_COMPLETED, EventKind.TOOL_RESULT, EventKind.MODEL_RESPONSE)
        return sum(event.kind in kinds for events in self.journals.values() for event in events)

    def _check_writers(self) -> Iterator[str]:
        for run_id, seq, kind, machine, owner in self._stale:
            yield f"run {run_id}: {machine} wrote {kind} as number {seq}, while {owner} had the run"

    def _check_end(self, run_id: str) -> Iterator[str]:
        events = self.journals.get(run_id, [])
        if [event.seq for event in events] != list(range(1, len(events) + 1)):
            yield f"run {run_id}: its journal has gaps"
        ends = [str(event.kind) for event in events if event.is_terminal]
        if ends != [EventKind.RUN_COMPLETED]:
            yield f"run {run_id} ended {ends or 'not'}"

    def _check_streams(self, runs: Sequence[str], flows: Sequence[str]) -> Iterator[str]:
        of_all, of_flows = _numbers(self._outside.stream), _numbers(self._outside.flow_streams)
        for run_id in (*runs, *flows):
            events = self.journals[run_id]
            if of_all[run_id] != (expected := streamed_numbers(events, is_flow=run_id in flows)):
                yield f"run {run_id}: the stream of all runs had {of_all[run_id]} instead of {expected}"
            if run_id in flows and of_flows[run_id] != [event.seq for event in events]:
                yield f"flow {run_id}: its stream had {of_flows[run_id]}, its journal has {len(events)} events"

    def _check_ledger(self) -> Iterator[str]:
        if (total := sum(amount for _, _, amount, _ in self._ledger)) != self._spent:
            yield f"the ledger comes to {total} micro-dollars, the days' rows to {self._spent}"

    def _check_calls(self, run_id: str) -> Iterator[str]:
        """Compare the calls and commands of a workflow's run with what was really called, run and paid."""
        events = self.journals[run_id]
        responses = _count(events, EventKind.MODEL_RESPONSE)
        requests = _count(events, EventKind.MODEL_REQUEST)
        if not responses <= self._outside.calls[run_id] <= requests:
            yield f"run {run_id}: {requests} requests, {self._outside.calls[run_id]} calls, {responses} responses"
        for kind in (EventKind.MODEL_RESPONSE, EventKind.TOOL_RESULT):
            for key, count in Counter(_key_of(event) for event in events if event.kind == kind).items():
                if count > 1:
                    yield f"run {run_id}: {kind} of {key} is recorded {count} times"
        started = _count(events, EventKind.TOOL_STARTED, tool="agent")
        shipped = self._outside.workshop.read_shipped().count(run_id)
        if not 1 <= shipped <= started:
            yield f"run {run_id}: its command ran {shipped} times, the journal says {started}"
        settled = Counter(amount for run, state, amount, _ in self._ledger if run == run_id and state == "settled")
        if settled != {CALL_MICROS: responses, SHIP_MICROS: 1}:
            yield f"run {run_id}: {dict(settled)} is settled for {responses} responses and one command"

    def _count_claims(self, events: Sequence[Event], end: Event) -> int:
        """How many owners the run had from the moment that a step could begin until its result was recorded."""
        first = max(1, self._epoch_of[end.run_id, _find_before(events, end).seq])
        return self._epoch_of[end.run_id, end.seq] - first + 1

    def _check_steps(self, run_id: str) -> Iterator[str]:
        """Compare the steps of a flow with what they really did."""
        events = self.journals[run_id]
        ends = {_key_of(event): event for event in events if event.kind == EventKind.STEP_COMPLETED}
        if len(ends) != _count(events, EventKind.STEP_COMPLETED) or len(ends) != 7:
            yield f"run {run_id}: {_count(events, EventKind.STEP_COMPLETED)} results of {sorted(ends)}"
        effects: dict[str, list[tuple[float, str]]] = defaultdict(list)
        for at, who, of_run, key in self._outside.workshop.read_effects():
            if of_run == run_id:
                effects[key].append((at, who))
        for key, end in ends.items():
            times = effects[key.rpartition("/")[2]]
            late = [who for at, who in times if at > end.ts and who not in self._outside.frozen]
            if late:
                yield f"run {run_id}: {key} was done again after its result was recorded, by {late}"
            most = _count(events, EventKind.STEP_STARTED) if key == PAY else self._count_claims(events, end)
            if not 1 <= len(times) <= most:
                yield f"run {run_id}: {key} was done {len(times)} times, the journal allows {most}"


def _find_before(events: Sequence[Event], end: Event) -> Event:
    """The event after which a step may have begun; lanes begin together, after what was recorded before all of them."""
    is_lane = end.lane_id != "main"
    steps = [e for e in events if e.kind == EventKind.STEP_COMPLETED and not (is_lane and e.lane_id != "main")]
    return max((e for e in steps if e.seq < end.seq), key=lambda e: e.seq, default=events[0])


def streamed_numbers(events: Sequence[Event], *, is_flow: bool) -> list[int]:
    """The events that the stream of all runs has: of a flow only where it stands and what it asks."""
    return [event.seq for event in events if not is_flow or is_turn(event.kind)]


def _numbers(stream: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for event in stream:
        numbers[str(event["run_id"])].append(int(event["seq"]))
    return numbers


def _count(events: Sequence[Event], kind: EventKind, **payload: str) -> int:
    return sum(
        event.kind == kind and all(event.payload.get(name) == value for name, value in payload.items())
        for event in events
    )


def _key_of(event: Event) -> str:
    """What a result is of."""
    key = event.payload.get("step") or event.payload.get("key") or event.payload.get("call")
    assert key is not None, json.dumps(event.to_dict())
    return str(key)
