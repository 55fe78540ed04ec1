"""purpose-agent: its SQLite checkpointer as it comes."""

import contextlib
import json
import sqlite3

from purpose_agent.runtime.checkpoint import SQLiteCheckpointer
from purpose_agent.runtime.events import EventKind, PAEvent, create_event

from benchmarks.measure import Place, Reading, payload, reading


def _event(number: int) -> PAEvent:
    return create_event("run", EventKind.TOOL_RESULT, seq=number, result=payload(number))


def save_events(place: Place) -> Reading:
    store = SQLiteCheckpointer(place.db)
    for number in range(1, 21):
        store.save_event(_event(number))
    with reading() as found:
        for number in range(21, place.steps + 21):
            store.save_event(_event(number))
    return found


def fill_list(place: Place) -> Reading:
    """The rows that `save_event` would write, in one transaction: one by one they would take minutes."""
    SQLiteCheckpointer(place.db)
    events = [_event(number) for number in range(1, place.steps + 1)]
    with reading() as found, contextlib.closing(sqlite3.connect(place.db)) as connection:
        connection.executemany(
            "INSERT INTO events (run_id, seq, ts, kind, lane_id, data) VALUES (?, ?, ?, ?, ?, ?)",
            [(e.run_id, e.seq, e.ts, e.kind.value, e.lane_id, json.dumps(e.to_dict(), default=str)) for e in events],
        )
        connection.commit()
    return found


def list_all(place: Place) -> Reading:
    store = SQLiteCheckpointer(place.db)
    with reading() as found:
        events = store.list_events("run")
    assert len(events) == place.steps
    return found
