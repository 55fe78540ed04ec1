"""One Postgres transaction of a batch, in pipeline mode: what needs no answer is sent without waiting for one.

Rule: whoever locks several rows does it in the order of run ids, so that processes wait for one another in one
direction only. Arrays travel in binary form (`%b`): psycopg's text arrays cost five times that.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import Any, TypeVar

import psycopg
from psycopg.types.numeric import Int8

from holdfast.errors import RowRefused, StoreError
from holdfast.runtime.checkpoint.append import check_changed
from holdfast.runtime.checkpoint.base import Append, Claim, Statement
from holdfast.runtime.checkpoint.hash_chain import Head, StoredRow, check_epoch, genesis
from holdfast.runtime.checkpoint.postgres.schema import Connection
from holdfast.runtime.checkpoint.postgres.session import LOCK_WAIT_S, is_lost, to_milliseconds

_T = TypeVar("_T")


@contextlib.contextmanager
def _pipeline(connection: Connection) -> Iterator[psycopg.Pipeline]:
    """Enter psycopg's pipeline, without its log of a connection that is lost inside: we report that ourselves."""
    lost: psycopg.Error | None = None
    with connection.pipeline() as pipeline:
        try:
            yield pipeline
        except psycopg.Error as error:
            if not connection.closed:
                raise
            lost = error
    if lost is not None:
        raise lost


def read_in_transaction(connection: Connection, work: Callable[[], _T]) -> _T:
    """Run `work`, which sees the store as of one moment."""
    with _pipeline(connection):
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        result = work()
        connection.execute("COMMIT")
    return result


def write_in_transaction(
    connection: Connection,
    work: Callable[["PostgresTx"], _T],
    *,
    lease_s: float,
    wait_s: float = LOCK_WAIT_S,
    owned: Mapping[str, int] | None = None,
    is_bold: bool = False,
) -> _T:
    """Run `work` in one synced transaction; if it raises, the session takes everything back."""
    with _pipeline(connection) as pipeline:
        # Said in full, since a database or a role may have other defaults.
        connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        if wait_s != LOCK_WAIT_S:
            connection.execute("SELECT set_config('lock_timeout', %s, true)", (to_milliseconds(wait_s),))
        tx = PostgresTx(connection, pipeline, lease_s=lease_s, owned=owned or {}, is_bold=is_bold)
        result = work(tx)
        tx.check_rows()
        # crash: until the server has this, nothing is written; after it, all of it is, acknowledged or not.
        commit = connection.execute("COMMIT")
    if commit.statusmessage != "COMMIT":  # a transaction that has failed answers ROLLBACK, and no error
        raise StoreError("The transaction was taken back by the server; nothing was written.")
    return result


class RowsInDoubt(Exception):
    """A row change of a bold transaction is not as it must be; it is not known which one."""


