"""Deleting flow runs that have been over for long: a store of a service grows by every run."""

import functools
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

from holdfast.errors import HoldfastError, RunBusy, RunNotFound, RunNotInState
from holdfast.flows.answers import delete_in_journal
from holdfast.runtime import flow_rows
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.clock import now
from holdfast.runtime.flow_rows import FlowRow
from holdfast.runtime.journal import Journal

_ROWS_AT_ONCE = 500
_NO_ROWS: Sequence[Statement] = ()


async def list_prunable(journal: Journal, *, older_than: timedelta, states: Collection[str]) -> list[FlowRow]:
    """List the runs in one of these states that were over so long ago, each after the run that began it."""
    until, found = now() - older_than.total_seconds(), list[FlowRow]()
    after: tuple[float, str] | None = None
    while True:
        read = functools.partial(flow_rows.read_over, created_until=until, after=after, limit=_ROWS_AT_ONCE)
        rows = await journal.query(read)
        found += [row for row in rows if row.updated_at <= until and row.status in states]
        if len(rows) < _ROWS_AT_ONCE:
            return sorted(found, key=lambda row: (row.created_at, row.run_id))
        after = rows[-1].updated_at, rows[-1].run_id


async def prune(
    journal: Journal, rows: Sequence[FlowRow], *, also: Callable[[str], Sequence[Statement]] = lambda _run_id: _NO_ROWS
) -> tuple[list[str], dict[str, HoldfastError]]:
    """Delete these runs, each whole or not at all; return which are gone, and why others stay.

    `also` says what else is changed in the transaction that deletes a run.
    """
    deleted: list[str] = []
    staying: dict[str, HoldfastError] = {}
    for row in rows:
        try:
            await delete_in_journal(journal, row.run_id, rows=also(row.run_id))
            # crash: what is deleted is gone whole; the same command again goes on with the rest.
            deleted.append(row.run_id)
        except RunNotFound:
            deleted.append(row.run_id)  # somebody was faster
        except (RunBusy, RunNotInState) as error:
            staying[row.run_id] = error
    return deleted, staying
