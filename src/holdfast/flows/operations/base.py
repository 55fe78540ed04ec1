"""The operations of a flow beside steps, approvals and lanes: each is a line here and a module of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, TypeVarTuple, overload

from holdfast.errors import Nondeterminism
from holdfast.flows import operations
from holdfast.flows.lane import LaneCursor, Operation, check_key, current_lane
from holdfast.runtime.clock import now
from holdfast.runtime.events import EventKind
from holdfast.runtime.journal import Journal
from holdfast.runtime.records import MAIN_LANE, StepState
from holdfast.runtime.run_log import RunLog
from holdfast.runtime.step import CancelRun, Interrupted

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast.flows.context import Context
    from holdfast.flows.sync_context import SyncContext

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class Operations:
    """What a flow can ask for by name, and the lane in which it is asked for."""

    def __init__(self, log: RunLog, journal: Journal, park_after_s: float | None) -> None:
        self._log = log
        self._journal = journal
        self._park_after_s = park_after_s
        self._loop = asyncio.get_running_loop()
        self._lanes: list[LaneCursor] = []
        self._recorded_gathers: dict[str, int] | None = None
        self._is_over = False

    @property
    def run_id(self) -> str:
        return self._log.run_id

    # -- time and chance ----------------------------------------------------------------------------------------------

    async def now(self) -> datetime:
        """Return the time in UTC, the same on every replay."""
        lane = self._current_lane()
        key = lane.take("value", "now")
        value = operations.recorded_values.record(self._log, lane, key, now)
        return operations.recorded_values.to_datetime(await self._in_lane(lane, ("value", key), value))

    async def random(self) -> float:
        """Return a number from 0 up to, but not including, 1, the same on every replay."""
        lane = self._current_lane()
        key = lane.take("value", "random")
        return await self._in_lane(
            lane,
            ("value", key),
            operations.recorded_values.record(self._log, lane, key, operations.recorded_values.new_number),
        )

    async def uuid(self) -> "UUID":
        """Return a random UUID, the same on every replay."""
        lane = self._current_lane()
        key = lane.take("value", "uuid")
        value = operations.recorded_values.record(self._log, lane, key, operations.recorded_values.new_uuid)
        return operations.recorded_values.to_uuid(await self._in_lane(lane, ("value", key), value))

    async def sleep(self, duration: float | timedelta) -> None:
        """Wait until `duration`, seconds or a `timedelta`, after the first time this line was reached.

        However often the process dies meanwhile; by the wall clock, and never longer than `duration`.
        """
        seconds = operations.timer.to_seconds(duration, "ctx.sleep")
        lane = self._current_lane()
        key = lane.take("timer", "sleep")
        work = operations.timer.sleep(self._log, lane, key, seconds=seconds, park_after_s=self._park_after_s)
        await self._in_lane(lane, ("timer", key), work)

    async def sleep_until(self, moment: datetime) -> None:
        """Wait for a moment of the wall clock: an aware `datetime`. One that has passed is no wait."""
        wake_at = operations.timer.to_epoch(moment)
        lane = self._current_lane()
        key = lane.take("timer", "sleep")
        work = operations.timer.sleep_for_moment(self._log, lane, key, wake_at=wake_at, park_after_s=self._park_after_s)
        await self._in_lane(lane, ("timer", key), work)

    # -- events -------------------------------------------------------------------------------------------------------

    async def wait_for(self, name: str, timeout: float | timedelta | None = None) -> Any:
        """Return the data of the next event of this name that `send_event` sent, in the order they were sent.

        One that came before counts. Raises `EventTimeout` if none comes within `timeout`, seconds or a `timedelta`;
        which of both happened is recorded.
        """
        return (await self.wait_for_any(name, timeout=timeout))[1]

    async def wait_for_any(self, *names: str, timeout: float | timedelta | None = None) -> tuple[str, Any]:
        """Return the name and the data of the first event of one of these names; otherwise as `wait_for`.

        Which it was is recorded. Events of the other names stay unread.
        """
        if not names:
            raise TypeError("ctx.wait_for_any takes the names of events.")
        for name in names:
            check_key("wait", name)
        seconds = None if timeout is None else operations.timer.to_seconds(timeout, "timeout of ctx.wait_for")
        lane = self._current_lane()
        key = lane.take("wait", operations.event_wait.join_names(names))
        wait = operations.event_wait.EventWait(self._log, self._journal, lane, key, names)
        return await self._in_lane(lane, ("wait", key), wait.run(seconds, self._park_after_s))

    # -- children and compensation ------------------------------------------------------------------------------------

    @overload
    async def run_flow(self, child: str, /, *args: Any, run_id: str | None = None, **kwargs: Any) -> Any: ...
    @overload
    async def run_flow(
        self,
        child: "Callable[Concatenate[Context, _P], Coroutine[Any, Any, _T]]",
        /,
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T: ...
    @overload
    async def run_flow(
        self, child: "Callable[[Context, *_Ts], Coroutine[Any, Any, _T]]", /, *args: *_Ts, run_id: str
    ) -> _T: ...
    @overload
    async def run_flow(
        self, child: "Callable[Concatenate[SyncContext, _P], _T]", /, *args: _P.args, **kwargs: _P.kwargs
    ) -> _T: ...
    @overload
    async def run_flow(self, child: "Callable[[SyncContext, *_Ts], _T]", /, *args: *_Ts, run_id: str) -> _T: ...
    async def run_flow(  # type: ignore[misc]  # it takes what either signature allows
        self, child: str | Callable[..., Any], /, *args: Any, run_id: str | None = None, **kwargs: Any
    ) -> Any:
        """Run another flow as a run of its own, in the same store, and return its result or raise its error.

        The flow is a function, or the name of one that is registered in this process. The child's id follows from this
        run's id and the place in the flow. If this run is cancelled, so is the child; if the child waits for a person,
        so does this run.
        """
        child = operations.child_flow.find_function(child)
        name = operations.child_flow.name_of(child)
        check_key("child flow", name)
        lane = self._current_lane()
        key = lane.take("child", name)
        run = operations.child_flow.ChildRun(self._log, self._journal, lane, key, self._park_after_s)
        work = run.run(child, args, kwargs, run_id=run_id)
        return await self._in_lane(lane, ("child", key), work)

    def compensate(
        self, undo: Callable[_P, Any], *args: _P.args, **kwargs: _P.kwargs
    ) -> "operations.compensation.Compensation":
        """Undo something if what comes after it fails or the run is cancelled: `async with ctx.compensate(undo, x):`.

        If the block is left by an error or a cancellation, `undo(*args, **kwargs)` is called as a step, and the error
        goes on. Blocks within each other undo from the inside out. A pause or a shutdown undoes nothing.
        """
        return operations.compensation.Compensation(self, undo, args, kwargs)  # type: ignore[arg-type]  # a Context

    # -- versions -----------------------------------------------------------------------------------------------------

    async def changed(self, name: str) -> bool:
        """Return false if this run came past this place before the change of this name was made, else true.

        It is recorded: a run takes the same way for ever, and lanes the way of the lane that opened them.
        """
        check_key("version marker", name)
        lane = self._current_lane()
        lane.check_free(("version", name))
        ancestor: LaneCursor | None = lane
        while ancestor is not None:
            if name in ancestor.versions:
                return ancestor.versions[name]
            parent_id = ancestor.lane_id.rpartition("/")[0] or MAIN_LANE
            ancestor = None if ancestor.lane_id == MAIN_LANE else self._find_lane(parent_id)
        work = operations.version_marker.decide(self._log, lane, name, is_passed=self._has_passed(lane))
        return await self._in_lane(lane, ("version", lane.prefix + name), work)

    # -- what watchers see --------------------------------------------------------------------------------------------

    def log(self, message: str, **fields: Any) -> None:
        """Tell watchers something, once: a replay does not repeat it. `fields` are JSON data."""
        self._note(EventKind.LOG_WRITTEN, {"message": message, "fields": fields})

    def set_status(self, text: str) -> None:
        """Say what the run is doing now, in words: the last one is the run's status text."""
        self._note(EventKind.STATUS_SET, {"text": text})

    def emit(self, value: Any) -> None:
        """Hand a partial result, JSON data, to whoever follows the run, once."""
        self._note(EventKind.PARTIAL_EMITTED, {"value": value})

    def _note(self, kind: EventKind, content: dict[str, Any]) -> None:
        lane = self._current_lane()
        operations.notes.note(self._log, lane, self._loop, kind, content, is_passed=self._has_passed)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _current_lane(self) -> LaneCursor:
        home, lane = current_lane.get((None, None))
        if lane is None or home is not self or self._is_over:
            raise no_flow_here("The flow is over" if self._is_over else "This is not the flow that runs here")
        return lane

    async def _in_lane(self, lane: LaneCursor, what: Operation, work: Awaitable[_T]) -> _T:
        lane.doing = what
        try:
            if self._log.holds and self._is_cancel_due(lane, what):
                if isinstance(work, Coroutine):
                    work.close()  # it will not be awaited
                self._log.raise_if_cancelled()
            return await work
        except (Interrupted, asyncio.CancelledError) as error:
            raised = await self._settle(lane, what, error)
            if raised is error:
                raise
            raise raised from None
        finally:
            lane.doing = None

    async def _settle(self, lane: LaneCursor, what: Operation, error: BaseException) -> BaseException:
        """Note what has interrupted an operation, and return what is raised for it."""
        if isinstance(error, CancelRun):
            if not self._log.is_cancel_held or lane.is_shielded:
                lane.interrupted = error
                return error
            return await operations.cancel_delivery.deliver(self._log, lane, what, error)
        if isinstance(error, Interrupted):
            lane.interrupted = error
            return error
        if self._log.is_cancel_held and operations.cancel_delivery.is_requested(self._log, lane):
            operations.cancel_delivery.forget_cancellation()
            if lane.is_shielded:  # asked for again, while compensations run
                lane.interrupted = lane.cancelled or CancelRun("", "")
                return lane.interrupted
            return await operations.cancel_delivery.deliver(self._log, lane, what)
        lane.cut_off = what
        return error

    def _is_cancel_due(self, lane: LaneCursor, what: Operation) -> bool:
        """Return true if the run is to be cancelled and this operation would do something new."""
        if self._log.records.cancel_request is None or lane.is_shielded or lane.has_more or what[0] == "gather":
            return False
        record = self._log.records.by_key.get((what[0], what[1]))
        if record is None:
            return True
        is_over = record.state in (StepState.COMPLETED, StepState.FAILED) or record.answer is not None
        return not is_over and record.type != "child"  # a child is cancelled first, by whoever waits for it

    def _find_lane(self, lane_id: str) -> LaneCursor | None:
        return next((lane for lane in self._lanes if lane.lane_id == lane_id), None)

    def _has_passed(self, lane: LaneCursor) -> bool:
        """Return true if an earlier process came further in this lane, by itself or in lanes that it opened."""
        if lane.has_more:
            return True
        return self._gathers().get(lane.lane_id, 0) > lane.uses.get(("gather", ""), 0)

    def _gathers(self) -> dict[str, int]:
        """Return how often each lane has opened others, as far as the journal knew when this process began."""
        if self._recorded_gathers is None:
            self._recorded_gathers = {}
            for lane_id in self._log.records.lanes:
                parent_id, _, name = lane_id.rpartition("/")
                number = name.partition(".")[0].removeprefix("g")
                if number.isdigit():
                    parent_id = parent_id or MAIN_LANE
                    self._recorded_gathers[parent_id] = max(self._recorded_gathers.get(parent_id, 0), int(number))
        return self._recorded_gathers


def no_flow_here(why: str) -> Nondeterminism:
    return Nondeterminism(f"{why}: nothing more can be asked for by its ctx.", hint="Use ctx in its own flow.")