class PostgresTx:
    """A `BatchTx` on a connection that is in a transaction; appends of `owned` runs (with epochs) prolong the lease.

    `heads` are the ones that `write` has moved. With `is_bold` row changes have no savepoint and are looked at
    together, once: nearly always all of them are as expected. If not, `RowsInDoubt` is raised.
    """

    def __init__(
        self,
        connection: Connection,
        pipeline: psycopg.Pipeline,
        *,
        lease_s: float,
        owned: Mapping[str, int],
        is_bold: bool = False,
    ) -> None:
        self.connection = connection
        self._is_bold = is_bold
        self._unchecked: list[tuple[Statement, psycopg.Cursor[Any]]] = []
        self.lease_s = lease_s
        self._pipeline = pipeline
        self._owned = owned
        self.heads: dict[str, Head] = {}

    def sync(self) -> None:
        """Ask for the answers to all that was sent.

        Without it the server does not count a process that stands still from here on as idle, and would not end its
        transaction. What is left is the moment between sending the writes and sending COMMIT.
        """
        self._pipeline.sync()

    def lock_heads(self, run_ids: Sequence[str]) -> dict[str, Head]:
        heads = self._lock(run_ids)
        while missing := sorted(run_id for run_id in run_ids if run_id not in heads):
            self._start_journals(missing)
            heads |= self._lock(missing)
        return {run_id: heads[run_id] for run_id in run_ids}

    def _lock(self, run_ids: Sequence[str]) -> dict[str, Head]:
        cursor = self.connection.execute(
            "SELECT run_id, head, head_hash, status, epoch FROM journal_runs "
            "WHERE run_id = ANY(%b) ORDER BY run_id FOR UPDATE",
            (list(run_ids),),
        )
        self.sync()
        return {row[0]: Head(*row[1:]) for row in cursor.fetchall()}

    def _start_journals(self, run_ids: Sequence[str]) -> None:
        """Start journals after the events that were put there without one, so that numbers never collide."""
        # An epoch that starts at the time of creation cannot be met by a zombie of a deleted run with the same id.
        self.connection.execute(
            "INSERT INTO journal_runs (run_id, epoch, head, head_hash, touched) "
            "SELECT n.run_id, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, "
            "coalesce(e.seq, 0), coalesce(e.hash, n.genesis), nextval('journal_touched') "
            "FROM unnest(%b::text[], %b::bytea[]) AS n (run_id, genesis) LEFT JOIN LATERAL "
            "(SELECT seq, hash FROM events WHERE run_id = n.run_id ORDER BY seq DESC LIMIT 1) AS e ON true "
            "ORDER BY n.run_id ON CONFLICT DO NOTHING",
            (list(run_ids), [genesis(run_id) for run_id in run_ids]),
        )

    def run_rows(self, statements: Sequence[Statement]) -> None:
        if self._is_bold:
            self._unchecked += zip(statements, self._send_rows(statements), strict=True)
            return
        self.connection.execute("SAVEPOINT holdfast_rows")
        try:
            self._run_rows(statements)
        except BaseException:
            if not self.connection.closed:
                self._pipeline.sync()  # after an error the server skips everything up to here
                self.connection.execute("ROLLBACK TO SAVEPOINT holdfast_rows")
                self.connection.execute("RELEASE SAVEPOINT holdfast_rows")
            raise
        self.connection.execute("RELEASE SAVEPOINT holdfast_rows")

    def check_rows(self) -> None:
        """Raise `RowsInDoubt` unless all row changes of a bold transaction are as they must be."""
        if not self._unchecked:
            return
        try:
            self._pipeline.sync()
            for statement, cursor in self._unchecked:
                check_changed(statement, cursor.rowcount)
        except RowRefused as error:
            raise RowsInDoubt from error

    def _send_rows(self, statements: Sequence[Statement]) -> list[psycopg.Cursor[Any]]:
        return [self.connection.execute(to_postgres(statement.sql), dict(statement.params)) for statement in statements]

    def _run_rows(self, statements: Sequence[Statement]) -> None:
        try:
            cursors = self._send_rows(statements)
            self._pipeline.sync()
        except psycopg.IntegrityError as error:
            raise RowRefused(f"A row change was refused: {error.diag.message_primary}.") from error
        except psycopg.Error as error:
            if not is_wrong(error):
                raise
            # The statement itself is wrong: its own append fails, its neighbours do not.
            raise StoreError(f"A row change is not valid: {error.diag.message_primary or error}.") from error
        for statement, cursor in zip(statements, cursors, strict=True):
            check_changed(statement, cursor.rowcount)

    def read_body(self, run_id: str, seq: int) -> bytes | None:
        row = self.connection.execute(
            "SELECT convert_to(body, 'UTF8') FROM events WHERE run_id = %s AND seq = %s", (run_id, seq)
        ).fetchone()
        return row[0] if row else None

    def is_written(self, rows: Sequence[StoredRow]) -> bool:
        """Return true if any of the rows is there."""
        found = self.connection.execute(
            "SELECT 1 FROM events AS e JOIN unnest(%b::text[], %b::bigint[], %b::bytea[]) AS n (run_id, seq, hash) "
            "USING (run_id, seq) WHERE e.hash = n.hash LIMIT 1",
            ([row.run_id for row in rows], [Int8(row.seq) for row in rows], [row.hash for row in rows]),
        )
        return found.fetchone() is not None

    def write(
        self,
        rows: Sequence[StoredRow],
        heads: Mapping[str, Head],
        blobs: Mapping[str, Mapping[str, bytes]],
        released: Set[str],
    ) -> None:
        if blobs:
            self._write_blobs(blobs)
        if rows:
            self.connection.execute(
                "INSERT INTO events (run_id, seq, type, body, hash) "
                "SELECT * FROM unnest(%b::text[], %b::bigint[], %b::text[], %b::text[], %b::bytea[])",
                (
                    [row.run_id for row in rows],
                    [Int8(row.seq) for row in rows],
                    [row.kind for row in rows],
                    [row.body.decode() for row in rows],
                    [row.hash for row in rows],
                ),
            )
        self.connection.execute(
            "UPDATE journal_runs AS r SET head = n.head, head_hash = n.hash, status = n.status, "
            "touched = nextval('journal_touched'), "
            "owner = CASE WHEN NOT n.is_released THEN r.owner END, "
            "lease_until = CASE WHEN n.is_released THEN NULL "
            "WHEN n.is_owner THEN clock_timestamp() + make_interval(secs => %s) ELSE r.lease_until END "
            "FROM unnest(%b::text[], %b::bigint[], %b::bytea[], %b::text[], %b::bool[], %b::bool[]) "
            "AS n (run_id, head, hash, status, is_owner, is_released) WHERE r.run_id = n.run_id",
            (
                float(self.lease_s),
                list(heads),
                [Int8(head.seq) for head in heads.values()],
                [head.hash for head in heads.values()],
                [str(head.status) for head in heads.values()],
                [self._owned.get(run_id) == head.epoch for run_id, head in heads.items()],
                [run_id in released for run_id in heads],
            ),
        )
        self.heads = dict(heads)

    def _write_blobs(self, blobs: Mapping[str, Mapping[str, bytes]]) -> None:
        bodies = dict(sorted((digest, body) for found in blobs.values() for digest, body in found.items()))
        self.connection.execute(
            "INSERT INTO blobs (digest, body) SELECT * FROM unnest(%b::text[], %b::bytea[]) ON CONFLICT DO NOTHING",
            (list(bodies), list(bodies.values())),
        )
        refs = [(run_id, digest) for run_id, found in blobs.items() for digest in found]
        self.connection.execute(
            "INSERT INTO blob_refs (run_id, digest) SELECT * FROM unnest(%b::text[], %b::text[]) "
            "ON CONFLICT DO NOTHING",
            ([run_id for run_id, _ in refs], [digest for _, digest in refs]),
        )


