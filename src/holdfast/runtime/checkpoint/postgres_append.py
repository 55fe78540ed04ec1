"""Appending a batch on Postgres: quickly if the heads are known, else under their lock, and once whatever gets lost."""

from collections.abc import Iterable, Mapping, Sequence

from holdfast.runtime.checkpoint.base import Append, AppendResult
from holdfast.runtime.checkpoint.batch import write_batch
from holdfast.runtime.checkpoint.chain import Head, StoredRow
from holdfast.runtime.checkpoint.postgres_known import HeadsMoved, KnownTx, find_known
from holdfast.runtime.checkpoint.postgres_schema import Connection
from holdfast.runtime.checkpoint.postgres_session import LOCK_WAIT_S
from holdfast.runtime.checkpoint.postgres_tx import PostgresTx, write_in_transaction


class Attempt:
    """One batch on its way: what the latest try, whose answer may have been lost, has or has not written."""

    def __init__(self, batch: Sequence[Append], wait_s: float) -> None:
        self.batch = batch
        self.wait_s = wait_s
        self.run_ids = list(dict.fromkeys(append.run_id for append in batch))
        self.sent: tuple[list[AppendResult], StoredRow] | None = None

    def note(self, results: list[AppendResult], rows: Sequence[StoredRow]) -> None:
        """Remember a try before its COMMIT is sent; the first row stands for all of a transaction."""
        self.sent = (results, rows[0]) if rows else None


class Appender:
    """Makes tries on whatever connection there is; remembers the heads of the runs that this process owns."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._known: dict[str, Head | None] = {}

    def own(self, run_ids: Iterable[str]) -> None:
        self._known.update(dict.fromkeys(run_ids))

    def disown(self, run_id: str) -> None:
        self._known.pop(run_id, None)

    def append(self, connection: Connection, attempt: Attempt) -> list[AppendResult]:
        """Make one try. Raises psycopg's errors; after a lost connection the same attempt may be tried again."""
        heads = None
        if attempt.sent is None and attempt.wait_s == LOCK_WAIT_S:
            heads = find_known(self._known, attempt.batch)
        self._remember(dict.fromkeys(attempt.run_ids))
        if heads is not None:
            try:
                return self._append_quickly(KnownTx(connection, heads, lease_s=self._lease_s), attempt)
            except HeadsMoved:
                attempt.sent = None
        return self._append_locked(connection, attempt)

    def _append_quickly(self, tx: KnownTx, attempt: Attempt) -> list[AppendResult]:
        results, rows = write_batch(tx, attempt.batch)
        attempt.note(results, rows)
        tx.send()
        self._remember(tx.heads)
        return results

    def _append_locked(self, connection: Connection, attempt: Attempt) -> list[AppendResult]:
        owned = {append.run_id: append.epoch for append in attempt.batch if append.epoch is not None}
        moved: dict[str, Head] = {}

        def write(tx: PostgresTx) -> list[AppendResult]:
            if attempt.sent is not None:
                # Locking waits for the end of the earlier try, whose fate is then known: all of its rows or none.
                tx.lock_heads(attempt.run_ids)
                results, first = attempt.sent
                if tx.is_written(first):
                    return results
            results, rows = write_batch(tx, attempt.batch)
            attempt.note(results, rows)
            moved.update(tx.heads)
            return results

        results = write_in_transaction(connection, write, lease_s=self._lease_s, wait_s=attempt.wait_s, owned=owned)
        self._remember(moved)
        return results

    def _remember(self, heads: Mapping[str, Head | None]) -> None:
        self._known.update({run_id: head for run_id, head in heads.items() if run_id in self._known})
