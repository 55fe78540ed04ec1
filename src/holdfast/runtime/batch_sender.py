"""How batches get to a store that must be waited for: over its line, on the loop, or through a thread.

Rule: of one run nothing is sent before the last answer; so its appends stay in order, whichever way each of them goes.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial
from typing import NamedTuple

from holdfast.errors import StoreError
from holdfast.runtime.checkpoint.base import Append, AppendPipeline, AppendResult, JournalStore
from holdfast.runtime.threads import Outcome, Writer

_AT_ONCE = 2  # batches on the line: while the store writes one, the loop works on the other
_WORTH_HALVING = 32  # appends; fewer are committed together sooner than by turns
_OPEN_AGAIN_S = 0.5
_LOOK_AGAIN_S = 1.0


class _Route(Enum):
    LINE = auto()
    THREAD = auto()
    LATER = auto()


class Waiting(NamedTuple):
    append: Append
    done: "asyncio.Future[list[int]]"


class BatchSender:
    """Takes what can go and reports each batch that is answered."""

    def __init__(
        self,
        store: JournalStore,
        loop: asyncio.AbstractEventLoop,
        finish: Callable[[Sequence[Waiting], Outcome, float], None],
    ) -> None:
        self._store = store
        self._loop = loop
        self._finish = finish
        self._runs: set[str] = set()
        self._sent = 0
        self._pipeline: AppendPipeline | None = None
        self._descriptor = -1
        self._opening: asyncio.Task[None] | None = None
        self._not_before = 0.0
        self._look: asyncio.TimerHandle | None = None
        self._writer: Writer | None = None
        self._in_thread = 0

    @property
    def is_under_way(self) -> bool:
        return bool(self._runs)

    @property
    def sender(self) -> int | None:
        return None if self._pipeline is None else self._pipeline.sender

    def can_take(self, append: Append) -> bool:
        """Return true if it could go now; if not, some answer will make room for it."""
        return self._find_route(append) is not _Route.LATER

    def deliver(self, waiting: list[Waiting]) -> list[Waiting]:
        """Send what can go now; returns what has to wait for an answer."""
        sorted_out = self._sort(waiting)
        later = sorted_out[_Route.LATER]
        if slow := sorted_out[_Route.THREAD]:
            self._append(slow)
            if any(item.append.epoch is not None for item in slow):
                self._open_pipeline()
        quick = sorted_out[_Route.LINE]
        if len(quick) >= _WORTH_HALVING and not self._sent:
            half = len(quick) // 2
            self._send(quick[:half])
            later = [item for item in quick[half:] if item.append.run_id in self._runs] + later
            quick = [item for item in quick[half:] if item.append.run_id not in self._runs]
        if quick:
            self._send(quick)
        return later

    def _sort(self, waiting: list[Waiting]) -> "dict[_Route, list[Waiting]]":
        sorted_out: dict[_Route, list[Waiting]] = {route: [] for route in _Route}
        routes: dict[str, _Route] = {}
        for item in waiting:
            route = self._find_route(item.append)
            first = routes.setdefault(item.append.run_id, route)
            if first is not route:  # it may go with the run's earlier ones or after them, but not past them
                route = routes[item.append.run_id] = _Route.THREAD if first is _Route.THREAD else _Route.LATER
            sorted_out[route].append(item)
        return sorted_out

    def _find_route(self, append: Append) -> "_Route":
        if append.run_id in self._runs:
            return _Route.LATER
        if self._pipeline is not None and self._pipeline.takes(append):
            return _Route.LINE if self._sent < _AT_ONCE else _Route.LATER
        return _Route.LATER if self._in_thread else _Route.THREAD

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _append(self, items: list[Waiting]) -> None:
        batch = [item.append for item in items]
        self._write(items, lambda: self._store.append(batch))

    def _write(self, items: list[Waiting], commit: Callable[[], list[AppendResult]]) -> None:
        if self._writer is None:
            self._writer = Writer(self._loop)
        self._in_thread += 1
        self._runs.update(item.append.run_id for item in items)
        self._writer.write(commit, partial(self._end_write, items, time.perf_counter()))

    def _end_write(self, items: list[Waiting], started: float, outcome: Outcome) -> None:
        self._in_thread -= 1
        self._end(items, started, outcome)

    def _end(self, items: list[Waiting], started: float, outcome: Outcome) -> None:
        self._runs.difference_update([item.append.run_id for item in items])
        self._finish(items, outcome, time.perf_counter() - started)

    # -- the line -----------------------------------------------------------------------------------------------------

    def _open_pipeline(self) -> None:
        """Begin to open the store's line, if it has one."""
        if self._pipeline is None and self._opening is None and self._loop.time() >= self._not_before:
            self._opening = self._loop.create_task(self._open())

    async def _open(self) -> None:
        self._not_before = self._loop.time() + _OPEN_AGAIN_S
        try:
            pipeline = await asyncio.to_thread(self._store.open_pipeline)
            if pipeline is not None:
                self._descriptor = pipeline.fileno()
                self._loop.add_reader(self._descriptor, self._receive)
            self._pipeline = pipeline
        except StoreError:
            pass  # the thread tells what is wrong, or does without
        finally:
            self._opening = None

    def _send(self, items: list[Waiting]) -> None:
        assert self._pipeline is not None
        try:
            self._pipeline.send([item.append for item in items], (items, time.perf_counter()))
        except Exception:
            self._append(items)  # what cannot be sent is told in the thread
            return
        self._runs.update([item.append.run_id for item in items])
        self._sent += 1
        if self._pipeline.has_more_to_send:
            self._loop.add_writer(self._descriptor, self._flush)
        if self._pipeline.is_lost:
            self._loop.call_soon(self._receive)
        elif self._look is None:
            self._look = self._loop.call_later(_LOOK_AGAIN_S, self._look_again)

    def _look_again(self) -> None:
        """Not every loop tells of a connection that was reset."""
        self._look = None
        if self._sent:
            self._receive()
        if self._sent:
            self._look = self._loop.call_later(_LOOK_AGAIN_S, self._look_again)

    def _flush(self) -> None:
        assert self._pipeline is not None
        self._pipeline.flush()
        if self._pipeline.is_lost:
            self._receive()
        elif not self._pipeline.has_more_to_send:
            self._loop.remove_writer(self._descriptor)

    def _receive(self) -> None:
        if self._pipeline is None:
            return
        answers = self._pipeline.receive()
        self._sent -= len(answers)
        if self._pipeline.is_lost:
            self._close_pipeline()
            if answers:  # else it was idle, and the next append opens another
                self._open_pipeline()
        for (items, started), answer in answers:
            if isinstance(answer, list):
                self._not_before = 0.0
                self._end(items, started, answer)
            else:
                self._write(items, answer)

    def _close_pipeline(self) -> None:
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            self._loop.remove_reader(self._descriptor)
            self._loop.remove_writer(self._descriptor)
            pipeline.close()

    async def close(self) -> None:
        """End, with nothing under way any more."""
        while self._opening is not None:
            await asyncio.wait([self._opening])
        if self._look is not None:
            self._look.cancel()
        self._close_pipeline()
        if self._writer is not None:
            self._writer.stop()
