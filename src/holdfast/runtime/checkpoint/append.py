"""How a batch of appends becomes one transaction: fence, number, chain, write. The same on SQLite and Postgres.

Rule: numbering and fence happen under the lock that the transaction holds, so that a zombie is refused and the rightful
owner never is. A refused append leaves no trace and does not fail its neighbours.
"""

import time
from collections.abc import Mapping, Sequence, Set
from typing import Protocol

from holdfast.errors import HoldfastError, RowRefused, SequenceConflict
from holdfast.runtime.checkpoint.base import Append, AppendResult, Statement
from holdfast.runtime.checkpoint.hash_chain import Head, StoredRow, check_epoch, extend, extend_by_step


class BatchTx(Protocol):
    """The open transaction of a store; heads it has handed out stay locked until it ends."""

    def lock_heads(self, run_ids: Sequence[str]) -> dict[str, Head]: ...

    def run_rows(self, statements: Sequence[Statement]) -> None:
        """Execute row changes in a savepoint of their own. Raises, with nothing changed, if one is refused."""
        ...

    def read_body(self, run_id: str, seq: int) -> bytes | None: ...

    def write(
        self,
        rows: Sequence[StoredRow],
        heads: Mapping[str, Head],
        blobs: Mapping[str, Mapping[str, bytes]],
        released: Set[str],
    ) -> None:
        """Insert events, move heads, and store blobs (by run: digest → bytes); `released` have no owner then."""
        ...


class Clock:
    """Order of writing for `list_runs`: the wall clock, but never backwards in this process."""

    def __init__(self) -> None:
        self._last = 0

    def tick(self) -> int:
        self._last = max(self._last + 1, time.time_ns())
        return self._last


def write_batch(tx: BatchTx, batch: Sequence[Append]) -> tuple[list[AppendResult], list[StoredRow]]:
    """Do all of a batch inside `tx`; returns what each append gets, and the rows that tell a lost COMMIT happened."""
    heads = tx.lock_heads(list(dict.fromkeys([append.run_id for append in batch])))
    results: list[AppendResult] = []
    rows: list[StoredRow] = []
    moved: dict[str, Head] = {}
    blobs: dict[str, dict[str, bytes]] = {}
    released: set[str] = set()
    for append in batch:
        run_id, events = append.run_id, append.events
        head = heads[run_id]
        if len(events) == 1 and append.epoch == head.epoch and not (append.rows or append.is_last):
            prepared = events[0]
            if not (prepared.seq or prepared.blobs or prepared.kind.startswith("run.")):
                row = extend_by_step(head, prepared)
                rows.append(row)
                moved[run_id] = head
                results.append([row[1]])
                continue
        try:
            new = _write_one(tx, append, head)
        except HoldfastError as error:
            results.append(error)
            continue
        if new or append.is_last:  # it is given up also if there was nothing left to write
            rows += new
            moved[run_id] = head
            if append.is_last:
                released.add(run_id)
        for prepared in events:
            if prepared.blobs:
                blobs.setdefault(run_id, {}).update(prepared.blobs)
        results.append([row[1] for row in new] or [prepared.seq for prepared in events])
    if moved:
        tx.write(rows, moved, blobs, released)
    return results, rows


def _write_one(tx: BatchTx, append: Append, head: Head) -> list[StoredRow]:
    if append.epoch != head.epoch:
        check_epoch(append, head)
    before = (head.seq, head.hash, head.status)
    try:
        new = extend(head, append.events)
    except SequenceConflict:
        if _is_stored_already(tx, append):
            return []
        raise
    if append.rows:
        try:
            tx.run_rows(append.rows)
        except HoldfastError:
            head.seq, head.hash, head.status = before
            raise
    return new


def _is_stored_already(tx: BatchTx, append: Append) -> bool:
    return all(p.seq and tx.read_body(append.run_id, p.seq) == p.body for p in append.events)


def check_changed(statement: Statement, changed: int) -> None:
    """Raise `RowRefused` if a statement changed another number of rows than it must."""
    if statement.expect is not None and changed != statement.expect:
        raise RowRefused(f"A row change met {changed} rows where {statement.expect} must be; nothing was written.")
