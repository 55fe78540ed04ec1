"""A process that drives runs: so many at a time, those that the queue brings and that it can drive.

Rule: what is to be done stands in the rows, never only in memory. A worker that dies here forgets nothing; another one,
or its own next start, finds the same rows.
"""

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass, replace
from functools import partial

from holdfast import __version__
from holdfast.engine.run.foreign_commands import end_foreign_commands
from holdfast.errors import (
    HoldfastError,
    LeaseLost,
    RunBusy,
    RunNotFound,
    RunWaits,
    StoreBusy,
    StoreUnavailable,
)
from holdfast.fleet.drain import Drain
from holdfast.fleet.port import Queue
from holdfast.fleet.run_drive import Drive, NoDrive, RunDrives, WorkflowDrive
from holdfast.fleet.schedules import ScheduleClock
from holdfast.fleet.sweep import Sweep
from holdfast.flows.service.flow_drive import FlowDrive
from holdfast.flows.service.flow_times import FlowTimes
from holdfast.persistence.db import Database
from holdfast.persistence.due.beat import DueJob
from holdfast.persistence.due.left_behind import keep_left
from holdfast.persistence.due.still_runs import ListedWorker, Look
from holdfast.persistence.fleet import (
    MAX_BACK_OFF_S,
    WorkerFacts,
    drop_look,
    note_look,
    register,
    unregister,
    was_reachable,
)
from holdfast.runtime.checkpoint import process_owner
from holdfast.runtime.checkpoint.gc_pause import freeze_once
from holdfast.runtime.clock import elapsed_s
from holdfast.runtime.journal import Journal
from holdfast.workspace import find_place, lease_folder

_LACKING_S = 60.0  # until a worker that lacks a key looks at the run again
_FULL_S = 60.0  # until a run that waits for a place of its flow is looked at again by itself
_BUSY_S = 0.5  # its owner may let go of it at any moment
_log = logging.getLogger("holdfast.fleet")


@dataclass(frozen=True)
class WorkerOptions:
    """How a worker works."""

    name: str = ""
    """Empty for the machine's name and the process's number."""
    slots: int = 8
    queues: tuple[str, ...] = ()
    flows: tuple[str, ...] = ()
    poll_s: float = 2.0
    grace_s: float = 60.0
    workflow_grace_s: float | None = None
    """Of runs of workflows, if it is shorter: their calls can be cut off and made again without asking anybody."""


def default_name() -> str:
    """Return the name of a worker that has none: that of the machine, with the process's number."""
    return f"{socket.gethostname()}-{os.getpid()}"


