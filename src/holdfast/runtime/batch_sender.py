"""How batches get to a store that must be waited for: over its pipeline, on the loop, or through a thread.

Rule: of one run nothing is sent before the last answer; so its appends stay in order, whichever route each of them
takes.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from holdfast.errors import StoreError
from holdfast.runtime.checkpoint.base import Append, AppendPipeline, AppendResult, JournalStore
from holdfast.runtime.threads import Outcome, Writer

_AT_ONCE = 2  # batches in the pipeline: while the store writes one, the loop works on the other
_WORTH_HALVING = 32  # appends; fewer are committed together sooner than by turns
_REOPEN_S = 0.5
_POLL_S = 1.0


Waiting = tuple[Append, "asyncio.Future[list[int]]"]
"""An append, and who waits for its numbers: one of thousands a second, hence no class."""
Batch = Sequence[Waiting]
Report = Callable[[Batch, Outcome, float], None]
"""Told of each batch that is answered: what became of it, and when it was sent."""
Commit = Callable[[], list[AppendResult]]


class ThreadRoute:
    """Through a thread, which waits for the store: any batch, one after the other."""

    def __init__(self, store: JournalStore, loop: asyncio.AbstractEventLoop, report: Report) -> None:
        self._store = store
        self._loop = loop
        self._report = report
        self._writer: Writer | None = None
        self._under_way = 0

    @property
    def has_room(self) -> bool:
        return not self._under_way

    def suits(self, _append: Append) -> bool:
        return True

    def send(self, batch: Batch) -> None:
        appends = [append for append, _ in batch]
        self.commit(batch, lambda: self._store.append(appends))

    def commit(self, batch: Batch, commit: Commit) -> None:
        """Write a batch by `commit`, now or after those that are under way."""
        if self._writer is None:
            self._writer = Writer(self._loop)
        self._under_way += 1
        self._writer.write(commit, partial(self._end, batch, time.perf_counter()))

    def _end(self, batch: Batch, sent_at: float, outcome: Outcome) -> None:
        self._under_way -= 1
        self._report(batch, outcome, sent_at)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.stop()


class PipelineRoute:
    """Over the store's pipeline, once it is open: sent and answered on the loop, for appends that it takes.

    A batch that cannot be sent, or of which it is not known whether it was written, goes through the thread.
    """

    def __init__(
        self, store: JournalStore, loop: asyncio.AbstractEventLoop, report: Report, thread: ThreadRoute
    ) -> None:
        self.pipeline: AppendPipeline | None = None
        self._store = store
        self._loop = loop
        self._report = report
        self._thread = thread
        self._descriptor = -1
        self._under_way = 0
        self._opening: asyncio.Task[None] | None = None
        self._not_before = 0.0
        self._poll_timer: asyncio.TimerHandle | None = None

    @property
    def has_room(self) -> bool:
        return self._under_way < _AT_ONCE

    @property
    def is_idle(self) -> bool:
        return not self._under_way

    def suits(self, append: Append) -> bool:
        return self.pipeline is not None and self.pipeline.takes(append)

    def send(self, batch: Batch) -> None:
        assert self.pipeline is not None
        try:
            self.pipeline.send([append for append, _ in batch], (batch, time.perf_counter()))
        except Exception:
            self._thread.send(batch)  # which finds out what is wrong with it, and reports that
            return
        self._under_way += 1
        if self.pipeline.has_more_to_send:
            self._loop.add_writer(self._descriptor, self._flush)
        if self.pipeline.is_lost:
            self._loop.call_soon(self._receive)
        elif self._poll_timer is None:
            self._poll_timer = self._loop.call_later(_POLL_S, self._poll)

    def _poll(self) -> None:
        """Look for answers by the clock: not every loop tells of a connection that was reset."""
        self._poll_timer = None
        if self._under_way:
            self._receive()
        if self._under_way:
            self._poll_timer = self._loop.call_later(_POLL_S, self._poll)

    def _flush(self) -> None:
        assert self.pipeline is not None
        self.pipeline.flush()
        if self.pipeline.is_lost:
            self._receive()
        elif not self.pipeline.has_more_to_send:
            self._loop.remove_writer(self._descriptor)

    def _receive(self) -> None:
        if self.pipeline is None:
            return
        # An answer is the numbers, or it is not known whether the batch was written (the connection was lost). Then the
        # thread looks, under the lock of the batch's runs, whether its rows are there, and writes them only if they are
        # not.
        answers = self.pipeline.receive()
        self._under_way -= len(answers)
        if self.pipeline.is_lost:
            self._drop()
            # After a loss every batch under way is answered as unknown, so nothing waits for the old connection.
            if answers:  # else it was idle, and the next append opens another
                self.open_soon()
        for (batch, sent_at), answer in answers:
            if isinstance(answer, list):
                self._not_before = 0.0
                self._report(batch, answer, sent_at)
            else:
                self._thread.commit(batch, answer)

    def open_soon(self) -> None:
        """Begin to open the store's pipeline, if it has one."""
        if self.pipeline is None and self._opening is None and self._loop.time() >= self._not_before:
            self._opening = self._loop.create_task(self._open())

    async def _open(self) -> None:
        self._not_before = self._loop.time() + _REOPEN_S
        try:
            pipeline = await asyncio.to_thread(self._store.open_pipeline)
            if pipeline is not None:
                self._descriptor = pipeline.fileno()
                self._loop.add_reader(self._descriptor, self._receive)
            self.pipeline = pipeline
        except StoreError:
            pass  # the thread tells what is wrong, or does without
        finally:
            self._opening = None

    def _drop(self) -> None:
        pipeline, self.pipeline = self.pipeline, None
        if pipeline is not None:
            self._loop.remove_reader(self._descriptor)
            self._loop.remove_writer(self._descriptor)
            pipeline.close()

    async def close(self) -> None:
        while self._opening is not None:
            await asyncio.wait([self._opening])
        if self._poll_timer is not None:
            self._poll_timer.cancel()
        self._drop()


