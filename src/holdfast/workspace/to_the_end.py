"""Work that a cancellation must not cut in two, such as git in a thread, which nobody can stop."""

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import TypeVar

_T = TypeVar("_T")


async def to_the_end(work: Awaitable[_T]) -> _T:
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
