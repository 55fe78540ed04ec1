"""Journals in memory: for tests, rehearsals and runs that need not outlive the process.

Rule: only encoded bytes are kept, so nothing that a caller holds can change what was saved.
"""

import threading
from bisect import bisect_right
from dataclasses import dataclass, field
from operator import attrgetter

from holdfast.enums import RunStatus
from holdfast.errors import SequenceConflict
from holdfast.runtime.checkpoint.base import Prepared, check_run_id, prepare
from holdfast.runtime.checkpoint.hash_chain import Head, StoredRow, decode, extend, genesis
from holdfast.runtime.events import Event
from holdfast.runtime.state import RunState

_seq_of = attrgetter("seq")


@dataclass
class _Run:
    head: Head
    rows: list[StoredRow] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    snapshot: bytes | None = None

    def index_of(self, seq: int) -> int:
        """Count the rows with a number up to `seq`."""
        return bisect_right(self.rows, seq, key=_seq_of)

    def holds(self, prepared: Prepared) -> bool:
        seq = prepared.seq
        index = self.index_of(seq)
        return index > 0 and self.rows[index - 1].seq == seq and self.rows[index - 1].body == prepared.body


class InMemoryCheckpointer:
    """A `Checkpointer` whose data lives as long as the object."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._runs: dict[str, _Run] = {}  # in the order of writing

    @property
    def event_count(self) -> int:
        """The number of events over all runs."""
        with self._lock:
            return sum(len(run.rows) for run in self._runs.values())

    @property
    def snapshot_count(self) -> int:
        """The number of runs with a snapshot."""
        with self._lock:
            return sum(run.snapshot is not None for run in self._runs.values())

    def save_event(self, event: Event) -> Event:
        prepared = prepare(event)
        with self._lock:
            run = self._runs.get(event.run_id) or _new_run(event.run_id)
            try:
                rows = extend(run.head, [prepared])
            except SequenceConflict:
                if not run.holds(prepared):
                    raise
                return prepared.stored_as(event.seq)
            run.rows += rows
            run.blobs.update(prepared.blobs)
            self._touch(event.run_id, run)
        return prepared.stored_as(rows[0].seq)

    def save_snapshot(self, run_id: str, state: RunState) -> None:
        check_run_id(run_id)
        body = state.to_json()
        with self._lock:
            run = self._runs.get(run_id) or _new_run(run_id)
            run.snapshot = body
            self._touch(run_id, run)

    def load_latest(self, run_id: str) -> RunState | None:
        check_run_id(run_id)
        with self._lock:
            run = self._runs.get(run_id)
            body = run.snapshot if run else None
        return None if body is None else RunState.from_json(body)

    def list_events(self, run_id: str, since_seq: int = 0) -> list[Event]:
        check_run_id(run_id)
        with self._lock:
            run = self._runs.get(run_id)
            if run is None:
                return []
            start = run.index_of(since_seq)
            rows, blobs = run.rows[start:], dict(run.blobs)
            before = run.rows[start - 1].hash if start else genesis(run_id)
        raw = ((row.seq, row.kind, row.body, row.hash) for row in rows)
        return decode(run_id, raw, before, lambda digests: {digest: blobs[digest] for digest in digests})[0]

    def list_runs(self) -> list[str]:
        with self._lock:
            return list(reversed(self._runs))

    def delete_run(self, run_id: str) -> None:
        check_run_id(run_id)
        with self._lock:
            self._runs.pop(run_id, None)

    def close(self) -> None:
        """Release nothing: what was saved stays readable."""

    def _touch(self, run_id: str, run: _Run) -> None:
        self._runs.pop(run_id, None)
        self._runs[run_id] = run


def _new_run(run_id: str) -> _Run:
    return _Run(Head(0, genesis(run_id), RunStatus.PENDING))
