"""The time limit of a flow, where its run is driven by no runtime: its own process looks at the clock.

Rule: the limit is in the code, the start in the store. So it counts on over processes, and nothing is recorded before
it is over; then the run is cancelled as by any other request.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Sequence

from holdfast.errors import HoldfastError, RunAlreadyTerminal, RunNotFound
from holdfast.flows.answers import cancel_in_journal, request_cancel
from holdfast.flows.service.flow_registry import find_flow
from holdfast.quantities import format_number
from holdfast.runtime import clock, flow_rows
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.journal import Journal

_AGAIN_S = 1.0  # after a store was out of reach
_log = logging.getLogger("holdfast.flows")


def find_limit(journal: Journal, run_id: str, flow: str) -> "TimeLimit | None":
    """Find the time limit of a run by the name of its flow; only registered flows have one."""
    definition = find_flow(flow)
    if definition is None or definition.timeout_s is None:
        return None
    return TimeLimit(journal, run_id, definition.timeout_s)


class TimeLimit:
    """How long one run may take, and what is done when it is too late."""

    def __init__(self, journal: Journal, run_id: str, timeout_s: float) -> None:
        self._journal = journal
        self._run_id = run_id
        self._timeout_s = timeout_s
        self._ends_at: float | None = None

    async def apply(self, events: Sequence[Event]) -> Sequence[Event]:
        """Cancel the run if it is late already, so that nothing of it is begun; return its events as they are then."""
        if any(event.kind == EventKind.RUN_FAILED for event in events):
            return events  # it was over in time, and somebody has it tried again
        self._ends_at = await self._find_start(events) + self._timeout_s
        if not events or self._ends_at > clock.now():
            return events
        with contextlib.suppress(RunAlreadyTerminal, RunNotFound):
            await cancel_in_journal(self._journal, self._run_id, reason=to_reason(self._timeout_s), is_first_only=True)
        return await self._journal.read(self._run_id)

    async def _find_start(self, events: Sequence[Event]) -> float:
        if events and self._journal.store.has_rows:
            row = await self._journal.query(lambda store: flow_rows.read_row(store, self._run_id))
            if row is not None:
                return row.begun_at
        return events[0].ts if events else clock.now()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Ask for the cancellation of the run, which this process has, if the limit is over before this is left."""
        if self._ends_at is None:
            yield
            return
        watching = asyncio.create_task(self._end_at(self._ends_at), name=f"holdfast-limit-{self._run_id}")
        try:
            yield
        finally:
            watching.cancel()

    async def _end_at(self, ends_at: float) -> None:
        await clock.reach(ends_at)
        while True:
            try:
                await request_cancel(self._journal, self._run_id, reason=to_reason(self._timeout_s), is_first_only=True)
                # crash: the request stands; whoever resumes the run cancels it.
                return
            except (RunAlreadyTerminal, RunNotFound):
                return
            except HoldfastError:
                _log.exception("Run %s could not be cancelled by its time limit; it is tried again", self._run_id)
                await asyncio.sleep(_AGAIN_S)


def to_reason(timeout_s: float) -> str:
    return f"It was not over {format_number(timeout_s)} s after its start."
