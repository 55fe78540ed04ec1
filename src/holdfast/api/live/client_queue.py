"""A client's place in the queue of a live stream: what it has not read yet, up to a limit.

Rule: a client that cannot keep up loses its place, never an event. It comes back with the last number it has seen.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

_T = TypeVar("_T")
MAX_QUEUED_BYTES = 4_000_000
_JOINED_BYTES = 64 * 1024  # as much as a connection takes before it wants to be waited for


class ClientQueue(Generic[_T]):
    """For many clients and each event this is what there is to do: no timer is set and nothing is copied for it."""

    def __init__(self, max_queued: int, *, max_bytes: int = MAX_QUEUED_BYTES, idle_s: float) -> None:
        self.is_cut_off = False
        self._max_queued = max_queued
        self._max_bytes = max_bytes
        self._queued_bytes = 0
        self._idle_s = idle_s
        self._frames: list[_T] = []
        self._waiter: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._taken_at = self._loop.time()
        self._is_idle = False
        self._timer = self._loop.call_later(idle_s, self._look)

    def put(self, frame: _T, size: int = 0) -> None:
        """Queue a frame of so many bytes; a client that has too much unread is let go, but one frame always fits."""
        if self.is_cut_off:
            return  # after a frame that it did not get, it must get none
        is_full = len(self._frames) >= self._max_queued or self._queued_bytes + size > self._max_bytes
        if is_full and self._frames:
            self.cut_off()
            return
        self._frames.append(frame)
        self._queued_bytes += size
        self._wake()

    def cut_off(self) -> None:
        """Let the client go; what it has in its queue is still sent."""
        self.is_cut_off = True
        self._wake()

    def close(self) -> None:
        self._timer.cancel()

    async def take(self) -> list[_T] | None:
        """Take everything that was put since, as soon as there is something; `None` when it is cut off.

        An empty list, at least `idle_s` after the last frame, means that someone should say that the stream lives.
        """
        while not (self._frames or self.is_cut_off or self._is_idle):
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        frames, self._frames = self._frames, []
        self._queued_bytes = 0
        self._is_idle = False
        self._taken_at = self._loop.time()
        return None if self.is_cut_off and not frames else frames

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _look(self) -> None:
        """Wake the client after a whole silence: one clock for it instead of one for each event that breaks it."""
        due_at = self._taken_at + self._idle_s
        if self._loop.time() >= due_at:
            self._is_idle = True
            self._wake()
            due_at = self._loop.time() + self._idle_s
        self._timer = self._loop.call_at(due_at, self._look)


def join(texts: Iterable[bytes]) -> Iterator[bytes]:
    """Join what is to be sent into as few pieces as a connection takes well."""
    waiting: list[bytes] = []
    size = 0
    for text in texts:
        waiting.append(text)
        size += len(text)
        if size >= _JOINED_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield waiting[0] if len(waiting) == 1 else b"".join(waiting)
