"""Journals in one SQLite file: write-ahead log, every commit synced, one long-lived connection for writing.

Rule: the file is shared with other processes, so numbers, heads and epochs are only believed inside a transaction.
"""

import contextlib
import hashlib
import os
import sqlite3
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, TypeVar

from holdfast.errors import HoldfastError, JournalCorrupt, RunBusy, StoreBusy, StoreUnreadable
from holdfast.runtime.checkpoint.append import write_batch
from holdfast.runtime.checkpoint.base import (
    MAX_SEQ,
    Append,
    AppendResult,
    Claim,
    Opening,
    Statement,
    check_run_id,
    prepare,
)
from holdfast.runtime.checkpoint.hash_chain import Head, check_number, corrupt, decode, genesis
from holdfast.runtime.checkpoint.run_lock import Patience, RunLock, find_held, lock_run
from holdfast.runtime.checkpoint.sqlite.transaction import (
    SQLiteTx,
    as_store_errors,
    begin,
    connect,
    read_blobs,
    to_store_error,
)
from holdfast.runtime.checkpoint.sqlite.wal import LogRoom
from holdfast.runtime.events import Event
from holdfast.runtime.jsondata import to_json_as_is
from holdfast.runtime.state import RunState

_T = TypeVar("_T")
_POLL_S = 0.05  # how often a follower looks for other processes' commits


