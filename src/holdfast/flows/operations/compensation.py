"""Compensation: what a flow has done is undone, step by step, if it fails or is cancelled afterwards."""

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.flows.lane import LaneCursor, check_key
from holdfast.flows.operations.cancel_delivery import deliver, forget_cancellation, is_requested
from holdfast.runtime.events import EventKind
from holdfast.runtime.records import StepState
from holdfast.runtime.step import CancelRun, Stopped

if TYPE_CHECKING:
    from holdfast.flows.context import Context

_RETRIES = 3
_LIMIT_S = 60.0  # of one undoing: a cancelled run must come to its end


class Compensation:
    """One `async with ctx.compensate(undo, …)` block."""

    def __init__(
        self, ctx: "Context", undo: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        if not callable(undo):
            raise TypeError(f"ctx.compensate needs a function to call, not {undo!r}.")
        self._ctx = ctx
        self._undo = undo
        self._args = args
        self._kwargs = kwargs
        self._name = getattr(undo, "__name__", None) or type(undo).__name__
        self._key = ""
        self._lane = ctx._current_lane()
        self.is_entered = False

    def __del__(self) -> None:
        """End the flow if the block was never entered: whoever wrote it believes that something will be undone."""
        lane: LaneCursor | None = getattr(self, "_lane", None)
        if lane is not None and not (self.is_entered or self._ctx._is_over or lane.interrupted):
            written = f"ctx.compensate({self._name}, …)"
            lane.interrupted = Stopped(
                TypeError(
                    f"{written} was never entered, so nothing would be undone: write `async with {written}:` around "
                    "what comes after it (`with`, in a flow without async)."
                )
            )

    async def __aenter__(self) -> None:
        self.is_entered = True
        check_key("compensation", self._name)
        ctx, log = self._ctx, self._ctx._log
        lane = ctx._current_lane()
        self._key = lane.take("scope", self._name)
        record = log.find("scope", self._key, {})
        is_again = record is not None and record.can_be_skipped and record.state is StepState.COMPLETED
        if record is None or is_again:
            facts = {"name": self._name, "again": True} if is_again else {"name": self._name}
            opened = log.event(EventKind.SCOPE_OPENED, lane.lane_id, key=self._key, **facts)
            await ctx._in_lane(lane, ("scope", self._key), log.append(opened))
            # crash: whoever cancels the run from now on leaves it to this code to undo.
        log.holds.add(("scope", self._key))

    async def __aexit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        log, lane = self._ctx._log, self._ctx._current_lane()
        if error is None:
            lane.check_free(("scope", self._key))
            lane.meet_cancel("scope", self._key)
            error = await self._meet_request(lane)
        elif isinstance(error, asyncio.CancelledError) and is_requested(log, lane):
            forget_cancellation()
            error = await deliver(log, lane, ("scope", self._key))
        if lane.interrupted is not None or not (error is None or isinstance(error, CancelRun | Exception)):
            return  # a pause, a shutdown: the block is not left, the process is
        if isinstance(error, CancelRun):
            lane.requests_met = log.records.cancel_requests
        if error is not None:
            await self._compensate(lane, error)
        record = log.find("scope", self._key, {})
        if record is None or record.state is not StepState.COMPLETED or record.can_be_skipped:
            log.defer(log.event(EventKind.SCOPE_CLOSED, lane.lane_id, key=self._key))
        log.holds.discard(("scope", self._key))
        if isinstance(error, CancelRun):
            raise error

    async def _meet_request(self, lane: LaneCursor) -> CancelRun | None:
        log = self._ctx._log
        is_due = log.records.cancel_request is not None and not lane.has_more and not lane.is_shielded
        return await deliver(log, lane, ("scope", self._key)) if is_due else None

    async def _compensate(self, lane: LaneCursor, error: BaseException) -> None:
        was_shielded, lane.is_shielded = lane.is_shielded, True
        try:
            await self._ctx.step(f"undo:{self._name}", self._call, retries=_RETRIES)
        except Exception as failure:
            if isinstance(error, CancelRun):
                return  # the failure is recorded; the run is cancelled, and what else is to be undone, is
            with contextlib.suppress(AttributeError):
                failure.__holdfast_undo__ = True  # type: ignore[attr-defined]  # a retry of the run makes it again
            raise failure from error
        finally:
            lane.is_shielded = was_shielded
        if isinstance(error, Exception) and not hasattr(error, "__holdfast_undo__"):
            with contextlib.suppress(AttributeError):
                error.__holdfast_compensated__ = True  # type: ignore[attr-defined]  # found by `failed_steps`

    async def _call(self) -> None:
        result = self._undo(*self._args, **self._kwargs)
        if inspect.isawaitable(result):
            await asyncio.wait_for(result, _LIMIT_S)


class SyncCompensation:
    """One `with ctx.compensate(undo, …)` block of a plain flow, whose calls are made by `call`."""

    def __init__(self, call: Callable[[Coroutine[Any, Any, None]], None], block: Compensation) -> None:
        self._call = call
        self._block = block

    def __enter__(self) -> None:
        self._block.is_entered = True
        self._call(self._block.__aenter__())

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._call(self._block.__aexit__(error_type, error, traceback))
