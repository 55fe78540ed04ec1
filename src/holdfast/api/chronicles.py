"""The chronicles of the runs that people look at, kept so that a look costs only what happened since the last one."""

import asyncio
from collections import OrderedDict

from holdfast.presentation.trace import Chronicle
from holdfast.runtime.journal import Journal

_KEPT = 32
_AT_ONCE = 500  # events folded before others get their turn: a long journal must not hold the whole server up


class Chronicles:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: OrderedDict[str, tuple[Chronicle, asyncio.Lock]] = OrderedDict()

    async def get(self, run_id: str) -> Chronicle:
        """The run's chronicle up to its last event now; shared, so nobody may change it."""
        chronicle, lock = self._known.setdefault(run_id, (Chronicle(), asyncio.Lock()))
        self._known.move_to_end(run_id)
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)
        async with lock:
            events = await self._journal.read(run_id, chronicle.last_seq)
            for start in range(0, len(events), _AT_ONCE):
                if start:
                    await asyncio.sleep(0)
                chronicle.extend(events[start : start + _AT_ONCE])
        return chronicle
