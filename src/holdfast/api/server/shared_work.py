"""Work that many may ask for and that costs the same for one as for all: done once, by few at a time."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Result = TypeVar("_Result")


class SharedWork(Generic[_Key, _Result]):
    """Does blocking work in a thread. Who asks for the same while it is under way shares it.

    At most `at_once` threads are used, so that nobody who asks for much takes them from everybody else.
    """

    def __init__(self, *, at_once: int) -> None:
        self._places = asyncio.Semaphore(at_once)
        self._under_way: dict[_Key, asyncio.Task[_Result]] = {}

    async def get(self, key: _Key, work: Callable[[], _Result]) -> _Result:
        """Return what `work` returns, or what it did for somebody who asked for the same a moment ago."""
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(self._do(work))
            task.add_done_callback(lambda _done: self._under_way.pop(key, None))
        return await asyncio.shield(task)  # one who gives up must not take it from the others

    async def _do(self, work: Callable[[], _Result]) -> _Result:
        async with self._places:
            return await asyncio.to_thread(work)
