"""Whether the server can work: its database answers and takes what is written, and its disk has room."""

import asyncio
import shutil
import time
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.persistence.access import prove_writable
from holdfast.persistence.db import Database
from holdfast.persistence.listings import count_by_state
from holdfast.runtime.journal import Journal

_KEEP_S = 5.0  # anybody may ask, as often as they like
_WAIT_S = 5.0
_MIN_FREE_BYTES = 1_000_000


class HealthProbe:
    """Tries it out, once for everybody who asks within a few seconds."""

    def __init__(self, db: Database, journal: Journal, data_dir: Path) -> None:
        self._db = db
        self._journal = journal
        self._data_dir = data_dir
        self._last: tuple[float, asyncio.Task[str | None]] | None = None

    async def find_problem(self) -> str | None:
        """Return the code of what keeps the server from working; `None` if nothing does."""
        last = self._last
        if last is None or (last[1].done() and time.monotonic() - last[0] >= _KEEP_S):
            self._last = last = (time.monotonic(), asyncio.create_task(self._try()))
        done, _ = await asyncio.wait((last[1],), timeout=_WAIT_S)
        return last[1].result() if done else "store_busy"

    async def wait_closed(self) -> None:
        """Return when nothing of this uses the database any more."""
        if self._last is not None:
            await asyncio.wait((self._last[1],))

    async def _try(self) -> str | None:
        try:
            await count_by_state(self._db)
            await prove_writable(self._journal)
            free = await asyncio.to_thread(lambda: shutil.disk_usage(self._data_dir).free)
        except HoldfastError as error:
            return error.code
        except Exception:  # whatever the driver or the system calls it
            return "store_unavailable"
        return "store_full" if free < _MIN_FREE_BYTES else None
