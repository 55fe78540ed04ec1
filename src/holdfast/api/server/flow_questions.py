"""What flows ask people, kept up with their journals: a look reads what is new in those that may ask, and no more."""

import asyncio
from dataclasses import dataclass

from holdfast.errors import JournalCorrupt
from holdfast.presentation.flow_run import FlowQuestion, Questions
from holdfast.runtime import flow_rows
from holdfast.runtime.flow_rows import FlowRow
from holdfast.runtime.journal import Journal


@dataclass(frozen=True)
class AskingFlow:
    """A question that waits, and the run that asks it."""

    row: FlowRow
    question: FlowQuestion


class FlowQuestions:
    """The open questions of all flows in a store, as of each look."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: dict[str, tuple[int, Questions]] = {}
        self._looking = asyncio.Lock()

    async def list(self) -> list[AskingFlow]:
        """List what waits for an answer now, the oldest first."""
        if not self._journal.store.has_rows:
            return []
        async with self._looking:
            # The rows before the numbers: what a run asks after this look is the next one's.
            rows = await asyncio.to_thread(flow_rows.read_open, self._journal.store)
            heads = await asyncio.to_thread(self._journal.store.read_heads, [row.run_id for row in rows])
            self._known = {row.run_id: await self._read(row.run_id, heads.get(row.run_id, 0)) for row in rows}
            found = [AskingFlow(row, question) for row in rows for question in self._known[row.run_id][1].open]
        return sorted(found, key=lambda each: (each.question.requested_at, each.row.run_id, each.question.key))

    async def _read(self, run_id: str, head: int) -> tuple[int, Questions]:
        last, questions = self._known.get(run_id, (0, Questions()))
        if head > last:
            try:
                events = await self._journal.read(run_id, last)
            except JournalCorrupt:
                return head, questions  # one damaged run must not keep everyone from the others
            for event in events:
                questions.add(event)
                last = event.seq
        return last, questions
