"""Appending a batch on Postgres under the lock of its runs' heads, and once whatever gets lost."""

from collections.abc import Iterable, Mapping, Sequence

import psycopg

from holdfast.enums import RunStatus
from holdfast.runtime.checkpoint.append import write_batch
from holdfast.runtime.checkpoint.base import Append, AppendResult
from holdfast.runtime.checkpoint.hash_chain import Head, StoredRow
from holdfast.runtime.checkpoint.postgres.schema import Connection
from holdfast.runtime.checkpoint.postgres.session import LOCK_WAIT_S
from holdfast.runtime.checkpoint.postgres.transaction import PostgresTx, RowsInDoubt, is_wrong, write_in_transaction

_WRONG = Head(0, b"", RunStatus.PENDING, epoch=-1)


class KnownHeads:
    """The heads of the runs that this process owns, as it last wrote or read them; of a run under way, none."""

    def __init__(self) -> None:
        self._heads: dict[str, Head | None] = {}
        self.get = self._heads.get

    def own(self, run_ids: Iterable[str]) -> None:
        self._heads.update(dict.fromkeys(run_ids))

    def disown(self, run_id: str) -> None:
        self._heads.pop(run_id, None)

    def remember(self, heads: Mapping[str, Head | None]) -> None:
        self._heads.update({run_id: head for run_id, head in heads.items() if run_id in self._heads})

    def take(self, run_id: str) -> Head:
        """Take a head out until its run's next append is answered; of a run given up meanwhile, one that is wrong."""
        head = self._heads.get(run_id)
        if head is None:
            return _WRONG
        self._heads[run_id] = None
        return head


class AppendAttempt:
    """One batch on its way: what the latest try, whose answer may have been lost, has or has not written."""

    def __init__(self, batch: Sequence[Append], wait_s: float = LOCK_WAIT_S) -> None:
        self.batch = batch
        self.wait_s = wait_s
        self.run_ids = list(dict.fromkeys(append.run_id for append in batch))
        self.sent: tuple[list[AppendResult], list[StoredRow]] | None = None

    def note(self, results: list[AppendResult], rows: Sequence[StoredRow]) -> None:
        """Remember a try before its COMMIT is sent. A row of each run: any tells of all, but a run may be deleted."""
        self.sent = (results, list({row.run_id: row for row in rows}.values())) if rows else None


def append_locked(
    connection: Connection, attempt: AppendAttempt, known: KnownHeads, *, lease_s: float
) -> list[AppendResult]:
    """Make one try. Raises psycopg's errors; after a lost connection the same attempt may be tried again."""
    if any(append.rows for append in attempt.batch):
        try:
            return _append(connection, attempt, known, lease_s=lease_s, is_bold=True)
        except (RowsInDoubt, psycopg.Error) as error:
            if isinstance(error, psycopg.Error) and not is_wrong(error):
                raise
            connection.execute("ROLLBACK")
            attempt.sent = None
    return _append(connection, attempt, known, lease_s=lease_s, is_bold=False)


def _append(
    connection: Connection, attempt: AppendAttempt, known: KnownHeads, *, lease_s: float, is_bold: bool
) -> list[AppendResult]:
    owned = {append.run_id: append.epoch for append in attempt.batch if append.epoch is not None}
    moved: dict[str, Head] = {}

    def write(tx: PostgresTx) -> list[AppendResult]:
        if attempt.sent is not None:
            # Locking waits for the end of the earlier try, whose fate is then known: all of its rows or none.
            tx.lock_heads(attempt.run_ids)
            results, rows = attempt.sent
            if tx.is_written(rows):
                return results
        results, rows = write_batch(tx, attempt.batch)
        attempt.note(results, rows)
        moved.update(tx.heads)
        return results

    known.remember(dict.fromkeys(attempt.run_ids))
    results = write_in_transaction(
        connection, write, lease_s=lease_s, wait_s=attempt.wait_s, owned=owned, is_bold=is_bold
    )
    known.remember(moved)
    return results
