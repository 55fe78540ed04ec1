"""The queue of one process: what is found due is taken on the spot, if there is a place."""

import asyncio
from collections.abc import Sequence
from datetime import datetime

from holdfast.fleet.port import QueueDescription, RunTaker
from holdfast.persistence.due.beat import DueJob
from holdfast.runtime.checkpoint.base import Statement


class InProcessQueue:
    """Holds nothing between two looks: whatever found no place is found again."""

    def __init__(self) -> None:
        self._taker: RunTaker | None = None
        self._is_stopped = asyncio.Event()

    def beside(
        self, run_id: str, *, queue: str, priority: int = 0, flow: str = "", at: datetime | None = None
    ) -> Sequence[Statement]:
        return ()

    async def enqueue(self, jobs: Sequence[DueJob]) -> None:
        for job in jobs:
            if self._taker is not None:
                self._taker.take(job.run_id)

    async def repair(self) -> None:
        """Do nothing: memory is not lost without its process."""

    async def serve(self, taker: RunTaker) -> None:
        self._taker = taker  # it knows itself how many it has a place for
        self._is_stopped.clear()
        await self._is_stopped.wait()

    async def stop(self) -> None:
        self._taker = None
        self._is_stopped.set()

    async def put_back(self, run_ids: Sequence[str]) -> None:
        """Do nothing: whoever looks next finds them."""

    def describe(self) -> QueueDescription:
        return QueueDescription("in-process", is_shared=False)
