"""Results that are acknowledged late: they are written with whatever their run appends next.

For a call that may be made again and on whose result nobody acts before that append. It saves a commit, and a crash
costs no more than making the call once more.
"""

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.runtime.checkpoint.base import Prepared, prepare
from holdfast.runtime.events import Event

MAX_OWED_S = 0.1  # watchers see a result no later than this, also while nothing else is appended


class DeferredEvents:
    """What one run owes its journal; `pay` appends it."""

    def __init__(self, pay: Callable[[], Awaitable[None]]) -> None:
        self._pay = pay
        self._events: list[Prepared] = []
        self._paying: asyncio.Task[None] | None = None

    def __bool__(self) -> bool:
        return bool(self._events)

    def add(self, *events: Event) -> None:
        """Owe events. Raises `PayloadInvalid` now, for later it would be another append's failure."""
        prepared = [prepare(event) for event in events]
        if not self._events:
            asyncio.get_running_loop().call_later(MAX_OWED_S, self._pay_soon)
        self._events += prepared

    def take(self) -> list[Prepared]:
        """What is owed, for whoever appends it now."""
        taken, self._events = self._events, []
        return taken

    def give_back(self, events: list[Prepared]) -> None:
        """They were not written after all."""
        self._events = events + self._events

    def _pay_soon(self) -> None:
        if self._events and (self._paying is None or self._paying.done()):
            self._paying = asyncio.ensure_future(self._pay())