class SQLiteCheckpointer:
    """A `JournalStore` in a file; an empty or missing file is a new store."""

    lease_s = None
    leases = None
    is_local = has_rows = True

    def __init__(self, db_path: str | Path = "holdfast.db") -> None:
        """Open or create the store. Raises `StoreUnreadable`, `StoreNewer`."""
        self._is_memory = str(db_path) == ":memory:"
        # In full, links resolved: the folder of the process may change, and a file has one place for its locks.
        self.path = ":memory:" if self._is_memory else os.path.realpath(db_path)
        self.label = self.path
        self._is_closed = False
        self._forked_away: list[sqlite3.Connection] = []
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._start_over()
        _stores.add(self)
        with self._write_lock:
            self._open_writer()

    def _start_over(self) -> None:
        """Begin as after opening, also in a forked child, which neither uses nor closes its parent's connections."""
        self._forked_away += [connection for connection in (self._writer, self._reader) if connection is not None]
        self._writer = self._reader = None
        self._write_lock = threading.RLock()
        self._read_lock = self._write_lock if self._is_memory else threading.RLock()
        self._locks: dict[str, RunLock | None] = {}
        self._epochs: dict[str, int] = {}
        self._heads: dict[str, Head] = {}
        self._known_version = -1  # of the file when `_heads` were true, as the writing connection counts
        self._last_version = -1
        self._room = None if self._is_memory else LogRoom(f"{self.path}-wal")

    # -- Checkpointer -------------------------------------------------------------------------------------------------

    def save_event(self, event: Event) -> Event:
        prepared = prepare(event)
        (result,) = self.append([Append(event.run_id, [prepared])])
        if isinstance(result, HoldfastError):
            raise result
        return prepared.stored_as(result[0])

    def save_snapshot(self, run_id: str, state: RunState) -> None:
        check_run_id(run_id)
        body = state.to_json()

        def save(connection: sqlite3.Connection) -> None:
            SQLiteTx(connection).lock_heads([run_id])
            connection.execute(  # a new row each time: the order of rows is the order of saving
                "INSERT OR REPLACE INTO snapshots (run_id, seq, body, hash, position) "
                "VALUES (?, ?, ?, ?, (SELECT coalesce(max(position), 0) FROM events))",
                (run_id, state.last_seq, body.decode(), hashlib.sha256(body).digest()),
            )

        self._write(save)

    def load_latest(self, run_id: str) -> RunState | None:
        check_run_id(run_id)
        with self._reading(run_id) as connection:
            row = connection.execute(
                "SELECT CAST(body AS BLOB), hash FROM snapshots WHERE run_id = ?", (run_id,)
            ).fetchone()
        if row is None:
            return None
        if hashlib.sha256(row[0]).digest() != row[1]:
            raise JournalCorrupt(f"The snapshot of run {run_id!r} is damaged.", run_id=run_id)
        return RunState.from_json(row[0])

    def list_events(self, run_id: str, since_seq: int = 0) -> list[Event]:
        check_run_id(run_id)
        since_seq = max(0, min(since_seq, MAX_SEQ))
        with self._reading(run_id) as connection:
            connection.execute("BEGIN")  # one moment for head, rows and blobs
            try:
                return self._read_events(connection, run_id, since_seq)
            finally:
                connection.execute("ROLLBACK")

    def list_runs(self) -> list[str]:
        with self._reading() as connection:
            rows = connection.execute(
                # Written last: its last event, or a snapshot that was saved after all events up to `position`.
                "SELECT run_id FROM (SELECT r.run_id, s.rowid AS saved, s.position AS saved_at, (SELECT position "
                "FROM events AS e WHERE e.run_id = r.run_id ORDER BY seq DESC LIMIT 1) AS written "
                "FROM journal_runs AS r LEFT JOIN snapshots AS s ON s.run_id = r.run_id) "
                "WHERE written IS NOT NULL OR saved IS NOT NULL ORDER BY max(ifnull(written, 0), ifnull(saved_at, 0)) "
                "DESC, CASE WHEN saved_at >= ifnull(written, 0) THEN saved ELSE 0 END DESC"
            ).fetchall()
        return [row[0] for row in rows]

    def delete_run(self, run_id: str, *, claim: Claim | None = None, rows: Sequence[Statement] = ()) -> None:
        check_run_id(run_id)

        def delete(connection: sqlite3.Connection) -> None:
            SQLiteTx(connection).delete_run(run_id, claim, rows)
            self._heads.pop(run_id, None)  # under the lock: whoever appends next reads that nothing is there

        self._write(delete)

    def close(self) -> None:
        with self._write_lock, self._read_lock:
            for lock in self._locks.values():
                if lock is not None:
                    lock.release()
            self._locks.clear()
            for connection in {self._reader, self._writer} - {None}:
                connection.close()  # type: ignore[union-attr]  # None is taken out above
            self._reader = self._writer = None
            self._is_closed = True

    def __del__(self) -> None:
        try:
            if not sys.is_finalizing():  # a thread that was ended with the interpreter keeps its locks for ever
                self.close()
        except Exception:  # noqa: S110 - nobody is left to hear it
            pass

    # -- JournalStore -------------------------------------------------------------------------------------------------

    def claim(self, run_id: str, *, force: bool = False) -> Claim:
        (result,) = self.claim_many([run_id], force=force)
        if isinstance(result, HoldfastError):
            raise result
        return result

    def claim_many(
        self, run_ids: Sequence[str], *, force: bool = False, wait_s: float = 30.0
    ) -> list[Claim | HoldfastError]:
        locks: dict[str, RunLock | None] = {}
        results: dict[str, Claim | HoldfastError] = {}
        patience = Patience(wait_s)
        for run_id in run_ids:
            try:
                locks[run_id] = self._lock_run(check_run_id(run_id), force=force, patience=patience)
            except HoldfastError as error:
                results[run_id] = error
        try:
            results |= self._take_over(locks, wait_s)
        except BaseException:
            for lock in locks.values():
                if lock is not None:
                    lock.give_back()
            raise
        return [results[run_id] for run_id in run_ids]

    def _take_over(self, locks: Mapping[str, RunLock | None], wait_s: float) -> dict[str, Claim]:
        left = {run_id for run_id, lock in locks.items() if lock is not None and lock.was_left}
        self._lock_writing(wait_s)
        try:
            heads, claims = self._write(lambda connection: SQLiteTx(connection).take_over(list(locks), left), wait_s)
            # Still under the lock: a thread that appends to the run now must not be followed by heads from before it.
            for run_id, lock in locks.items():
                before = self._locks.get(run_id)
                if before is not None:
                    before.release()  # we took the run from ourselves
                self._locks[run_id], self._epochs[run_id] = lock, heads[run_id].epoch
            self._heads.update(heads)
            return claims
        finally:
            self._write_lock.release()

    def begin_many(self, openings: Sequence[Opening]) -> list[Claim | None]:
        return [None] * len(openings)  # here a claim costs no round trip

    def forget(self, claim: Claim) -> bool:
        return False  # an owner is a lock of the operating system, which no append gives up

    def release(self, claim: Claim) -> None:
        if self._epochs.get(claim.run_id) != claim.epoch:
            return  # lost, perhaps to someone else in this process
        del self._epochs[claim.run_id]
        self._heads.pop(claim.run_id, None)
        lock = self._locks.pop(claim.run_id, None)
        if lock is not None:
            lock.release()

    def release_many(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self.release(claim)

    def renew(self, claims: Sequence[Claim]) -> None:
        """Do nothing: the operating system knows whether this process lives."""

    def append(self, batch: Sequence[Append], *, wait_s: float = 30.0) -> list[AppendResult]:
        """Append as `JournalStore` says; the heads of owned runs are remembered for as long as nobody else commits."""
        self._lock_writing(wait_s)
        try:
            connection = self._open_writer()
            begin(connection, wait_s)
            try:
                version = connection.execute("PRAGMA data_version").fetchone()[0]
                if version != self._known_version:
                    self._heads.clear()
                    self._known_version = version
                if self._room is not None and not self._room.is_enough:
                    self._room.make()
                tx = SQLiteTx(connection, self._heads)
                results, _ = write_batch(tx, batch)
                connection.execute("COMMIT")
            except BaseException:
                self._forget_heads(batch)
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            for run_id, head in tx.read.items():
                if run_id in self._epochs:
                    self._heads[run_id] = head
            return results
        except sqlite3.Error as error:
            raise to_store_error(error, self.path) from error
        finally:
            self._write_lock.release()

    def _forget_heads(self, batch: Sequence[Append]) -> None:
        for append in batch:
            self._heads.pop(append.run_id, None)

    def open_pipeline(self) -> None:
        """Open nothing: the loop itself is quick enough."""

    def read_heads(self, run_ids: Sequence[str]) -> dict[str, int]:
        with self._reading() as connection:
            found = connection.execute(
                "SELECT value, (SELECT max(seq) FROM events WHERE run_id = value) FROM json_each(?)",
                (to_json_as_is(list(run_ids)).decode(),),
            )
            return {row[0]: row[1] for row in found if row[1] is not None}

    def read_rows(self, sql: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        with self._reading() as connection:
            return connection.execute(sql, params).fetchall()

    def find_owned(self, run_ids: Sequence[str]) -> set[str]:
        if self._is_memory:
            return {run_id for run_id in run_ids if run_id in self._locks}
        return find_held(Path(f"{self.path}-locks"), run_ids)

    def wait_for_change(self, timeout_s: float, *, but_by: int | None = None, of: Set[str] | None = None) -> bool:
        deadline = time.monotonic() + timeout_s
        while True:
            with self._reading() as connection:
                version = connection.execute("PRAGMA data_version").fetchone()[0]
            if version != self._last_version:
                self._last_version = version
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _lock_run(self, run_id: str, *, force: bool, patience: Patience) -> RunLock | None:
        if self._is_memory:
            if run_id in self._locks and not force:
                raise RunBusy(f"Run {run_id!r} is being driven in this process.", run_id=run_id)
            return None
        try:
            return lock_run(f"{self.path}-locks", run_id, force=force, patience=patience)
        except RunBusy as busy:
            with self._reading(run_id) as connection:
                row = connection.execute("SELECT owner FROM journal_runs WHERE run_id = ?", (run_id,)).fetchone()
            by = f" by process {row[0]}" if row and row[0] else ""
            raise type(busy)(f"Run {run_id!r} is being driven{by}.", run_id=run_id) from None
        except OSError as error:
            raise StoreUnreadable(f"Cannot lock run {run_id!r} beside {self.path}: {error.strerror}.") from error

    def _read_events(self, connection: sqlite3.Connection, run_id: str, since_seq: int) -> list[Event]:
        found = connection.execute("SELECT head, head_hash FROM journal_runs WHERE run_id = ?", (run_id,)).fetchone()
        if found:
            check_number(run_id, found[0])
        before = connection.execute(
            "SELECT hash FROM events WHERE run_id = ? AND seq <= ? ORDER BY seq DESC LIMIT 1", (run_id, since_seq)
        ).fetchone()
        rows = connection.execute(
            "SELECT seq, type, CAST(body AS BLOB), hash FROM events WHERE run_id = ? AND seq > ? ORDER BY seq",
            (run_id, since_seq),
        )
        events, _ = decode(
            run_id, rows, before[0] if before else genesis(run_id), lambda digests: read_blobs(connection, digests)
        )
        if found and found[0] > since_seq and (not events or events[-1].seq < found[0]):
            raise corrupt(run_id, found[0], "the journal ends before it")
        if found and found[0] > since_seq and found[1] not in (b"", self._read_hash(connection, run_id, found[0])):
            raise corrupt(run_id, found[0], "the chain of hashes is another one there")
        return events

    @staticmethod
    def _read_hash(connection: sqlite3.Connection, run_id: str, seq: int) -> bytes:
        row = connection.execute("SELECT hash FROM events WHERE run_id = ? AND seq = ?", (run_id, seq)).fetchone()
        return bytes(row[0]) if row else b""

    def _write(self, work: Callable[[sqlite3.Connection], _T], wait_s: float = 30.0) -> _T:
        """Run `work` in one synced transaction; on any error nothing of it remains."""
        self._lock_writing(wait_s)
        try:
            with as_store_errors(self.path):
                connection = self._open_writer()
                begin(connection, wait_s)
                try:
                    result = work(connection)
                    connection.execute("COMMIT")
                except BaseException:
                    with contextlib.suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                    raise
                return result
        finally:
            self._write_lock.release()

    def _lock_writing(self, wait_s: float) -> None:
        """Be the only thread that writes. A thread may hold this for long while another process has the file's lock."""
        if not self._write_lock.acquire(timeout=wait_s):
            raise StoreBusy(f"Another thread has been writing to {self.path} for {wait_s:g} s.")

    @contextlib.contextmanager
    def _reading(self, run_id: str | None = None) -> Iterator[sqlite3.Connection]:
        with self._read_lock, as_store_errors(self.path, run_id):
            yield self._open_reader()

    def _open_writer(self) -> sqlite3.Connection:
        self._check_open()
        if self._writer is None:
            self._writer = connect(self.path)
        return self._writer

    def _open_reader(self) -> sqlite3.Connection:
        self._check_open()
        if self._is_memory:
            return self._open_writer()
        if self._reader is None:
            self._reader = connect(self.path)
        return self._reader

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreUnreadable(f"The store {self.path} is closed.", hint="Open a new one.")


_stores: "weakref.WeakSet[SQLiteCheckpointer]" = weakref.WeakSet()


def _start_over_in_child() -> None:
    for store in list(_stores):
        store._start_over()


os.register_at_fork(after_in_child=_start_over_in_child)
