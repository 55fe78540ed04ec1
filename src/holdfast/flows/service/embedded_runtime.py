"""The runtime of flows inside a program: finds the runs that are due in a store and drives them, a few at a time.

Rule: what is to be done stands in the store, never only in memory. A process that dies here forgets nothing; another
one, or its own next start, finds the same rows. Claims decide who drives a run, so any number of runtimes may look.
"""

import asyncio
import contextlib
import logging
import signal
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar, TypeVarTuple, overload

from holdfast.enums import RunStatus
from holdfast.errors import ConfigInvalid, HoldfastError, LeaseLost, RunBusy, StoreUnsupported
from holdfast.flows.context import Context
from holdfast.flows.service.flow_drive import FlowDrive
from holdfast.flows.service.flow_look import BegunFlow, FlowLooks, call_up
from holdfast.flows.service.flow_registry import FlowDefinition, FlowFunction, to_definitions
from holdfast.flows.service.handle import FlowHandle
from holdfast.flows.service.start import start_flow
from holdfast.flows.sync_context import SyncContext
from holdfast.runtime import flow_rows
from holdfast.runtime.checkpoint.base import Append, AppendResult
from holdfast.runtime.clock import sleep_until
from holdfast.runtime.flow_rows import FlowRow
from holdfast.runtime.journal import Journal
from holdfast.runtime.stores import StoreLike, open_journal

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
_GAP_S = 0.02  # between two looks: what happens at once is looked at once
_MAX_BACK_OFF_S = 300.0
_END_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_log = logging.getLogger("holdfast.flows")


