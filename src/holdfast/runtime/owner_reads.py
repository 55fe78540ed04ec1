"""Reading for a run that is under way: a store that is away is no fault of the run.

Rule: whoever reads between two steps of a run reads through this. An ordinary error there would be taken for one of the
agent, the phase or the flow, and end the run.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.errors import StoreBusy, StoreError, StoreUnavailable
from holdfast.runtime.events import Event
from holdfast.runtime.journal import Journal
from holdfast.runtime.step import Stopped

_T = TypeVar("_T")
_PAUSE_S = 0.25


async def read_for_owner(journal: Journal, read: Callable[[], Awaitable[_T]]) -> _T:
    """Read; wait for a store that is away for as long as results wait to be recorded.

    Raises `Stopped` after that: the run stays under way, for whoever goes on with it.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + journal.owner_patience_s
    while True:
        try:
            return await read()
        except StoreError as error:
            if not isinstance(error, StoreUnavailable | StoreBusy) or loop.time() >= deadline:
                raise Stopped(error) from error
        await asyncio.sleep(_PAUSE_S)


async def read_events(journal: Journal, run_id: str, after: int = 0) -> list[Event]:
    """Read the events of a run after this number, as `read_for_owner` does."""
    return await read_for_owner(journal, lambda: journal.read(run_id, after))