class BatchSender:
    """Decides which appends go now, and by which route; reports each batch that is answered."""

    def __init__(
        self,
        store: JournalStore,
        loop: asyncio.AbstractEventLoop,
        finish: Callable[[Batch, Outcome, float], None],
    ) -> None:
        self._finish = finish
        self._runs: set[str] = set()
        """The runs with an append under way."""
        self._thread = ThreadRoute(store, loop, self._end)
        self.pipeline_route = PipelineRoute(store, loop, self._end, self._thread)

    @property
    def is_under_way(self) -> bool:
        return bool(self._runs)

    @property
    def sender(self) -> int | None:
        pipeline = self.pipeline_route.pipeline
        return None if pipeline is None else pipeline.sender

    def can_take(self, append: Append) -> bool:
        """Return true if it could go now; if not, some answer will make room for it."""
        return self._find_route(append) is not None

    def deliver(self, waiting: list[Waiting]) -> list[Waiting]:
        """Send what can go now; returns what has to wait for an answer."""
        quick, slow, later = self._sort(waiting)
        # What the pipeline does not take, such as rows or a run whose head is not known yet, goes through the thread,
        # and makes the head known. An append with an epoch is an owner's, who will write again soon: that is worth
        # opening a pipeline.
        if slow:
            self._send(self._thread, slow)
            if any(append.epoch is not None for append, _ in slow):
                self.pipeline_route.open_soon()
        if len(quick) >= _WORTH_HALVING and self.pipeline_route.is_idle:
            # Two batches under way keep both sides busy: the server commits the first while we encode the second. A run
            # that is in the first half waits: its next numbers are known only with the answer.
            half = len(quick) // 2
            self._send(self.pipeline_route, quick[:half])
            later = [item for item in quick[half:] if item[0].run_id in self._runs] + later
            quick = [item for item in quick[half:] if item[0].run_id not in self._runs]
        if quick:
            self._send(self.pipeline_route, quick)
        return later

    def _sort(self, waiting: Iterable[Waiting]) -> tuple[list[Waiting], list[Waiting], list[Waiting]]:
        """Sort into what goes over the pipeline, what goes through the thread, and what goes later."""
        quick: list[Waiting] = []
        slow: list[Waiting] = []
        later: list[Waiting] = []
        routes: dict[str, ThreadRoute | PipelineRoute | None] = {}
        for item in waiting:
            run_id = item[0].run_id
            route = self._find_route(item[0])
            first = routes.setdefault(run_id, route)
            if first is not route:  # it may go with the run's earlier ones or after them, but not past them
                route = routes[run_id] = self._thread if first is self._thread else None
            (later if route is None else slow if route is self._thread else quick).append(item)
        return quick, slow, later

    def _find_route(self, append: Append) -> ThreadRoute | PipelineRoute | None:
        # A run is in one batch at a time: what comes next needs the number and the hash that this batch gets.
        if append.run_id in self._runs:
            return None
        route = self.pipeline_route if self.pipeline_route.suits(append) else self._thread
        return route if route.has_room else None

    def _send(self, route: ThreadRoute | PipelineRoute, batch: Batch) -> None:
        self._runs.update([append.run_id for append, _ in batch])
        route.send(batch)

    def _end(self, batch: Batch, outcome: Outcome, sent_at: float) -> None:
        self._runs.difference_update([append.run_id for append, _ in batch])
        self._finish(batch, outcome, time.perf_counter() - sent_at)

    async def close(self) -> None:
        """Close both routes. The caller has waited until nothing is under way."""
        await self.pipeline_route.close()
        self._thread.close()