def is_wrong(error: psycopg.Error) -> bool:
    """Return true if a statement or its values are at fault, and not the server or the time."""
    return not is_lost(error) and (error.sqlstate or "22")[:2] in ("22", "23", "42")


def delete_run(tx: PostgresTx, run_id: str, claim: Claim | None, rows: Sequence[Statement]) -> None:
    """Remove a journal and the big values that only it had, and change `rows`."""
    connection = tx.connection
    if claim is not None:
        check_epoch(Append(run_id, (), claim.epoch), tx.lock_heads([run_id])[run_id])
    else:
        connection.execute("SELECT 1 FROM journal_runs WHERE run_id = %s FOR UPDATE", (run_id,))
    if rows:
        tx.run_rows(rows)
    connection.execute("DELETE FROM events WHERE run_id = %s", (run_id,))
    connection.execute("DELETE FROM snapshots WHERE run_id = %s", (run_id,))
    connection.execute("DELETE FROM journal_runs WHERE run_id = %s", (run_id,))
    connection.execute("DELETE FROM flow_runs WHERE run_id = %s", (run_id,))
    refs = connection.execute("DELETE FROM blob_refs WHERE run_id = %s RETURNING digest", (run_id,)).fetchall()
    if refs:
        # An append of another run that counts on a blob being there already is waited for, and its reference seen.
        connection.execute("LOCK TABLE blobs IN SHARE ROW EXCLUSIVE MODE")
        connection.execute(
            "DELETE FROM blobs AS b WHERE digest = ANY(%b) "
            "AND NOT EXISTS (SELECT 1 FROM blob_refs AS r WHERE r.digest = b.digest)",
            ([digest for (digest,) in refs],),
        )


def read_blobs(connection: Connection, digests: set[str]) -> dict[str, bytes]:
    cursor = connection.cursor(binary=True)
    return dict(cursor.execute("SELECT digest, body FROM blobs WHERE digest = ANY(%b)", (list(digests),)).fetchall())


_TOKEN = re.compile(
    r"""(?P<kept>[eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*" | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$
    | --[^\n]* | /\*.*?\*/ | ::) | :(?P<name>[A-Za-z_]\w*) | (?P<percent>%)""",
    re.DOTALL | re.VERBOSE,
)


@lru_cache(maxsize=512)
def to_postgres(sql: str) -> bytes:
    """Rewrite `:name` parameters of a statement for psycopg; casts, literals and comments stay as they are."""
    return _TOKEN.sub(_translate, sql).encode()


def _translate(token: re.Match[str]) -> str:
    if token["name"]:
        return f"%({token['name']})s"
    return token[0].replace("%", "%%")
