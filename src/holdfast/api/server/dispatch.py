"""Which runs are driven, and where. The API only writes what should happen and says that there is something to do.

Rule: what is to be done stands in the rows (`pending`, `running`, a request in `wake`), never only in memory. A server
that dies here forgets nothing; another one, or its own next start, finds the same rows.
"""

import asyncio
import contextlib
import importlib
import logging
import time
from pathlib import Path
from typing import Protocol

from holdfast.api.server.engines import Engines
from holdfast.api.server.metrics import RunMetrics, observe_run
from holdfast.engine.approvals.decisions import decide_overdue
from holdfast.engine.run.foreign_commands import stop_foreign_commands
from holdfast.enums import RunStatus
from holdfast.errors import HoldfastError, RunAlreadyTerminal, RunBusy, RunNotFound, RunNotInState
from holdfast.persistence.db import Database
from holdfast.persistence.listings import DueRun, list_due
from holdfast.persistence.statements import clear_wake
from holdfast.runtime.journal import Journal

_MAX_BACK_OFF_S = 300.0
_MOST_DUE = 500  # at a look
_SLOW_S = 2.0  # a look that took longer: others may have lost their leases while they waited as we did
_AGENTS = "holdfast.engine.phase.middleware"
_log = logging.getLogger("holdfast.api")


class Dispatcher(Protocol):
    """Brings runs that should go on to whoever drives them."""

    async def start(self) -> None: ...

    async def stop(self) -> None:
        """Give up every run that is driven here, as it is, within the grace time."""
        ...

    def wake(self) -> None:
        """Look now what is due, instead of in a moment."""
        ...

    def find_reason(self, run_id: str) -> str | None:
        """Tell why a run that should go on does not, as far as this server knows."""
        ...

    def is_driving(self, run_id: str) -> bool: ...

    def count_driven(self) -> int: ...

    def count_waiting(self) -> int: ...


