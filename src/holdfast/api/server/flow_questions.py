"""What flows ask people, kept up with their journals: a look reads what is new in those that may ask, and no more."""

import asyncio
import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.errors import JournalCorrupt
from holdfast.presentation.flow_run import FlowQuestion, Questions
from holdfast.runtime import flow_rows
from holdfast.runtime.flow_rows import FlowRow
from holdfast.runtime.journal import Journal

FAR = 1e12  # epoch seconds
_ROWS_AT_ONCE = 500
_MOST_KNOWN = 10_000  # runs that are over, with what they asked


@dataclass(frozen=True)
class AskingFlow:
    """A question, and the run that asks it or has asked it."""

    row: FlowRow
    question: FlowQuestion


class FlowQuestions:
    """The questions of all flows in a store, as of each look."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: dict[str, tuple[int, Questions]] = {}
        self._over: dict[str, tuple[float, list[FlowQuestion]]] = {}
        """Of runs that are over: when their row was written last, and what was answered."""
        self._looking = asyncio.Lock()

    async def list_open(self) -> list[AskingFlow]:
        """List what waits for an answer now, the oldest first."""
        if not self._journal.store.has_rows:
            return []
        async with self._looking:
            found = [
                AskingFlow(row, question) for row in await self._look() for question in self._known[row.run_id][1].open
            ]
        return sorted(found, key=_to_place)

    async def list_answered(self, *, limit: int, before: float = FAR) -> list[AskingFlow]:
        """List at least the newest `limit` of what was answered and asked up to a moment, the newest first.

        What a run has asked stands in its journal alone. So runs that are over are looked at from the one that changed
        last, until those that are left have changed before the oldest of the page was asked for.
        """
        if not self._journal.store.has_rows:
            return []
        async with self._looking:
            rows = await self._look()
            found = [AskingFlow(row, each) for row in rows for each in self._known[row.run_id][1].answered]
            found = [each for each in found if each.question.requested_at <= before]
            after: tuple[float, str] | None = None
            while not _is_page(found, limit, after):
                over = await asyncio.to_thread(
                    flow_rows.read_over,
                    self._journal.store,
                    created_until=before,
                    after=after,
                    limit=_ROWS_AT_ONCE,
                )
                await self._read_over(over)
                found += [
                    AskingFlow(row, each)
                    for row in over
                    for each in self._over.get(row.run_id, (0.0, ()))[1]
                    if each.requested_at <= before
                ]
                if len(over) < _ROWS_AT_ONCE:
                    break
                after = over[-1].updated_at, over[-1].run_id
        return sorted(found, key=_to_place, reverse=True)

    async def _read_over(self, rows: Sequence[FlowRow]) -> None:
        """Bring what is known of these runs, which are over, up to date; most have asked nothing."""
        new = [row for row in rows if self._over.get(row.run_id, (None,))[0] != row.updated_at]
        answered = await asyncio.to_thread(flow_rows.find_answered, self._journal.store, [row.run_id for row in new])
        for row in new:
            self._over.pop(row.run_id, None)
            _, questions = await self._read(row.run_id, 1) if row.run_id in answered else (0, Questions())
            self._over[row.run_id] = row.updated_at, questions.answered
        while len(self._over) > _MOST_KNOWN:
            del self._over[next(iter(self._over))]

    async def _look(self) -> list[FlowRow]:
        """Bring what is known of the runs that are not over up to date, and return these."""
        # The rows before the numbers: what a run asks after this look is the next one's.
        rows = await asyncio.to_thread(flow_rows.read_open, self._journal.store)
        heads = await asyncio.to_thread(self._journal.store.read_heads, [row.run_id for row in rows])
        self._known = {row.run_id: await self._read(row.run_id, heads.get(row.run_id, 0)) for row in rows}
        return rows

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


def _to_place(asking: AskingFlow) -> tuple[float, str, str]:
    return asking.question.requested_at, asking.row.run_id, asking.question.key


def _is_page(found: Sequence[AskingFlow], limit: int, after: tuple[float, str] | None) -> bool:
    """Tell whether the newest of these are a page: nothing of the runs that come after can be among them."""
    if after is None or len(found) < limit:
        return False
    return heapq.nlargest(limit, (each.question.requested_at for each in found))[-1] > after[0]
