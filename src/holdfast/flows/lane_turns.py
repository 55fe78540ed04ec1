"""The turns of parallel lanes of which only so many run at a time.

Rule: a lane that is parked has not ended. It keeps its turn, as it would while it waits in a process; when all turns
are kept so, the lanes that have none yet wait with the others for the next part of the run.
"""

import asyncio

from holdfast.runtime.step import Parked


class LaneTurns:
    """So many turns, each taken and given back by one lane after the other."""

    def __init__(self, limit: int) -> None:
        self._free = asyncio.Semaphore(limit)
        self._limit = limit
        self._parked: list[Parked] = []

    async def take(self) -> None:
        """Wait for a turn. Raises `Parked` if there will be none before the lanes that are parked go on."""
        await self._free.acquire()
        if self._is_stuck:
            self._free.release()  # to the next, who finds the same
            raise Parked.join(self._parked)

    def give_back(self) -> None:
        self._free.release()

    def keep(self, parked: Parked) -> None:
        """Note that a lane is parked with its turn."""
        self._parked.append(parked)
        if self._is_stuck:
            self._free.release()

    @property
    def _is_stuck(self) -> bool:
        return len(self._parked) == self._limit