class Runtime:
    """Runs flows in the background of any asyncio program: `async with Runtime("holdfast.db", flows=[…]):`.

    It drives what `start_flow` has started, recovers runs whose process has died, and wakes those that a timer, an
    answer or an event has made due, and starts those that have a schedule (`@flow(cron=…)`); runs of flows that it does
    not know are left alone. On leaving, calls in flight end and are recorded within `grace_s`; the rest is given up,
    and goes on in the next runtime.
    """

    def __init__(
        self,
        store: StoreLike = "holdfast.db",
        flows: Iterable[FlowFunction | str] | None = None,
        *,
        max_parallel: int = 100,
        park_after_s: float = 5.0,
        grace_s: float = 30.0,
        poll_s: float = 2.0,
    ) -> None:
        """Take flows by function or registered name; without any, all that are registered by then.

        `max_parallel` runs are driven at a time, of each flow at most its own. A flow that is to wait longer than
        `park_after_s` gives its place back. Every `poll_s` it looks for runs whose process has died.
        """
        if not isinstance(max_parallel, int) or max_parallel < 1:
            raise ConfigInvalid(f"max_parallel of a Runtime is a whole number above 0, not {max_parallel!r}.")
        self.store = store
        if callable(flows) or isinstance(flows, str):
            raise TypeError(f"flows of a Runtime is a list of flows, not {flows!r}: write flows=[…].")
        self._selection = None if flows is None else list(flows)
        self._flows: dict[str, FlowDefinition] = {} if flows is None else to_definitions(self._selection)
        self._max_parallel = max_parallel
        self._park_after_s = park_after_s
        self._grace_s = grace_s
        self._poll_s = poll_s
        self._reset()

    def _reset(self) -> None:
        self._drives: dict[str, tuple[FlowDrive, asyncio.Task[None]]] = {}
        self._not_before: dict[str, float] = {}
        self._back_off_s: dict[str, float] = {}
        self._reasons: dict[str, str] = {}
        self._interrupted_at = 0.0
        self._stack = contextlib.AsyncExitStack()

    # -- for programs -------------------------------------------------------------------------------------------------

    @overload
    async def start(self, flow: str, /, *args: Any, **kwargs: Any) -> FlowHandle[Any]: ...
    @overload
    async def start(
        self, flow: Callable[Concatenate[Context, _P], Coroutine[Any, Any, _T]], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> FlowHandle[_T]: ...
    @overload
    async def start(
        self,
        flow: Callable[[Context, *_Ts], Coroutine[Any, Any, _T]],
        /,
        *args: *_Ts,
        run_id: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> FlowHandle[_T]: ...
    @overload
    async def start(
        self, flow: Callable[Concatenate[SyncContext, _P], _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> FlowHandle[_T]: ...
    @overload
    async def start(
        self,
        flow: Callable[[SyncContext, *_Ts], _T],
        /,
        *args: *_Ts,
        run_id: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> FlowHandle[_T]: ...
    async def start(  # type: ignore[misc]  # it takes what either signature allows
        self, flow: str | Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> FlowHandle[Any]:
        """Start a flow on this runtime's store, as `start_flow` does."""
        start: Callable[..., Coroutine[Any, Any, FlowHandle[Any]]] = start_flow
        return await start(flow, *args, **kwargs, store=self.store)

    async def serve(self) -> None:
        """Wait until the process is told to end, by SIGTERM or Ctrl-C: `async with Runtime(…) as runtime:` and this.

        Leaving the block then lets calls in flight end. A second signal ends the process at once.
        """
        is_over, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in _END_SIGNALS:
            loop.add_signal_handler(number, is_over.set)
        try:
            await is_over.wait()
        finally:
            for number in _END_SIGNALS:
                loop.remove_signal_handler(number)

    @property
    def driven(self) -> list[str]:
        """The runs that this runtime drives now."""
        return list(self._drives)

    def find_reason(self, run_id: str) -> str | None:
        """Tell why a run that should go on does not, as far as this runtime knows."""
        return self._reasons.get(run_id)

    async def __aenter__(self) -> "Runtime":
        self._reset()
        if self._selection is None:
            self._flows = to_definitions(None)
        self._woken = asyncio.Event()
        self._journal: Journal = await self._stack.enter_async_context(open_journal(self.store))
        if not self._journal.store.has_rows:
            await self._stack.aclose()
            raise StoreUnsupported(
                "A Runtime needs a store that can say which runs are due.",
                hint="Use a SQLite path or a postgresql:// URL; other stores take run_flow.",
            )
        self._looks = FlowLooks(self._journal)
        self._journal.add_commit_listener(self._on_commit)
        self._stack.callback(self._journal.remove_commit_listener, self._on_commit)
        self._stack.enter_context(self._journal.noticing(self._woken.set))
        self._looking = asyncio.create_task(self._look_for_ever(), name="holdfast-flows")
        self._timing = asyncio.create_task(self._watch_times(), name="holdfast-flow-times")
        return self

    async def __aexit__(self, *_exc: object) -> None:
        try:
            await self._stop()
        finally:
            await self._stack.aclose()

    async def _stop(self) -> None:
        for task in (self._looking, self._timing):
            task.cancel()  # crash: what was started, or asked to end, is in the store
        await asyncio.wait([self._looking, self._timing])
        drives = list(self._drives.values())
        for drive, task in drives:
            if not drive.drain():
                task.cancel()  # it sleeps, or has not begun: there is nothing to wait for
        tasks = [task for _, task in drives]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=self._grace_s)
        for task in late:
            task.cancel()
        await asyncio.wait(tasks)
        await self._looks.settle()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _on_commit(self, batch: Sequence[Append], _results: Sequence[AppendResult], _took_s: float) -> None:
        if any(append.rows for append in batch):
            self._woken.set()

    async def _watch_times(self) -> None:
        if any(definition.schedule or definition.timeout_s for definition in self._flows.values()):
            from holdfast.flows.service.flow_times import FlowTimes  # which needs cron lines

            await FlowTimes(self.store, self._flows.values(), poll_s=self._poll_s).run()

    async def _look_for_ever(self) -> None:
        while True:
            self._woken.clear()
            next_at: float | None = None
            try:
                next_at = await self._look()
            except Exception:
                _log.exception("What is due could not be read; it is tried again")
            await asyncio.sleep(_GAP_S)
            await self._wait(next_at)

    async def _wait(self, next_at: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._poll_s):
                if next_at is None:
                    await self._woken.wait()
                    return
                waits = [asyncio.ensure_future(self._woken.wait()), asyncio.ensure_future(sleep_until(next_at))]
                try:
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for each in waits:
                        each.cancel()

    async def _look(self) -> float | None:
        """Start what is due and has a place; return when the next run is due."""
        now_s = time.monotonic()
        self._not_before = {run_id: at for run_id, at in self._not_before.items() if at > now_s}
        passed_over = {*self._drives, *self._not_before}
        free = self._max_parallel - len(self._drives)
        names = self._list_free_flows()
        if free <= 0 or not names:
            return None  # the end of a drive wakes us
        if now_s >= self._interrupted_at:
            self._interrupted_at = now_s + self._poll_s
            self._take(
                await self._journal.query(lambda store: flow_rows.read_interrupted(store, names, but=passed_over))
            )
        await call_up(self._journal)
        limit = free + len(passed_over)
        self._take(await self._journal.query(lambda store: flow_rows.read_due(store, names, limit=limit)))
        return await self._journal.query(lambda store: flow_rows.read_next_wake(store, names))

    def _list_free_flows(self) -> list[str]:
        counts = Counter(drive.flow for drive, _ in self._drives.values())
        return [
            name
            for name, definition in self._flows.items()
            if definition.max_parallel is None or counts[name] < definition.max_parallel
        ]

    def _take(self, rows: Iterable[FlowRow]) -> None:
        for row in rows:
            if row.run_id in self._drives or row.run_id in self._not_before:
                continue
            if len(self._drives) >= self._max_parallel:
                return
            definition = self._flows[row.flow]
            count = sum(drive.flow == row.flow for drive, _ in self._drives.values())
            if definition.max_parallel is None or count < definition.max_parallel:
                self._start_drive(definition, row)

    def _start_drive(self, definition: FlowDefinition, row: FlowRow) -> None:
        run_id = row.run_id
        # Where claims are rows, those that nobody has begun are claimed and begun in one statement.
        is_new = self._journal.has_leases and row.status == RunStatus.PENDING
        begin = partial(self._begin, run_id) if is_new else None
        drive = FlowDrive(self._journal, definition, run_id, park_after_s=self._park_after_s, begin=begin)
        task = asyncio.create_task(self._drive(drive, run_id), name=f"holdfast-flow-{run_id}")
        self._drives[run_id] = drive, task
        task.add_done_callback(lambda _task: self._end_drive(run_id))

    async def _begin(self, run_id: str) -> BegunFlow | None:
        look = await self._looks.look(run_id)
        return None if look is None else await self._looks.begin(look)

    def _end_drive(self, run_id: str) -> None:
        self._drives.pop(run_id, None)
        self._woken.set()

    async def _drive(self, drive: FlowDrive, run_id: str) -> None:
        try:
            await drive.run()
        except (RunBusy, LeaseLost):
            self._hold_back(run_id, self._poll_s, "Another process drives it.")
        except Exception as error:
            self._back_off(run_id, error)
        else:
            self._back_off_s.pop(run_id, None)
            self._reasons.pop(run_id, None)

    def _back_off(self, run_id: str, error: Exception) -> None:
        wait_s = min(self._back_off_s.get(run_id, self._poll_s) * 2, _MAX_BACK_OFF_S)
        self._back_off_s[run_id] = wait_s
        cause = error.message if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"
        _log.warning("Run %s could not be driven and is tried again in %g s: %s", run_id, wait_s, cause)
        self._hold_back(run_id, wait_s, f"It could not be driven and is tried again in {wait_s:g} s: {cause}")

    def _hold_back(self, run_id: str, wait_s: float, reason: str) -> None:
        self._not_before[run_id] = time.monotonic() + wait_s
        self._reasons[run_id] = reason
