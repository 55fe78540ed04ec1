"""Why flows failed, in one line: from the last events of their journals, which are read once for each failure."""

import asyncio
from collections.abc import Sequence

from holdfast.enums import RunStatus
from holdfast.errors import JournalCorrupt
from holdfast.presentation.flow_run import describe_flow_end
from holdfast.runtime.events import EventKind
from holdfast.runtime.flow_rows import FlowRow
from holdfast.runtime.journal import Journal

_LAST_EVENTS = 3  # the failure is the last one, but for what was said to the run afterwards
_MOST_KNOWN = 10_000


class FlowFailures:
    """The failures of flows in a store, kept by run until the run changes."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: dict[str, tuple[float, str]] = {}

    async def describe(self, rows: Sequence[FlowRow]) -> dict[str, str]:
        """Say by run id why those of these runs that failed did; nothing where the journal cannot be read."""
        failed = [row for row in rows if row.status == RunStatus.FAILED]
        new = [row for row in failed if self._known.get(row.run_id, (None,))[0] != row.updated_at]
        if new:
            heads = await asyncio.to_thread(self._journal.store.read_heads, [row.run_id for row in new])
            for row in new:
                self._known.pop(row.run_id, None)
                self._known[row.run_id] = row.updated_at, await self._read(row.run_id, heads.get(row.run_id, 0))
        found = {row.run_id: self._known[row.run_id][1] for row in failed}
        while len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        return found

    async def _read(self, run_id: str, head: int) -> str:
        try:
            events = await self._journal.read(run_id, max(0, head - _LAST_EVENTS))
        except JournalCorrupt:
            return ""  # one damaged run must not keep everyone from the others
        end = next((event for event in reversed(events) if event.kind == EventKind.RUN_FAILED), None)
        return describe_flow_end(RunStatus.FAILED, end.payload) if end else ""
