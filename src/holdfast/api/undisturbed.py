"""Reading for a client that may leave at any moment."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

_T = TypeVar("_T")


async def undisturbed(work: Awaitable[_T]) -> _T:
    """Let work end even if whoever waits for it is cancelled: a database connection left in the middle is lost."""
    return await asyncio.shield(asyncio.ensure_future(work))
