"""Calls that wait for the same thing, made as one: what is asked for in one turn of the loop, or while the last call is
still running, shares a call.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_log = logging.getLogger("holdfast.runtime")


class Coalescer(Generic[_Item, _Result]):
    """`call` gets all items that wait and returns a result or an exception for each, in order.

    A result that arrives when nobody waits for it any more goes to `release`.
    """

    def __init__(
        self,
        call: Callable[[list[_Item]], Awaitable[Sequence[_Result | BaseException]]],
        release: Callable[[_Result], Awaitable[None]] | None = None,
    ) -> None:
        self._call = call
        self._release = release
        self._waiting: list[tuple[_Item, asyncio.Future[_Result]]] = []
        self._running: asyncio.Task[None] | None = None

    async def __call__(self, item: _Item) -> _Result:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[_Result] = loop.create_future()
        self._waiting.append((item, done))
        if self._running is None:
            self._running = loop.create_task(self._run())
        return await done

    async def settle(self) -> None:
        """Wait until nothing is under way."""
        while self._running is not None:
            await asyncio.wait([self._running])

    async def _run(self) -> None:
        try:
            await asyncio.sleep(0)  # whoever asks in this turn of the loop comes along
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                results: Sequence[_Result | BaseException]
                try:
                    results = await self._call([item for item, _done in waiting])
                except Exception as error:
                    results = [error] * len(waiting)
                # Whoever waits has its answer before anything is given back, which may fail.
                answers = list(zip(waiting, results, strict=True))
                left = [result for (_item, done), result in answers if not _answer(done, result)]
                for result in left:
                    await self._give_back(result)
        finally:
            self._running = None

    async def _give_back(self, result: "_Result | BaseException") -> None:
        if self._release is None or isinstance(result, BaseException):
            return
        try:
            await self._release(result)
        except Exception:
            _log.warning("What nobody waits for any more could not be given back", exc_info=True)


def _answer(done: "asyncio.Future[_Result]", result: "_Result | BaseException") -> bool:
    """Answer whoever waits; false if nobody does any more."""
    if done.done():
        return False
    if isinstance(result, BaseException):
        done.set_exception(result)
    else:
        done.set_result(result)
    return True
