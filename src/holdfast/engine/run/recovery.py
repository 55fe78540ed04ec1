"""Runs whose owner is gone are resumed, all at once, in a program without a server."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from holdfast.errors import HoldfastError, RunAlreadyTerminal, RunBusy
from holdfast.persistence.db import Database
from holdfast.persistence.listings import list_due

_log = logging.getLogger("holdfast.engine")


async def recover_runs(db: Database, resume: Callable[[str], Awaitable[object]]) -> list[str]:
    """Resume every run that should be running and that nobody drives; return the ids of those that were."""
    recovered: list[str] = []

    async def try_one(run_id: str) -> None:
        try:
            await resume(run_id)
            recovered.append(run_id)
        except (RunBusy, RunAlreadyTerminal):
            pass
        except HoldfastError as error:
            # One run that cannot go on must not keep the others from it.
            _log.warning("a run could not be resumed", extra={"run_id": run_id, "code": error.code})

    await asyncio.gather(*(try_one(run.run_id) for run in await list_due(db) if run.wake is None))
    return recovered
