"""One SQLite transaction of a batch, opening a connection, and what SQLite's errors mean to a user."""

import contextlib
import os
import random
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from holdfast.enums import RunStatus
from holdfast.errors import HoldfastError, JournalCorrupt, RowRefused, StoreBusy, StoreError, StoreFull, StoreUnreadable
from holdfast.runtime.checkpoint.append import check_changed
from holdfast.runtime.checkpoint.base import MOST_TAKEOVERS, Append, Claim, Statement
from holdfast.runtime.checkpoint.hash_chain import Head, StoredRow, check_epoch, check_number, genesis
from holdfast.runtime.checkpoint.private_files import make_private_database
from holdfast.runtime.checkpoint.sqlite.schema import upgrade

# Of the many ways in which a disk can fail, those in which nothing was to be written.
_READ_ERRORS = frozenset(
    f"SQLITE_IOERR_{name}"
    for name in ("READ", "SHORT_READ", "ACCESS", "FSTAT", "CHECKRESERVEDLOCK", "DATA", "CORRUPTFS", "SEEK", "AUTH")
)


def connect(path: str) -> sqlite3.Connection:
    """Open a file with the settings that the promises rest on, up to date. Raises `StoreUnreadable`, `StoreNewer`."""
    make_private_database(path)
    with as_store_errors(path):
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
        try:
            # Another process may be switching the same new file to WAL or upgrading it: SQLite waits, 30 s at most.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            upgrade(connection, path)
            connection.execute("PRAGMA busy_timeout = 0")  # from here on `begin` does the waiting, interruptibly
        except BaseException:
            connection.close()
            raise
        return connection


def begin(connection: sqlite3.Connection, wait_s: float) -> None:
    """Take the write lock. Raises `StoreBusy` if another process keeps it for longer than `wait_s`."""
    deadline = pause_s = 0.0
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            if not _is_locked(error):
                raise
            if not pause_s:
                deadline, pause_s = time.monotonic() + wait_s, 0.0005
            if time.monotonic() >= deadline:
                raise StoreBusy(f"The store's write lock was not to be had for {wait_s:g} s.") from error
        time.sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311 - spreads waiting processes, no secret
        pause_s = min(pause_s * 1.5, 0.01)


def _is_locked(error: sqlite3.Error) -> bool:
    return (error.sqlite_errorcode & 0xFF) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@contextlib.contextmanager
def as_store_errors(path: str, run_id: str | None = None) -> Iterator[None]:
    """Turn SQLite's errors into ours: by result code, not by text."""
    try:
        yield
    except sqlite3.Error as error:
        raise to_store_error(error, path, run_id) from error
    except UnicodeDecodeError as error:
        # SQLite quotes the damaged schema in its message, and Python fails on that before it makes an error of its own.
        raise StoreUnreadable(f"{path} cannot be used as a store: its schema is damaged.") from error


_LOOK_AT_DISK = "Look at the disk (dmesg), then start again; nothing was changed."


def to_store_error(error: sqlite3.Error, path: str, run_id: str | None = None) -> HoldfastError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    name = getattr(error, "sqlite_errorname", "")
    if name in _READ_ERRORS:
        return StoreUnreadable(f"{path} could not be read: {error} ({name}).", hint=_LOOK_AT_DISK)
    if code == sqlite3.SQLITE_FULL or name.startswith("SQLITE_IOERR"):
        return StoreFull(f"{path} could not be written: {error}.")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(f"{path} is locked by another process: {error}.")
    if code == sqlite3.SQLITE_CORRUPT and run_id is not None:
        return JournalCorrupt(f"The journal of run {run_id!r} in {path} cannot be read: {error}.", run_id=run_id)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
        return StoreUnreadable(f"{path} cannot be used as a store: {error}.")
    return StoreError(f"{path}: {error}.")


