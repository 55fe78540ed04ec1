"""Requests to stop a run that another process may drive: wait until its owner has acted on them."""

import asyncio
import contextlib

from holdfast.engine.run_owner import RunOwner
from holdfast.errors import RunAlreadyTerminal, RunBusy
from holdfast.runtime.events import EventKind
from holdfast.runtime.journal import Journal

_CANCEL_WAIT_S = 30.0  # how long a live owner has to act on a request to cancel
_PAUSE_WAIT_S = 40.0  # longer than a drive waits for the calls it has in flight


async def wait_until_paused(journal: Journal, run_id: str, after: int) -> None:
    """Wait for the owner to act on a request: the run pauses, or it was over already."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PAUSE_WAIT_S):
            async for event in journal.follow(run_id, after):
                if event.is_terminal or event.kind == EventKind.RUN_PAUSED:
                    return


async def see_cancelled(owner: RunOwner, journal: Journal, run_id: str, *, after: int) -> None:
    """Cancel a run whose request stands in its journal, or wait until its owner has done so."""
    with contextlib.suppress(TimeoutError, RunAlreadyTerminal):
        async with asyncio.timeout(_CANCEL_WAIT_S):
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