class Worker:
    """Takes runs from a queue and drives each in a task of its own, until it is stopped or drained."""

    def __init__(
        self,
        db: Database,
        journal: Journal,
        queue: Queue,
        drives: RunDrives,
        schedules: ScheduleClock,
        options: WorkerOptions,
        *,
        flow_times: FlowTimes | None = None,
        on_end: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self._db = db
        self._journal = journal
        self._queue = queue
        self._drives = drives
        self._schedules = schedules
        self._flow_times = flow_times
        self._options = options
        self._on_end = on_end
        self._owner = process_owner.new_owner()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._has_place = asyncio.Event()
        self._has_place.set()
        self._open: dict[str, Drive] = {}
        self._ending: set[str] = set()
        """Runs of which only the end is to be recorded: they take no place any more."""
        self._left: set[str] = set()
        """Runs that a dead process of this machine has left: they are driven whoever's turn it is."""
        self._reasons: dict[str, str] = {}
        self._crowded: set[str] = set()
        self._crowded_before: set[str] = set()
        """Those of the look before: while a look is under way, they wait as they did."""
        self._not_before: dict[str, float] = {}
        self._back_off_s: dict[str, float] = {}
        self._background: list[asyncio.Task[None]] = []
        self._since = time.time()
        self._stopping: asyncio.Task[None] | None = None
        self.facts = WorkerFacts(
            options.name or default_name(),
            self._owner.to_text(),
            self._owner.host,
            __version__,
            options.slots,
            options.queues,
            options.flows,
        )
        self.draining = asyncio.Event()
        """Set when it is to end."""
        self.end: Drain | None = None
        """What it waits for then."""
        self.stopped = asyncio.Event()
        """Set when it drives nothing any more, and takes nothing."""

    # -- its life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        if self._queue.describe().is_shared and not await register(self._db, self.facts):
            # Two of one name would be one row: the second gets a name of its own.
            self.facts = replace(self.facts, name=f"{self.facts.name}-{secrets.token_hex(2)}")
            await register(self._db, self.facts)
        if self._queue.describe().is_shared and not await was_reachable(self._db, self.facts.process):
            # The database may have been away until now: owners that live renew their leases first.
            self._journal.note_outage()
        poll_s = self._options.poll_s
        self._sweep = Sweep(self._db, self._journal, self._queue, self.facts, self._schedules, poll_s=poll_s)
        looking = self._sweep.run(
            self,
            count_driven=self.count_driven,
            is_draining=self.draining.is_set,
            on_drain=self.drain,
            on_death=self._take_left,
        )
        if self._queue.describe().is_shared:
            await self._take_left()
        self._background = [
            asyncio.create_task(self._queue.serve(self), name="holdfast-queue-loop"),
            asyncio.create_task(looking, name="holdfast-sweep"),
            asyncio.create_task(end_foreign_commands(self._db, self._drives.spool_dir, self._tasks)),
        ]
        if self._flow_times is not None:
            # Not in the sweep, which one worker makes for all: that one may not know these flows.
            self._background.append(asyncio.create_task(self._flow_times.run(), name="holdfast-flow-times"))

    async def _take_left(self) -> None:
        """Take what a dead process of this machine has left, before anything of the queue: its commands may live here,
        and no other machine finds them."""
        free = self._options.slots - self.count_driven()
        if self._stopping is not None or free <= 0:
            return
        place = await asyncio.to_thread(find_place, self._drives.spool_dir.parent)
        queues, flows = self.facts.queues, self.facts.flows
        began = elapsed_s()
        left, safe = await keep_left(self._db, place=place.data, queues=queues, flows=flows, most=free)
        if safe and (store := self._journal.store).leases is not None and store.lease_s is not None:
            folder = lease_folder(self._drives.spool_dir.parent)
            await asyncio.to_thread(store.leases.show, folder, safe, until=began + store.lease_s)
        for run_id in left:
            self._left.add(run_id)
            self._not_before.pop(run_id, None)
            if self.take(run_id) is None and run_id not in self._tasks:
                self._left.discard(run_id)

    def drain(self) -> Drain:
        """Take nothing more, and stop within the grace time. Its row says so with the sign of life that follows."""
        if self.end is None:
            _log.info("Worker %s is to end: it takes nothing more", self.facts.name)
            options = self._options
            self.end = Drain(self._open, grace_s=options.grace_s, workflow_grace_s=options.workflow_grace_s)
            self.draining.set()
            self._sweep.wake()
            self._stopping = asyncio.create_task(self._stop(self.end), name="holdfast-drain")
        return self.end

    async def stop(self) -> None:
        """Take nothing more, let calls in flight end and be recorded within the grace time, and give up the rest."""
        self.drain()
        await self.stopped.wait()

    async def _stop(self, end: Drain) -> None:
        """End part by part; a database that is away keeps none of them from the next one."""
        clock = asyncio.get_running_loop()
        leaving = asyncio.create_task(self._leave_queue(end), name="holdfast-leave-queue")
        try:
            if self._options.workflow_grace_s is not None:
                clock.call_later(self._options.workflow_grace_s, self._give_up_workflows)
            await end.wait([leaving, *self._tasks.values()])
            last_at = clock.time() + end.last_s
            for tasks in (list(self._tasks.values()), self._background):
                for task in tasks:
                    task.cancel()
                await asyncio.wait([leaving, *tasks], timeout=max(0.0, last_at - clock.time()))
            if self._queue.describe().is_shared:
                async with asyncio.timeout_at(last_at):
                    await unregister(self._db, self.facts)
        except (HoldfastError, TimeoutError) as error:
            _log.warning("A worker could not say that it is gone: %s", str(error) or "the database does not answer")
        except Exception:
            _log.warning("A worker could not say that it is gone", exc_info=True)
        finally:
            leaving.cancel()
            process_owner.forget(self._owner.token)
            self.stopped.set()

    async def _leave_queue(self, end: Drain) -> None:
        """Take nothing out of the queue any more, and put back what was taken and not begun."""
        await self._queue.stop()
        try:
            await self._queue.put_back([run_id for run_id in self._tasks if run_id not in self._open])
        except HoldfastError as error:
            _log.warning("What was not begun could not be put back; it is found in a moment: %s", error.message)
        for run_id, task in list(self._tasks.items()):
            drive = self._open.get(run_id)
            if run_id not in end.run_ids and (drive is None or not drive.drain()):
                task.cancel()  # it waits, or has not begun

    def _give_up_workflows(self) -> None:
        for run_id, task in self._tasks.items():
            if isinstance(self._open.get(run_id), WorkflowDrive):
                task.cancel()

    # -- what others ask ----------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Look now what is due, instead of in a moment."""
        self._sweep.wake()

    def find_reason(self, run_id: str) -> str | None:
        """Tell why a run that should go on does not, as far as this worker knows."""
        self._end_holds()
        if run_id in self._crowded | self._crowded_before:
            return f"This server works on {self._options.slots} runs already, its limit."
        return self._reasons.get(run_id)

    def describe(self) -> ListedWorker:
        """Describe this worker as others are listed."""
        facts, is_draining = self.facts, self.draining.is_set()
        return ListedWorker(
            *(facts.name, facts.machine, facts.version, self._since, facts.slots, self.count_driven()),
            *(0.0, is_draining, facts.queues, facts.flows),
        )

    def is_driving(self, run_id: str) -> bool:
        return run_id in self._tasks

    def count_driven(self) -> int:
        return len(self._tasks) - len(self._ending)

    def count_waiting(self) -> int:
        return len(self._reasons) + len(self._crowded | self._crowded_before)

    # -- runs ---------------------------------------------------------------------------------------------------------

    def list_passed_over(self) -> Set[str]:
        self._crowded_before, self._crowded = self._crowded, set()
        self._end_holds()
        return {*self._tasks, *self._not_before}

    def _end_holds(self) -> None:
        now = time.monotonic()
        for run_id in [run_id for run_id, at in self._not_before.items() if at <= now]:
            del self._not_before[run_id]
            self._reasons.pop(run_id, None)

    async def wait_for_place(self) -> int:
        await self._has_place.wait()
        return self._options.slots - self.count_driven()

    def take(self, run_id: str) -> "asyncio.Task[None] | None":
        self._end_holds()
        if self._stopping is not None or run_id in self._tasks or run_id in self._not_before:
            return None
        if self.count_driven() >= self._options.slots:
            self._crowded.add(run_id)
            return None
        self._crowded.discard(run_id)
        self._crowded_before.discard(run_id)
        self._tasks[run_id] = task = asyncio.create_task(self._drive(run_id), name=f"holdfast-run-{run_id}")
        task.add_done_callback(self._end_drive)
        self._note_places()
        return task

    def _note_places(self) -> None:
        if self.count_driven() < self._options.slots:
            self._has_place.set()
        else:
            self._has_place.clear()

    def _note_ending(self, run_id: str) -> None:
        self._ending.add(run_id)
        self._note_places()

    def _end_drive(self, task: "asyncio.Task[None]") -> None:
        run_id = next(run_id for run_id, known in self._tasks.items() if known is task)
        del self._tasks[run_id]
        self._ending.discard(run_id)
        self._left.discard(run_id)
        self._note_places()
        is_flow = isinstance(self._open.pop(run_id, None), FlowDrive | NoDrive)
        if (waiting := self._drives.end(run_id)) is not None:
            self._not_before.pop(waiting, None)
            self._reasons.pop(waiting, None)
            self.take(waiting)
        if not (is_flow and self._queue.describe().is_shared):
            self._sweep.wake()  # others may have waited for its place; of flows the queue brings the next

    async def _give_turn(self, run_id: str) -> str:
        """Return which run is driven in place of the one that was brought: the one whose turn it is."""
        turn = await self._drives.find_turn(run_id, {*self._tasks, *self._not_before} - {run_id})
        if turn is None or turn[0].run_id in self._tasks:
            return run_id
        first, own = turn
        self._tasks[first.run_id] = self._tasks.pop(run_id)
        # crash: nobody is told of the other run any more; the sweep finds it.
        await self._queue.enqueue([DueJob(own.run_id, own.queue, own.priority)])
        return first.run_id

    async def _drive(self, run_id: str) -> None:
        try:
            drive: Drive | None = await self._drives.find_flow(run_id)
            if drive is None:
                run_id = run_id if run_id in self._left else await self._give_turn(run_id)
                drive = await self._drives.find(run_id)
            if drive is None:
                return
            self._open[run_id] = drive
            if isinstance(drive, NoDrive):
                return
            if isinstance(drive, FlowDrive):
                drive.on_end = partial(self._note_ending, run_id)
            await drive.run()
        except (RunBusy, LeaseLost):
            self._hold_back(run_id, min(self._options.poll_s, _BUSY_S), "Another process drives it.")
            return
        except RunWaits as waits:  # another process was faster to take the place
            if waits.facts.get("flow"):  # it is taken as soon as one of the flow's runs ends
                await self._note_look(run_id, waits.message, wait_s=_FULL_S)
            else:
                self._hold_back(run_id, min(self._options.poll_s, _BUSY_S), waits.message)
            return
        except RunNotFound:
            return  # deleted since; nothing may be written to it
        except (StoreUnavailable, StoreBusy) as error:  # it is no fault of the run, and nothing can be written either
            _log.info("A run was left as it is: %s", error.message, extra={"run_id": run_id})  # the sweep warns
            self._hold_back(run_id, self._options.poll_s, error.message)
            return
        except Exception as error:
            await self._give_back(run_id, error)
            return
        if self._back_off_s.pop(run_id, None) is not None and self._queue.describe().is_shared:
            await drop_look(self._db, run_id, self.facts.name)
        if self._on_end is not None:
            await self._on_end(run_id)
        if isinstance(drive, WorkflowDrive):
            freeze_once()

    async def _give_back(self, run_id: str, error: Exception) -> None:
        """Leave a run that cannot be driven here as it is, for others, and say why where everybody can read it."""
        missing = str(error.facts.get("missing", "")) if isinstance(error, HoldfastError) else ""
        wait_s = min(self._back_off_s.get(run_id, self._options.poll_s) * 2, MAX_BACK_OFF_S)
        self._back_off_s[run_id] = wait_s
        wait_s = max(wait_s, _LACKING_S) if missing else wait_s
        cause = error.message if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"
        if not missing:
            is_ours = isinstance(error, HoldfastError)
            _log.warning("A run could not be driven: %s", cause, exc_info=not is_ours, extra={"run_id": run_id})
        reason = f"It could not be driven and is tried again in {wait_s:g} s: {cause}"
        await self._note_look(run_id, reason, wait_s=wait_s, missing=missing)

    async def _note_look(self, run_id: str, reason: str, *, wait_s: float, missing: str = "") -> None:
        """Pass a run over for a while, and say why where everybody can read it."""
        self._hold_back(run_id, wait_s, reason)
        if self._queue.describe().is_shared:
            await note_look(self._db, run_id, Look(self.facts.name, missing, reason), wait_s=wait_s)

    def _hold_back(self, run_id: str, wait_s: float, reason: str) -> None:
        self._not_before[run_id] = time.monotonic() + wait_s
        self._reasons[run_id] = reason