# Many rows by one statement take a third less than each by its own. `OR FAIL`: what a refused row leaves behind goes
# with the transaction, so SQLite need not note how to undo the statement alone.
_AT_ONCE = 16
_INSERT_ONE = "INSERT OR FAIL INTO events (run_id, seq, type, body, hash) VALUES (?, ?, ?, ?, ?)"
_INSERT_MANY = _INSERT_ONE + ", (?, ?, ?, ?, ?)" * (_AT_ONCE - 1)


class SQLiteTx:
    """A `BatchTx` on a connection that holds the write lock.

    The heads it was given as `known` are taken as they are; `read` are the others it has handed out.
    """

    def __init__(self, connection: sqlite3.Connection, known: dict[str, Head] | None = None) -> None:
        self.read: dict[str, Head] = {}
        self._connection = connection
        self._known = known or {}

    def lock_heads(self, run_ids: Sequence[str]) -> dict[str, Head]:
        known = self._known
        for run_id in run_ids:
            if run_id not in known and run_id not in self.read:
                self.read[run_id] = self._read_head(run_id)
        if not self.read:
            return known  # as a rule: the owners' runs
        return {run_id: self.read[run_id] if run_id in self.read else known[run_id] for run_id in run_ids}

    def _read_head(self, run_id: str) -> Head:
        """Start a run's journal if it has none. Rows that were put there without one count: numbers never collide."""
        row = self._connection.execute(
            "SELECT head, head_hash, status, epoch FROM journal_runs WHERE run_id = ?", (run_id,)
        ).fetchone()
        # An epoch that starts at the time of creation cannot be met by a zombie of a deleted run with the same id.
        head = Head(*row) if row else Head(0, genesis(run_id), RunStatus.PENDING, int(time.time()))
        last = self._connection.execute(
            "SELECT seq, hash FROM events WHERE run_id = ? ORDER BY seq DESC LIMIT 1", (run_id,)
        ).fetchone()
        check_number(run_id, head.seq)
        if last is not None:
            check_number(run_id, last[0])
        if last is not None and last[0] > head.seq:
            head.seq, head.hash = last
        if row is None:
            self._connection.execute(
                "INSERT INTO journal_runs (run_id, epoch, head, head_hash) VALUES (?, ?, ?, ?)",
                (run_id, head.epoch, head.seq, head.hash),
            )
        return head

    def take_over(self, run_ids: Sequence[str], left: Set[str]) -> tuple[dict[str, Head], dict[str, Claim]]:
        """Become the owner of the runs, of which those in `left` had one that died; returns their heads and claims."""
        heads, claims = self.lock_heads(run_ids), {}
        for run_id, head in heads.items():
            takeovers = self._count_takeover(run_id, head.seq) if run_id in left else ()
            head.epoch = self._raise_epoch(run_id)
            head.row_status = head.status
            claims[run_id] = Claim(run_id, head.epoch, head.seq, run_id in left, takeovers)
        return heads, claims

    def _raise_epoch(self, run_id: str) -> int:
        row = self._connection.execute(
            "UPDATE journal_runs SET epoch = epoch + 1, owner = ? WHERE run_id = ? RETURNING epoch",
            (str(os.getpid()), run_id),
        ).fetchone()
        return int(row[0])

    def _count_takeover(self, run_id: str, head: int) -> tuple[int, ...]:
        found = self._connection.execute("SELECT takeovers FROM journal_runs WHERE run_id = ?", (run_id,)).fetchone()
        takeovers = (*map(int, found[0].split()), head)[-MOST_TAKEOVERS:]
        self._connection.execute(
            "UPDATE journal_runs SET takeovers = ? WHERE run_id = ?", (" ".join(map(str, takeovers)), run_id)
        )
        return takeovers

    def run_rows(self, statements: Sequence[Statement]) -> None:
        if len(statements) == 1 and statements[0].is_of_one_row and statements[0].expect != 0:
            self._run_row(statements[0])
            return
        self._connection.execute("SAVEPOINT holdfast_rows")
        try:
            for statement in statements:
                self._run_row(statement)
        except BaseException:
            self._connection.execute("ROLLBACK TO holdfast_rows")
            self._connection.execute("RELEASE holdfast_rows")
            raise
        self._connection.execute("RELEASE holdfast_rows")

    def _run_row(self, statement: Statement) -> None:
        try:
            changed = self._connection.execute(statement.sql, dict(statement.params)).rowcount
        except sqlite3.IntegrityError as error:
            raise RowRefused(f"A row change was refused: {error}.") from error
        check_changed(statement, changed)

    def delete_run(self, run_id: str, claim: Claim | None, rows: Sequence[Statement]) -> None:
        """Remove a journal and the big values that only it had, and change `rows`; raises with nothing changed."""
        if claim is not None:
            check_epoch(Append(run_id, (), claim.epoch), self.lock_heads([run_id])[run_id])
        if rows:
            self.run_rows(rows)
        # A position is given once: whoever follows all runs must not miss an event that takes a deleted one's. A row of
        # no run keeps the last one.
        self._connection.execute(
            "INSERT INTO events (run_id, seq) SELECT '', position + 1 FROM events "
            "WHERE run_id = ? AND position = (SELECT max(position) FROM events)",
            (run_id,),
        )
        self._connection.execute(
            "DELETE FROM events WHERE run_id = '' AND position < (SELECT max(position) FROM events)"
        )
        self._connection.execute(
            "DELETE FROM blobs WHERE digest IN (SELECT digest FROM blob_refs WHERE run_id = :run_id) AND NOT EXISTS "
            "(SELECT 1 FROM blob_refs AS r WHERE r.digest = blobs.digest AND r.run_id <> :run_id)",
            {"run_id": run_id},
        )
        for table in ("events", "snapshots", "journal_runs", "blob_refs", "flow_runs"):
            self._connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))  # noqa: S608 - names of ours

    def read_body(self, run_id: str, seq: int) -> bytes | None:
        row = self._connection.execute(
            "SELECT CAST(body AS BLOB) FROM events WHERE run_id = ? AND seq = ?", (run_id, seq)
        ).fetchone()
        return row[0] if row else None

    def write(
        self,
        rows: Sequence[StoredRow],
        heads: Mapping[str, Head],
        blobs: Mapping[str, Mapping[str, bytes]],
        released: Set[str],
    ) -> None:
        values: list[Any] = []
        for run_id, seq, kind, body, digest in rows:
            # A str and a bytearray are bound as they are; for each bytes sqlite3 looks for an adapter first.
            values += (run_id, seq, kind, body.decode(), bytearray(digest))
        size, start = 5 * _AT_ONCE, 0
        for start in range(size, len(values) + 1, size):
            self._connection.execute(_INSERT_MANY, values[start - size : start])
        for place in range(start, len(values), 5):
            self._connection.execute(_INSERT_ONE, values[place : place + 5])
        # A row says how far the journal reaches at least: the owner's steps, which change no status, leave it alone.
        changed = [item for item in heads.items() if item[1].row_status is not item[1].status]
        if changed:
            moved = [(head.seq, head.hash, head.status, run_id) for run_id, head in changed]
            self._connection.executemany(
                "UPDATE journal_runs SET head = ?, head_hash = ?, status = ? WHERE run_id = ?", moved
            )
            for _, head in changed:
                head.row_status = head.status
        for run_id, found in blobs.items():
            self._connection.executemany("INSERT OR IGNORE INTO blobs (digest, body) VALUES (?, ?)", found.items())
            self._connection.executemany(
                "INSERT OR IGNORE INTO blob_refs (run_id, digest) VALUES (?, ?)", [(run_id, d) for d in found]
            )


def read_blobs(connection: sqlite3.Connection, digests: set[str]) -> dict[str, bytes]:
    found = (connection.execute("SELECT digest, body FROM blobs WHERE digest = ?", (digest,)) for digest in digests)
    return {row[0]: row[1] for cursor in found for row in cursor}
