"""Awaits that outlive their waiter: work that goes on to its end when whoever waits for it is cancelled."""

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any, TypeVar

_T = TypeVar("_T")


async def shielded(work: Awaitable[_T]) -> _T:
    """Let work end even if whoever waits for it is cancelled: a database connection left in the middle is lost."""
    return await asyncio.shield(asyncio.ensure_future(work))


class TaskTracker:
    """The tasks that must end before the server closes its database, whether their client is there or not."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()

    async def run_shielded(self, work: Awaitable[_T]) -> _T:
        """Do work to its end, as `shielded` does, and let `drain` wait for it."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await shielded(task)

    async def drain(self) -> None:
        """Wait until nothing is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)


async def finish_then_cancel(work: Awaitable[_T]) -> _T:
    """Do work to its end. Whoever is cancelled meanwhile is so after it, and has not let go of anything before."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # a Ctrl-C ends git as well; whoever is cancelled is told that, and not this too
        raise
