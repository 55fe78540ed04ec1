"""Any `Checkpointer` as a store for flows: single appends, no fence, one process at a time."""

import threading
import time
from collections.abc import Mapping, Sequence, Set
from typing import Any

from holdfast.errors import HoldfastError, RowRefused, RunBusy
from holdfast.runtime.checkpoint.base import (
    Append,
    AppendResult,
    Checkpointer,
    Claim,
    Opening,
    Statement,
    check_run_id,
    prepare,
)
from holdfast.runtime.events import Event
from holdfast.runtime.state import RunState

_owned: set[tuple[int, str]] = set()
"""Store (by its identity) and run of every claim in this process, whichever event loop or thread has made it."""
_owning = threading.Lock()


class PlainStore:
    """A `JournalStore` over a plain one. Ownership is known inside this process only."""

    lease_s = None
    leases = None
    is_local = True
    has_rows = False

    def __init__(self, checkpointer: Checkpointer) -> None:
        self.inner = checkpointer

    def save_event(self, event: Event) -> Event:
        return self.inner.save_event(event)

    def save_snapshot(self, run_id: str, state: RunState) -> None:
        self.inner.save_snapshot(run_id, state)

    def load_latest(self, run_id: str) -> RunState | None:
        return self.inner.load_latest(run_id)

    def list_events(self, run_id: str, since_seq: int = 0) -> list[Event]:
        return self.inner.list_events(run_id, since_seq)

    def list_runs(self) -> list[str]:
        return self.inner.list_runs()

    def delete_run(self, run_id: str, *, claim: Claim | None = None, rows: Sequence[Statement] = ()) -> None:
        if rows:
            raise _no_rows()
        self.inner.delete_run(run_id)

    def close(self) -> None:
        """Leave the inner store open: it belongs to whoever made it."""

    def claim(self, run_id: str, *, force: bool = False) -> Claim:
        check_run_id(run_id)
        with _owning:
            if (id(self.inner), run_id) in _owned and not force:
                raise RunBusy(f"Run {run_id!r} is being driven in this process.", run_id=run_id)
            _owned.add((id(self.inner), run_id))
        try:
            return Claim(run_id, 0, self._head(run_id))
        except BaseException:
            self.release(Claim(run_id, 0, 0))
            raise

    def claim_many(
        self, run_ids: Sequence[str], *, force: bool = False, wait_s: float = 30.0
    ) -> list[Claim | HoldfastError]:
        results: list[Claim | HoldfastError] = []
        for run_id in run_ids:
            try:
                results.append(self.claim(run_id, force=force))
            except HoldfastError as error:
                results.append(error)
        return results

    def begin_many(self, openings: Sequence[Opening]) -> list[Claim | None]:
        return [None] * len(openings)

    def forget(self, claim: Claim) -> bool:
        return False

    def release(self, claim: Claim) -> None:
        with _owning:
            _owned.discard((id(self.inner), claim.run_id))

    def release_many(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self.release(claim)

    def renew(self, claims: Sequence[Claim]) -> None:
        """Do nothing: there is no lease."""

    def append(self, batch: Sequence[Append], *, wait_s: float = 30.0) -> list[AppendResult]:
        return [self._append_one(append) for append in batch]

    def _append_one(self, append: Append) -> AppendResult:
        if append.rows:
            return _no_rows()
        try:
            # crash: only the first of several events may be there; whoever resumes adds the rest.
            # A copy each: a store that keeps what it is given must not see what the flow does with its results.
            copies = [prepare(prepared.event).stored_as(prepared.seq) for prepared in append.events]
            return [self.inner.save_event(copy).seq for copy in copies]
        except HoldfastError as error:
            return error

    def open_pipeline(self) -> None:
        """Open nothing: the loop itself is quick enough."""

    def read_heads(self, run_ids: Sequence[str]) -> dict[str, int]:
        return {run_id: head for run_id in run_ids if (head := self._head(run_id))}

    def _head(self, run_id: str) -> int:
        events = self.inner.list_events(run_id)
        return events[-1].seq if events else 0

    def read_rows(self, sql: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        raise _no_rows()

    def find_owned(self, run_ids: Sequence[str]) -> set[str]:
        with _owning:
            return {run_id for run_id in run_ids if (id(self.inner), run_id) in _owned}

    def wait_for_change(self, timeout_s: float, *, but_by: int | None = None, of: Set[str] | None = None) -> bool:
        """Report one each time: a plain store cannot say, so its heads are looked at twice a second."""
        time.sleep(max(timeout_s, 0.5))
        return True


def _no_rows() -> RowRefused:
    return RowRefused("This store holds no rows.", hint="Use a SQLite or Postgres store.")
