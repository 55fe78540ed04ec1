"""A client's place in the queue of a live stream: what it has not read yet, up to a limit.

Rule: a client that cannot keep up loses its place, never an event. It comes back with the last number it has seen.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Listener(Generic[_T]):
    def __init__(self, max_queued: int) -> None:
        self.is_cut_off = False
        self._frames: asyncio.Queue[_T | None] = asyncio.Queue(max_queued)

    def tell(self, frame: _T) -> None:
        try:
            self._frames.put_nowait(frame)
        except asyncio.QueueFull:
            self.cut_off()

    def cut_off(self) -> None:
        """Let the client go; what it has in its queue is still told."""
        self.is_cut_off = True
        with contextlib.suppress(asyncio.QueueFull):
            self._frames.put_nowait(None)

    async def queued(self, *, idle_s: float) -> AsyncIterator[_T | None]:
        """Frames as they are told, and `None` whenever `idle_s` passed without one; ends when it is cut off."""
        while not self.is_cut_off:
            try:
                async with asyncio.timeout(idle_s):
                    frame = await self._frames.get()
            except TimeoutError:
                yield None
                continue
            if frame is None:
                return
            yield frame
