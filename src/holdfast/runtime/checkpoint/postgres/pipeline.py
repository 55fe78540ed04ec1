"""Appends of an owner that knows its runs' heads: one statement each, sent without waiting; several may be under way.

Rule: a known head is a guess. The statement locks the rows, in the order of run ids like everyone, and writes nothing
unless every head and epoch is as guessed; then the batch is done again in the way that reads them first. The guess also
settles the fate of a statement whose answer was lost: once the batch is written again, the heads have moved on.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from struct import pack
from typing import Any, NamedTuple

import psycopg
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus

from holdfast.runtime.checkpoint.base import Answer, Append, AppendResult, FlowEnd
from holdfast.runtime.checkpoint.hash_chain import Head, StoredRow, extend
from holdfast.runtime.checkpoint.postgres.append import AppendAttempt, KnownHeads
from holdfast.runtime.checkpoint.postgres.schema import Connection
from holdfast.runtime.checkpoint.postgres.session import is_lost_by

_STEP, _END = b"holdfast_append", b"holdfast_append_end"
_TEXT, _BYTEA, _BIGINT, _BOOL, _FLOAT = 25, 17, 20, 16, 701  # numbers of the server's types


class _Sent(NamedTuple):
    ticket: Any
    attempt: AppendAttempt
    results: list[AppendResult]
    heads: dict[str, Head]


class PostgresPipeline:
    """A `AppendPipeline` on a connection of its own, in pipeline mode; used by one thread."""

    def __init__(
        self,
        connection: Connection,
        known: KnownHeads,
        redo: Callable[[AppendAttempt], list[AppendResult]],
        lease_s: float,
        *,
        on_written: Callable[[Iterable[str], int], None],
        on_released: Callable[[Sequence[Append], Sequence[AppendResult]], None],
    ) -> None:
        self.is_lost = False
        self.has_more_to_send = False
        self.sender = connection.info.backend_pid
        self._connection: Connection | None = connection
        self._pgconn = connection.pgconn
        self._known = known
        self._redo = redo
        self._on_written = on_written
        self._on_released = on_released
        self._lease = pack("!d", lease_s)
        self._under_way: deque[_Sent] = deque()
        self._is_as_known = False
        # Said in full, since a database or a role may have other defaults.
        connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE")
        # The plan must not depend on how large the tables were when it was made, nor be made anew for each batch.
        for setting in ("plan_cache_mode = force_generic_plan", "enable_seqscan = off", "enable_nestloop = on"):
            connection.execute(f"SET {setting}".encode())
        for name, sql in ((_STEP, _APPEND), (_END, _APPEND_END)):
            prepared = self._pgconn.prepare(name, sql.encode())
            if prepared.status != ExecStatus.COMMAND_OK:
                raise psycopg.OperationalError(prepared.get_error_message())
        self._pgconn.enter_pipeline_mode()
        self._pgconn.nonblocking = 1

    def fileno(self) -> int:
        return self._pgconn.socket

    def takes(self, append: Append) -> bool:
        """Return true if the head is known and nothing but events, and at most the end of a flow, is to be written."""
        head = self._known.get(append.run_id)
        if head is None or append.epoch != head.epoch or not append.events or self.is_lost:
            return False
        if append.rows and (len(append.rows) > 1 or type(append.rows[0]) is not FlowEnd):
            return False
        return not any(prepared.blobs or prepared.seq for prepared in append.events)

    def send(self, batch: Sequence[Append], ticket: Any) -> None:
        heads: dict[str, Head] = {}
        before: list[int] = []
        rows: list[StoredRow] = []
        results: list[AppendResult] = []
        for append in batch:
            head = heads.get(append.run_id)
            if head is None:
                known = self._known.take(append.run_id)
                head = heads[append.run_id] = Head(known.seq, known.hash, known.status, known.epoch)
                before.append(known.seq)
            new = extend(head, append.events)
            rows += new
            results.append([row.seq for row in new])
        others = (pack("!q", len(heads)), self._lease)
        params = [*_move_columns(heads, before), *_row_columns(rows), *others]
        name = _STEP
        if any(append.rows or append.is_last for append in batch):
            name = _END
            params += _end_columns(heads, batch)
        attempt = AppendAttempt(batch)
        attempt.note(results, rows)
        self._under_way.append(_Sent(ticket, attempt, results, heads))
        with self._noting_loss():
            self._pgconn.send_query_prepared(name, params, [1] * len(params), 1)
            self._commit()

    def _commit(self) -> None:
        # crash: the server does all of it or nothing, whether or not we live to hear the answer.
        self._pgconn.pipeline_sync()
        self.flush()

    def flush(self) -> None:
        """Send what the network has not taken yet; `has_more_to_send` says whether some of it is left."""
        with self._noting_loss():
            self.has_more_to_send = self._pgconn.flush() != 0

    def receive(self) -> list[tuple[Any, Answer]]:
        """Return the answers that are here, in the order of sending; after a loss, one for each batch under way."""
        answers: list[tuple[Any, Answer]] = []
        with self._noting_loss():
            self._pgconn.consume_input()
            ends = 0
            while self._under_way and ends < 2 and not self._pgconn.is_busy():
                result = self._pgconn.get_result()
                ends = ends + 1 if result is None else 0  # one after each statement; two mean that there is no more
                if result is None:
                    continue
                if result.status == ExecStatus.TUPLES_OK:
                    self._is_as_known = result.get_value(0, 0) == b"\1"
                elif result.status == ExecStatus.PIPELINE_SYNC:
                    # Only this says that the transaction is over: the statement's own answer comes before its COMMIT.
                    answers.append(self._answer(self._under_way.popleft()))
                else:
                    self._is_as_known = False
                    self.is_lost |= is_lost_by((result.error_field(DiagnosticField.SQLSTATE) or b"").decode())
        if self.is_lost or self._pgconn.status == ConnStatus.BAD:
            self.is_lost = True
            self._is_as_known = False
            answers += [self._answer(sent) for sent in self._under_way]
            self._under_way.clear()
        return answers

    def _answer(self, sent: _Sent) -> tuple[Any, Answer]:
        is_written, self._is_as_known = self._is_as_known, False
        if not is_written:
            return sent.ticket, partial(self._redo, sent.attempt)
        self._known.remember(sent.heads)
        self._on_written(sent.heads, self.sender)
        self._on_released(sent.attempt.batch, sent.results)
        return sent.ticket, sent.results

    @contextlib.contextmanager
    def _noting_loss(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error:
            self.is_lost = True

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()

    def __del__(self) -> None:
        self.close()

    def detach_after_fork(self, keep_alive: list[Any]) -> None:
        """Leave the connection to the parent of this forked child; `keep_alive` refers to it, so it is not closed."""
        self.is_lost = True
        keep_alive.append(self._connection)
        self._connection = None


def _move_columns(heads: Mapping[str, Head], before: Sequence[int]) -> list[bytes]:
    return [
        _array(_TEXT, [run_id.encode() for run_id in heads]),
        _numbers([head.epoch for head in heads.values()]),
        _numbers(before),
        _numbers([head.seq for head in heads.values()]),
        _array(_BYTEA, [head.hash for head in heads.values()]),
        _array(_TEXT, [str(head.status).encode() for head in heads.values()]),
    ]


def _row_columns(rows: Sequence[StoredRow]) -> list[bytes]:
    return [
        _array(_TEXT, [row.run_id.encode() for row in rows]),
        _numbers([row.seq for row in rows]),
        _array(_TEXT, [row.kind.encode() for row in rows]),
        _array(_TEXT, [row.body for row in rows]),
        _array(_BYTEA, [row.hash for row in rows]),
    ]


def _end_columns(heads: Mapping[str, Head], batch: Sequence[Append]) -> list[bytes]:
    released = {append.run_id for append in batch if append.is_last}
    ends = [row.params for append in batch for row in append.rows]
    return [
        _array(_BOOL, [b"\1" if run_id in released else b"\0" for run_id in heads]),
        _array(_TEXT, [end["run_id"].encode() for end in ends]),
        _array(_TEXT, [end["status"].encode() for end in ends]),
        _array(_FLOAT, [pack("!d", end["now"]) for end in ends]),
    ]


# Arrays in the server's binary form: one dimension, no nulls, the type, how many, the first one's number; then each
# value after its length. psycopg makes them too, at five times the cost.


def _array(oid: int, values: Sequence[bytes]) -> bytes:
    parts = [pack("!5i", 1, 0, oid, len(values), 1)]
    for value in values:
        parts += (len(value).to_bytes(4, "big"), value)
    return b"".join(parts)


def _numbers(values: Sequence[int]) -> bytes:
    pairs = chain.from_iterable((8, value) for value in values)
    return pack("!5i" + "iq" * len(values), 1, 0, _BIGINT, len(values), 1, *pairs)


_APPEND_ANY = """
WITH n AS (
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[], $6::text[]{more_values})
        AS n (run_id, epoch, before, head, hash, status{more_columns})
), locked AS MATERIALIZED (
    SELECT r.run_id FROM journal_runs AS r JOIN n USING (run_id)
    WHERE r.epoch = n.epoch AND r.head = n.before ORDER BY r.run_id FOR UPDATE OF r
), found AS MATERIALIZED (
    SELECT count(*) = $12::bigint AS is_as_known FROM locked
), moved AS (
    UPDATE journal_runs AS r SET head = n.head, head_hash = n.hash, status = n.status,
        touched = nextval('journal_touched'), {owner}
    FROM n, found WHERE found.is_as_known AND r.run_id = n.run_id
), written AS (
    INSERT INTO events (run_id, seq, type, body, hash)
    SELECT e.run_id, e.seq, e.type, e.body, e.hash
    FROM found, unnest($7::text[], $8::bigint[], $9::text[], $10::text[], $11::bytea[])
        AS e (run_id, seq, type, body, hash)
    WHERE found.is_as_known
){more}
SELECT is_as_known FROM found
"""
_PROLONGED = "clock_timestamp() + make_interval(secs => $13::float8)"
_APPEND = _APPEND_ANY.format(more_values="", more_columns="", owner=f"lease_until = {_PROLONGED}", more="")
_APPEND_END = _APPEND_ANY.format(
    more_values=", $14::bool[]",
    more_columns=", is_released",
    owner=f"""owner = CASE WHEN NOT n.is_released THEN r.owner END,
        lease_until = CASE WHEN NOT n.is_released THEN {_PROLONGED} END""",
    more=""", ended AS (
    UPDATE flow_runs AS f SET status = e.status, waits_for = NULL, wake_at = NULL, updated_at = e.now
    FROM found, unnest($15::text[], $16::text[], $17::float8[]) AS e (run_id, status, now)
    WHERE found.is_as_known AND f.run_id = e.run_id
)""",
)
