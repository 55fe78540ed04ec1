"""Results that are acknowledged late: they are written with whatever their run appends next.

For a call that may be made again and on whose result nobody acts before that append. It saves a commit, and a crash
costs no more than making the call once more.
"""

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.runtime.checkpoint.base import Prepared, prepare
from holdfast.runtime.events import Event

MAX_DELAY_S = 0.1  # watchers see a result no later than this, also while nothing else is appended


class DeferredEvents:
    """Events of one run that are still to be written."""

    def __init__(self) -> None:
        self.events: list[Prepared] = []
        self._flushing: asyncio.Task[None] | None = None

    def __bool__(self) -> bool:
        return bool(self.events)

    def add(self, *events: Event, flush: Callable[[], Awaitable[None]]) -> None:
        """Defer events; `flush` appends them if nothing else does. Raises `PayloadInvalid` now, for later it would be
        another append's failure."""
        prepared = [prepare(event) for event in events]
        if not self.events:
            asyncio.get_running_loop().call_later(MAX_DELAY_S, self._flush_soon, flush)
        self.events += prepared

    def take(self) -> list[Prepared]:
        """Take all of them out, for whoever appends them now."""
        if not self.events:
            return []
        taken, self.events = self.events, []
        return taken

    def restore(self, events: list[Prepared]) -> None:
        """Put events back that were not written after all."""
        self.events = events + self.events

    def _flush_soon(self, flush: Callable[[], Awaitable[None]]) -> None:
        if self.events and (self._flushing is None or self._flushing.done()):
            self._flushing = asyncio.ensure_future(flush())
