"""The quick append of an owner that knows its runs' heads: one statement, one round trip, a third of the work.

Rule: a known head is a guess. The statement locks the rows, in the order of run ids like everyone, and writes nothing
unless every head and epoch is as guessed; then the batch is done again in the way that reads them first. The guess also
settles the fate of a statement whose answer was lost: once the batch is written again, the heads have moved on.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.runtime.checkpoint.base import Append, Statement
from holdfast.runtime.checkpoint.chain import Head, StoredRow
from holdfast.runtime.checkpoint.postgres_schema import Connection
from holdfast.runtime.checkpoint.postgres_tx import CHANNEL, to_json_rows, to_json_text


class HeadsMoved(Exception):
    """Something was not as known: nothing was written, and the heads must be read."""


def find_known(known: Mapping[str, Head | None], batch: Sequence[Append]) -> dict[str, Head] | None:
    """Copies of the heads that a batch needs, if all are known and nothing but events is to be written."""
    heads: dict[str, Head] = {}
    for append in batch:
        head = known.get(append.run_id)
        if head is None or append.epoch != head.epoch or append.rows or any(p.blobs for p in append.events):
            return None
        heads[append.run_id] = Head(head.seq, head.hash, head.status, head.epoch)
    return heads


class KnownTx:
    """A `BatchTx` that is one statement, sent by `send`; whatever needs more than that raises `HeadsMoved`."""

    def __init__(self, connection: Connection, heads: dict[str, Head], *, lease_s: float) -> None:
        self.heads = heads
        self._connection = connection
        self._lease_s = lease_s
        self._before = {run_id: head.seq for run_id, head in heads.items()}
        self._params: dict[str, Any] = {}

    def lock_heads(self, run_ids: Sequence[str]) -> dict[str, Head]:
        return {run_id: self.heads[run_id] for run_id in run_ids}

    def run_rows(self, statements: Sequence[Statement]) -> None:
        raise HeadsMoved

    def read_body(self, run_id: str, seq: int) -> bytes | None:
        raise HeadsMoved

    def write(
        self, rows: Sequence[StoredRow], heads: Mapping[str, Head], blobs: Mapping[str, Mapping[str, bytes]]
    ) -> None:
        moves = [
            {
                "run_id": run_id,
                "epoch": head.epoch,
                "before": self._before[run_id],
                "head": head.seq,
                "hash": head.hash.hex(),
                "status": str(head.status),
            }
            for run_id, head in heads.items()
        ]
        self._params = {
            "moves": to_json_text(moves),
            "count": len(moves),
            "rows": to_json_rows(rows),
            "lease_s": float(self._lease_s),
            "channel": CHANNEL,
        }

    def send(self) -> None:
        """Write what `write` was given. Raises `HeadsMoved`."""
        if not self._params:
            return
        # crash: the server does all of it or nothing, whether or not we live to hear the answer.
        row = self._connection.execute(_APPEND, self._params).fetchone()
        if row is None or not row[0]:
            raise HeadsMoved


_APPEND = """
WITH n AS (
    SELECT * FROM json_to_recordset(%(moves)s)
        AS n (run_id text, epoch bigint, before bigint, head bigint, hash text, status text)
), locked AS MATERIALIZED (
    SELECT r.run_id FROM journal_runs AS r JOIN n USING (run_id)
    WHERE r.epoch = n.epoch AND r.head = n.before ORDER BY r.run_id FOR UPDATE OF r
), found AS MATERIALIZED (
    SELECT count(*) = %(count)s AS is_as_known FROM locked
), moved AS (
    UPDATE journal_runs AS r SET head = n.head, head_hash = decode(n.hash, 'hex'), status = n.status,
        touched = nextval('journal_touched'), lease_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
    FROM n, found WHERE found.is_as_known AND r.run_id = n.run_id
), written AS (
    INSERT INTO events (run_id, seq, type, body, hash)
    SELECT e.run_id, e.seq, e.type, e.body, decode(e.hash, 'hex')
    FROM found, json_to_recordset(%(rows)s) AS e (run_id text, seq bigint, type text, body text, hash text)
    WHERE found.is_as_known
)
SELECT is_as_known, CASE WHEN is_as_known THEN pg_notify(%(channel)s, '') END FROM found
"""