class NoDispatcher:
    """For a server that drives nothing itself."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def wake(self) -> None: ...

    def find_reason(self, run_id: str) -> str | None:
        return "This server drives no runs. Start one that does: holdfast serve"

    def is_driving(self, run_id: str) -> bool:
        return False

    def count_driven(self) -> int:
        return 0

    def count_waiting(self) -> int:
        return 0


class InProcessDispatcher:
    """Drives runs on the server's own event loop, a limited number at a time."""

    def __init__(
        self,
        db: Database,
        journal: Journal,
        engines: Engines,
        metrics: RunMetrics,
        *,
        max_parallel: int,
        poll_s: float,
        grace_s: float,
    ) -> None:
        self._db = db
        self._journal = journal
        self._engines = engines
        self._metrics = metrics
        self._max_parallel = max_parallel
        self._poll_s = poll_s
        self._grace_s = grace_s
        self._drives: dict[str, asyncio.Task[None]] = {}
        self._reasons: dict[str, str] = {}
        self._not_before: dict[str, float] = {}
        self._back_off_s: dict[str, float] = {}
        self._woken = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[object] | None = None

    async def start(self) -> None:
        self._looking = asyncio.create_task(self._look_for_ever(), name="holdfast-dispatcher")
        self._ending = asyncio.create_task(self._end_foreign_commands())

    async def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        drives = list(self._drives.values())
        for drive in drives:
            drive.cancel()
        waiting = [task for task in (self._looking, self._ending, *drives) if task is not None]
        if waiting:
            await asyncio.wait(waiting, timeout=self._grace_s)

    def wake(self) -> None:
        self._woken.set()

    def find_reason(self, run_id: str) -> str | None:
        return self._reasons.get(run_id)

    def is_driving(self, run_id: str) -> bool:
        return run_id in self._drives

    def count_driven(self) -> int:
        return len(self._drives)

    def count_waiting(self) -> int:
        return len(self._reasons)

    async def _look_for_ever(self) -> None:
        while True:
            self._woken.clear()
            try:
                await decide_overdue(self._db, self._journal)
                began = time.monotonic()
                held_back = self._find_held_back()
                due = await list_due(self._db, limit=_MOST_DUE, but=held_back | set(self._drives))
                if time.monotonic() - began > _SLOW_S:
                    self._journal.note_outage()
                self._take(due, held_back)
            except Exception:
                self._journal.note_outage()
                _log.exception("What is due could not be read; it is tried again")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await self._woken.wait()

    async def _end_foreign_commands(self) -> None:
        try:
            await stop_foreign_commands(self._db, self._engines.spool_dir)
        except Exception:
            _log.exception("Commands of runs that another machine has could not be ended")

    def _find_held_back(self) -> set[str]:
        now = time.monotonic()
        self._not_before = {run_id: at for run_id, at in self._not_before.items() if at > now}
        return set(self._not_before)

    def _take(self, due: list[DueRun], held_back: set[str]) -> None:
        reasons = {run_id: self._reasons.get(run_id, "It is tried again in a moment.") for run_id in held_back}
        for run in due:
            if run.run_id in self._drives:
                continue
            if len(self._drives) >= self._max_parallel:
                reasons[run.run_id] = f"This server works on {self._max_parallel} runs already, its limit."
            else:
                self._start_drive(run)
        self._reasons = reasons

    def _start_drive(self, run: DueRun) -> None:
        self._drives[run.run_id] = task = asyncio.create_task(self._drive(run), name=f"holdfast-run-{run.run_id}")
        task.add_done_callback(lambda _task: self._end_drive(run.run_id))

    def _end_drive(self, run_id: str) -> None:
        self._drives.pop(run_id, None)
        self._woken.set()

    async def _load_agents(self) -> None:
        """Import what agents need in a thread, once: on the loop it would hold up every request for seconds."""
        if self._loading is None or (self._loading.done() and self._loading.exception() is not None):
            # One that failed is tried again: what was missing may be there by now.
            self._loading = asyncio.create_task(asyncio.to_thread(importlib.import_module, _AGENTS))
        await asyncio.shield(self._loading)

    async def _drive(self, run: DueRun) -> None:
        try:
            await self._load_agents()
            engine = await self._engines.for_repository(Path(run.repo_path))
            if run.state == RunStatus.FAILED:
                await engine.retry(run.run_id)
            else:
                await engine.resume(run.run_id)
        except RunBusy:
            self._hold_back(run.run_id, self._poll_s, "Another process drives it.")
            return
        except RunNotFound:
            return  # deleted since; nothing may be written to it
        except (RunAlreadyTerminal, RunNotInState):
            pass  # somebody was faster
        except Exception as error:
            _log.warning("A run could not be driven", exc_info=True, extra={"run_id": run.run_id})
            self._back_off(run.run_id, error)
            if not isinstance(error, HoldfastError):
                return
        else:
            self._back_off_s.pop(run.run_id, None)
        await self._clear_wake(run)
        await observe_run(self._db, self._journal, run.run_id, self._metrics)

    def _back_off(self, run_id: str, error: Exception) -> None:
        wait_s = min(self._back_off_s.get(run_id, self._poll_s) * 2, _MAX_BACK_OFF_S)
        self._back_off_s[run_id] = wait_s
        cause = error.message if isinstance(error, HoldfastError) else type(error).__name__
        self._hold_back(run_id, wait_s, f"It could not be driven and is tried again in {wait_s:g} s: {cause}")

    def _hold_back(self, run_id: str, wait_s: float, reason: str) -> None:
        self._not_before[run_id] = time.monotonic() + wait_s
        self._reasons[run_id] = reason

    async def _clear_wake(self, run: DueRun) -> None:
        """Clear the request that was served. One that came meanwhile has another value, and stays."""
        if run.wake is None:
            return
        # crash: the run is paused with the request still there: it is resumed once more, and pauses again.
        await self._journal.append(run.run_id, [], rows=[clear_wake(run.run_id, run.wake)])
