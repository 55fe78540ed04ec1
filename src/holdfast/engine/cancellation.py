"""A run that is to be cancelled: here if nobody drives it, else by its owner."""

import asyncio
import contextlib

from holdfast.engine.owning import RunOwner
from holdfast.errors import RunAlreadyTerminal, RunBusy
from holdfast.runtime.journal import Journal

_WAIT_S = 30.0  # how long a live owner is given to act on a request to cancel


async def see_cancelled(owner: RunOwner, journal: Journal, run_id: str, *, after: int) -> None:
    """Cancel a run whose request stands in its journal, or wait until its owner has done so."""
    with contextlib.suppress(TimeoutError, RunAlreadyTerminal):
        async with asyncio.timeout(_WAIT_S):
            while True:
                with contextlib.suppress(RunBusy):
                    await owner.cancel(run_id)
                    return
                await _wait_for_end(journal, run_id, after)


async def _wait_for_end(journal: Journal, run_id: str, after: int) -> None:
    """Wait, but not for long: an owner that has just paused will not act any more, and gives the run up."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            async for event in journal.follow(run_id, after):
                if event.is_terminal:
                    return
