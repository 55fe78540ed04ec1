"""Looking for what is due: every two seconds, and as soon as somebody says that something has changed.

Rule: on Postgres one worker looks for all, by a lease of its row; two at once write the same. Whatever was lost between
any two lines, a job, a notice, the queue's tables, is found here.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

from holdfast.engine.approvals.decisions import decide_overdue
from holdfast.errors import HoldfastError, StoreUnreadable
from holdfast.fleet.port import Queue, RunTaker
from holdfast.fleet.schedules import ScheduleClock
from holdfast.flows.service.flow_look import call_up
from holdfast.persistence.db import Database
from holdfast.persistence.due.beat import Beat, DueJob, beat
from holdfast.persistence.fleet import WorkerFacts, bound_times, forget_gone, register
from holdfast.persistence.listings import list_due
from holdfast.runtime.checkpoint import process_owner
from holdfast.runtime.clock import MOST_OFF_S, describe_off, elapsed_s, measure_off, set_right
from holdfast.runtime.journal import Journal

_MOST_DUE = 500
_SLOW_S = 2.0  # a look that took longer: others may have lost their leases while they waited as we did
_GAP_S = 0.05  # between two looks: what happens at once is looked at once
_MOST_SHARE = 0.1  # of the time is spent with quick looks, however much happens
_LONGEST_LEASE_S = 120.0  # nobody asks for a longer one
_FORGET_EVERY_S = 600.0
_log = logging.getLogger("holdfast.fleet")


class Sweep:
    """Looks until cancelled; on Postgres each look is also the worker's sign of life."""

    def __init__(
        self,
        db: Database,
        journal: Journal,
        queue: Queue,
        facts: WorkerFacts,
        schedules: ScheduleClock,
        *,
        poll_s: float,
    ) -> None:
        self._db = db
        self._journal = journal
        self._queue = queue
        self._facts = facts
        self._schedules = schedules
        self._firing: asyncio.Task[None] | None = None
        self._fire_at = 0.0
        self._poll_s = poll_s
        self._woken = asyncio.Event()
        self._hearing = contextlib.ExitStack()
        self._is_sweeper = False
        self._undecided: set[str] = set()
        """Approvals that were overdue and could not be answered."""
        self._clock_off_s = 0.0
        self._forget_at = 0.0
        self._away_since: float | None = None
        self._is_refused = False
        """The queue's tables are not ours to make."""
        self._past: tuple[float, float, float] | None = None
        """The time of the database when it was last asked, and when it was asked and answered, by `elapsed_s`."""

    def wake(self) -> None:
        """Look now, instead of in a moment."""
        self._woken.set()

    async def run(
        self,
        taker: RunTaker,
        *,
        count_driven: Callable[[], int],
        is_draining: Callable[[], bool],
        on_drain: Callable[[], object],
        on_death: Callable[[], Awaitable[None]],
    ) -> None:
        """Look for ever. `on_drain` is called when somebody wants this worker to take nothing more, `on_death` while
        the death of another worker of this machine is new."""
        try:
            while True:
                self._woken.clear()
                began, took_s = time.monotonic(), 0.0
                try:
                    if self._queue.describe().is_shared:
                        heard = await self._look_for_all(taker, count_driven(), on_drain, is_draining=is_draining())
                        if any(map(process_owner.is_dead_text, heard.beside)):
                            await on_death()
                    else:
                        await self._look_for_us(taker)
                    took_s = time.monotonic() - began
                    if self._away_since is not None:
                        _log.warning("What is due can be read again, after %.0f s.", began - self._away_since)
                        self._away_since = None
                    if took_s > _SLOW_S:
                        self._journal.note_outage()
                except Exception as error:
                    self._journal.note_outage()
                    if self._away_since is None:  # not every two seconds of an outage
                        self._away_since = began
                        _log.warning("What is due could not be read; it is tried again until it can: %s", error)
                gap_s = max(_GAP_S, min(took_s / _MOST_SHARE, self._poll_s / 2))
                await asyncio.sleep(gap_s)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, self._poll_s - gap_s)):
                        await self._woken.wait()
        finally:
            self._hearing.close()
            if self._firing is not None:
                self._firing.cancel()
                await asyncio.wait([self._firing])
            await self._schedules.close()

    async def _look_for_us(self, taker: RunTaker) -> None:
        await decide_overdue(self._db, self._journal, undecided=self._undecided)
        self._fire_schedules()
        due = await list_due(self._db, limit=_MOST_DUE, but=taker.list_passed_over())
        await self._queue.enqueue([DueJob(run.run_id, run.queue, run.priority) for run in due])

    async def _look_for_all(
        self, taker: RunTaker, driven: int, on_drain: Callable[[], object], *, is_draining: bool
    ) -> Beat:
        began, sent_at = time.time(), elapsed_s()
        parts = self._queue.describe().parts
        off_s = self._clock_off_s
        heard = await beat(
            self._db, self._facts, driven=driven, clock_off_s=off_s, is_draining=is_draining, queue_parts=parts
        )
        if not heard.is_known:  # it was silent for so long that it was forgotten
            await register(self._db, self._facts)
            return heard
        self._compare_clocks(heard.now, began, time.time())
        if heard.is_draining:
            on_drain()
        if await self._is_clock_set(heard.now, sent_at, elapsed_s()):
            return heard  # by the time of the next look all owners have renewed their leases by the new clock
        for run_id in heard.left[: max(0, self._facts.slots - driven)]:
            taker.take(run_id)  # several may: the claim decides
        self._hear(is_sweeper=heard.is_sweeper)
        if heard.has_flow_in_line:  # whoever looks for all may be of a version that knows no line
            await call_up(self._journal)
        if not heard.is_sweeper:
            return heard
        await self._keep_queue(has_queue=heard.has_queue)
        overdue_at, undecided = heard.overdue_at, self._undecided
        if overdue_at is not None and await decide_overdue(
            self._db, self._journal, now=overdue_at, undecided=undecided
        ):
            self._woken.set()
        if heard.has_schedule:
            self._fire_schedules()
        if heard.due:
            await self._queue.enqueue(heard.due)
        if time.monotonic() >= self._forget_at:
            await bound_times(self._db, longest_lease_s=_LONGEST_LEASE_S)
            await forget_gone(self._db)
            self._forget_at = time.monotonic() + _FORGET_EVERY_S
        return heard

    async def _keep_queue(self, *, has_queue: bool) -> None:
        """Make the queue anew if it is not whole; what may not be touched keeps nothing else from being done."""
        try:
            if not has_queue:
                await self._queue.repair()
            self._is_refused = False
        except StoreUnreadable as error:
            if not self._is_refused:  # not with every look
                self._is_refused = True
                _log.warning("%s %s", error.message, error.hint)

    def _fire_schedules(self) -> None:
        """Start what schedules have due, beside the looks: to make a run may take longer than a sign of life."""
        is_busy = self._firing is not None and not self._firing.done()
        if not is_busy and time.monotonic() >= self._fire_at:
            self._fire_at = time.monotonic() + self._poll_s
            self._firing = asyncio.create_task(self._fire(), name="holdfast-schedules")

    async def _fire(self) -> None:
        try:
            if await self._schedules.fire_due(patience_s=self._poll_s):
                self.wake()
        except HoldfastError as error:
            _log.warning("Schedules could not be read; it is tried again: %s", error.message)
        except Exception:
            _log.warning("Schedules could not be read; it is tried again", exc_info=True)

    def _compare_clocks(self, now: float, began: float, ended: float) -> None:
        """Go by the database's clock from here on if this machine's is off by more than an answer can take."""
        off_s = measure_off(now, began, ended)
        if abs(off_s - self._clock_off_s) < MOST_OFF_S:
            return
        self._clock_off_s = off_s
        set_right(off_s)
        if off_s:
            _log.warning("This machine's clock is %s; timers go by the database's", describe_off(off_s))

    async def _is_clock_set(self, now: float, sent_at: float, heard_at: float) -> bool:
        """Bound what lasts for seconds if the database's clock was set, as that of a standby may be that took over."""
        back_s = 0.0
        if self._past is None:  # whoever might have noticed before may be gone
            await bound_times(self._db, longest_lease_s=_LONGEST_LEASE_S)
        else:
            before, sent_before, heard_before = self._past
            back_s = measure_off(now - before, sent_at - heard_before, heard_at - sent_before)
        if back_s:
            _log.warning("The database's clock was set %s by %.0f s", "back" if back_s > 0 else "forward", abs(back_s))
            self._journal.note_outage()  # forward: leases that seem to be over are not
            if back_s > 0:
                await bound_times(self._db)
        self._past = now, sent_at, heard_at  # not before: what could not be bounded is tried again at the next look
        return back_s != 0

    def _hear(self, *, is_sweeper: bool) -> None:
        """Hear of every commit while it falls to us to look for all; others need not."""
        if is_sweeper == self._is_sweeper:
            return
        self._is_sweeper = is_sweeper
        self._hearing.close()
        if is_sweeper:
            self._hearing.enter_context(self._journal.noticing(self.wake))
