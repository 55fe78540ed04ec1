"""What happens to flows by the clock, wherever they are driven: starts by schedules, ends by time limits."""

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.errors import RunAlreadyTerminal, RunNotFound
from holdfast.flows.answers import cancel_in_journal
from holdfast.flows.service.flow_schedule import ScheduledFlows
from holdfast.flows.time_limit import to_reason
from holdfast.runtime import flow_rows
from holdfast.runtime.clock import now
from holdfast.runtime.events import EventKind
from holdfast.runtime.journal import Journal
from holdfast.runtime.stores import StoreLike, open_journal

if TYPE_CHECKING:
    from holdfast.flows.service.flow_registry import FlowDefinition

_log = logging.getLogger("holdfast.flows")


class FlowTimes:
    """Starts and cancels runs as their times come, for as long as it runs."""

    def __init__(self, store: StoreLike, definitions: Iterable["FlowDefinition"], *, poll_s: float) -> None:
        definitions = list(definitions)
        self._has_any = any(one.schedule or one.timeout_s for one in definitions)
        self._scheduled = ScheduledFlows(store, definitions, poll_s=poll_s)
        self._limited = LimitedFlows(store, definitions)
        self._poll_s = poll_s

    async def run(self) -> None:
        """Look for ever; return at once where no flow has a schedule or a time limit."""
        while self._has_any:
            left_s = await self._scheduled.fire_due()
            await self._limited.end_late()
            # By the event loop's clock, not by that of flows: a test's, which jumps to whatever somebody waits for,
            # would never come to rest.
            await asyncio.sleep(max(0.0, min(left_s, self._poll_s)))


class LimitedFlows:
    """Cancels runs that are not over when their flow's time limit is, in any number of processes at once.

    Rule: each run is looked at once, when it comes of that age; a request to cancel it stands in its journal.
    """

    def __init__(self, store: StoreLike, definitions: Iterable["FlowDefinition"]) -> None:
        self._store = store
        self._flows = [(one.name, one.timeout_s) for one in definitions if one.timeout_s is not None]
        self._done_until: dict[str, float] = {}

    async def end_late(self) -> None:
        """Cancel what is late. What cannot be is logged, and tried again at the next look."""
        for name, timeout_s in self._flows:
            until = now() - timeout_s
            try:
                async with open_journal(self._store) as journal:
                    await self._end(journal, name, timeout_s, until)
            except Exception:
                _log.exception("Runs of flow %s could not be cancelled by their time limit; it is tried again", name)
                continue
            self._done_until[name] = until

    async def _end(self, journal: Journal, name: str, timeout_s: float, until: float) -> None:
        after = self._done_until.get(name, 0.0)
        late = await journal.query(
            lambda store: flow_rows.read_open_of_age(store, name, begun_after=after, begun_until=until)
        )
        for run_id in late:
            events = await journal.read(run_id)
            if any(event.kind == EventKind.RUN_FAILED for event in events):
                continue  # it was over in time, and a person has it tried again
            try:
                await cancel_in_journal(journal, run_id, reason=to_reason(timeout_s), is_first_only=True)
            except (RunAlreadyTerminal, RunNotFound):
                continue
