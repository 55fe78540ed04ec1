"""What a flow is given: steps, sleep, approval, and parallel lanes.

Rule: within a lane everything happens in one order, which the journal keeps. A replay that asks for something else at a
place is refused, before anything is called.
"""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from types import CoroutineType
from typing import Any, Literal, TypeVar, overload

from holdfast.errors import Nondeterminism
from holdfast.flows import operations
from holdfast.flows.lane import ChildPaused, LaneCursor, check_key, current_lane, describe_operation
from holdfast.flows.lane_turns import LaneTurns
from holdfast.flows.operations.approval import Decision as Decision
from holdfast.flows.operations.base import Operations, no_flow_here
from holdfast.flows.step_call import StepCall
from holdfast.flows.step_options import StepPolicy
from holdfast.flows.typed_values.declared_types import result_codec
from holdfast.flows.typed_values.value_codec import UNDECLARED, TypeCodec, fingerprint_arguments
from holdfast.runtime.journal import Journal
from holdfast.runtime.records import MAIN_LANE, Record, StepState, describe
from holdfast.runtime.run_log import RunLog
from holdfast.runtime.step import CancelRun, Drained, Interrupted, Parked, Step, Stopped, Suspended

_T = TypeVar("_T")
_T1 = TypeVar("_T1")
_T2 = TypeVar("_T2")
_T3 = TypeVar("_T3")
_T4 = TypeVar("_T4")
_NO_ARGUMENTS: Mapping[str, str] = {}
_COMPLETED = StepState.COMPLETED


class Context(Operations):
    """What a flow's function gets: durable steps, timers, approvals and parallel lanes."""

    def __init__(self, log: RunLog, journal: Journal, *, park_after_s: float | None = None) -> None:
        """Make the context of one process's part of a run.

        A sleep or wait of more than `park_after_s` seconds raises `Parked`, instead of staying in the process.
        """
        super().__init__(log, journal, park_after_s)
        self.step = StepCall(self._step)
        """Call a function once: `await ctx.step(key, fn, *args)`, or `ctx.step.options(timeout=5)(key, fn, *args)`."""

    async def _step(
        self,
        policy: StepPolicy,
        key: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        lane = self._current_lane()
        if type(key) is not str or ("step", key) not in lane.uses:
            check_key("step", key)
        if not callable(fn):
            raise _no_function(key, fn)
        full_key = lane.take("step", key)
        fingerprint = fingerprint_arguments(args, kwargs) if args or kwargs else _NO_ARGUMENTS
        operation: tuple[Literal["step"], str] = ("step", full_key)
        log = self._log
        record = log.records.by_key.get(operation)
        if (
            record is not None
            and record.state is _COMPLETED
            and record.fingerprint == fingerprint
            and not record.is_skipped
        ):
            # The usual case of a replay, ten thousand times in a row.
            return record.result if record.result_type is None else self._decode(lane, fn, record)
        codec = result_codec(fn)
        in_thread = policy.in_thread
        if in_thread is None:
            in_thread = lane.has_company or policy.timeout_s is not None
        step = Step(
            full_key,
            lane.lane_id,
            policy.on_unknown,
            retry=policy.retry,
            timeout_s=policy.timeout_s,
            in_thread=in_thread and not inspect.iscoroutinefunction(fn),
            codec=None if codec is UNDECLARED and record is None else codec,
            raises_as_recorded=True,
            fingerprint=fingerprint,
        )
        if kwargs:
            fn, args = functools.partial(fn, *args, **kwargs), ()
        if record is not None or log.holds:
            return await self._in_lane(lane, operation, log.step(step, functools.partial(fn, *args)))
        # As most are: what `_in_lane` does, without a coroutine more.
        lane.doing = operation
        try:
            return await log.attempt(step, fn, 1, args)
        except (Interrupted, asyncio.CancelledError) as error:
            raised = await self._settle(lane, operation, error)
            if raised is error:
                raise
            raise raised from None
        finally:
            lane.doing = None

    @staticmethod
    def _decode(lane: LaneCursor, fn: Callable[..., Any], record: Record) -> Any:
        codec = result_codec(fn)
        if type(codec) is TypeCodec:
            try:
                return codec.read(record.result)
            except Exception:  # noqa: S110 - told below, with all that is known of it
                pass
        try:
            return codec.decode(record.result, record.result_type, describe("step", record.key))
        except Nondeterminism as error:
            raise lane.stop(error) from error

    async def approval(self, key: str, show: Any = None, timeout: float | timedelta | None = None) -> Decision:
        """Go on only if a person approves what is shown.

        Until someone answers, `run_flow` raises `RunPaused` and no process is needed. Raises `ApprovalRejected` if the
        answer is `reject` or `request_changes`, and `EventTimeout` if there is none within `timeout`, seconds or a
        `timedelta`; `abort` cancels the run.
        """
        check_key("approval", key)
        seconds = None if timeout is None else operations.timer.to_seconds(timeout, "timeout of ctx.approval")
        lane = self._current_lane()
        full_key = lane.take("approval", key)
        work = operations.approval.ask(self._log, lane, full_key, show, seconds)
        return await self._in_lane(lane, ("approval", full_key), work)

    @overload
    async def gather(self, a: Awaitable[_T1], b: Awaitable[_T2], /, *, limit: int | None = None) -> tuple[_T1, _T2]: ...
    @overload
    async def gather(
        self, a: Awaitable[_T1], b: Awaitable[_T2], c: Awaitable[_T3], /, *, limit: int | None = None
    ) -> tuple[_T1, _T2, _T3]: ...
    @overload
    async def gather(
        self,
        a: Awaitable[_T1],
        b: Awaitable[_T2],
        c: Awaitable[_T3],
        d: Awaitable[_T4],
        /,
        *,
        limit: int | None = None,
    ) -> tuple[_T1, _T2, _T3, _T4]: ...
    @overload
    async def gather(
        self, *awaitables: Awaitable[_T], return_exceptions: Literal[False] = False, limit: int | None = None
    ) -> list[_T]: ...
    @overload
    async def gather(
        self, *awaitables: Awaitable[_T], return_exceptions: bool, limit: int | None = None
    ) -> list[_T | Exception]: ...
    async def gather(
        self, *awaitables: Awaitable[Any], return_exceptions: bool = False, limit: int | None = None
    ) -> Any:
        """Run awaitables in parallel lanes, at most `limit` at a time, and return their results as a list, in order.

        All lanes run to their end before the first failure, in order of the arguments, is raised; with
        `return_exceptions` failures are returned in the place of results.
        """
        try:
            if limit is not None and (not isinstance(limit, int) or limit < 1):
                raise TypeError(f"limit of ctx.gather is a number of lanes, not {limit!r}.")
            for item in awaitables:
                if type(item) is not CoroutineType and not inspect.isawaitable(item):
                    raise _not_awaitable(item)
            parent = self._current_lane()
            parent.check_free(("gather", ""))
        except BaseException:
            for item in awaitables:
                _close(item)
            raise
        number = parent.uses["gather", ""] = parent.uses.get(("gather", ""), 0) + 1
        lanes = [self._open_lane(f"{parent.prefix}g{number}.{index + 1}") for index in range(len(awaitables))]
        for lane in lanes:
            lane.has_company = parent.has_company or len(lanes) > 1
        turns = None if limit is None else LaneTurns(limit)
        tasks = [
            asyncio.ensure_future(self._run_in(lane, item) if turns is None else self._run_in_turn(turns, lane, item))
            for lane, item in zip(lanes, awaitables, strict=True)
        ]
        return await self._in_lane(parent, ("gather", ""), self._join(parent, lanes, tasks, return_exceptions))

    async def _join(
        self,
        parent: LaneCursor,
        lanes: Sequence[LaneCursor],
        tasks: Sequence["asyncio.Future[Any]"],
        return_exceptions: bool,
    ) -> list[Any]:
        self._journal.writers += len(tasks)
        try:
            if tasks:
                await asyncio.wait(tasks)
        except asyncio.CancelledError:
            is_request = operations.cancel_delivery.is_requested(self._log, parent)
            for lane, task in zip(lanes, tasks, strict=True):
                if not is_request or lane.requests_met < self._log.interrupts:
                    task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        finally:
            self._journal.writers -= len(tasks)
        raised = [task.exception() for task in tasks]
        # An interruption stands, whatever the code in its lane has made of it.
        errors = [lane.interrupted or error for lane, error in zip(lanes, raised, strict=True)]
        # Whatever ends the run comes first, a person's answer last: by then the other lanes have done all they can.
        for error_type in (Stopped, CancelRun, Drained, Exception, Parked, Suspended, BaseException):
            for error in errors:
                if isinstance(error, Parked) and error_type is Parked:
                    raise Parked.join([one for one in errors if isinstance(one, Parked)])
                is_returned = return_exceptions and isinstance(error, Exception)
                if isinstance(error, error_type) and not is_returned:
                    raise error
        return [task.result() if error is None else error for error, task in zip(errors, tasks, strict=True)]

    # -- inside -------------------------------------------------------------------------------------------------------

    def _open_lane(self, lane_id: str) -> LaneCursor:
        lane = LaneCursor(lane_id, self._log.records.lanes.get(lane_id, []).copy())
        self._lanes.append(lane)
        return lane

    async def run(self, flow: Callable[[], Awaitable[_T]]) -> _T:
        """Run a flow's function in the main lane and make sure that it asked for all that is recorded."""
        main = self._open_lane(MAIN_LANE)
        token = current_lane.set((self, main))
        try:
            result = await flow()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if main.interrupted is None or main.interrupted is error:
                raise
            raise main.interrupted from error  # it stands, whatever the flow has made of it
        finally:
            self._is_over = True
            self.step = StepCall(_refuse_step)  # or a run that is over would stay in memory until a collection
            current_lane.reset(token)
        self._check_nothing_open(main)
        self._check_nothing_left()
        return result

    def _has_met_requests(self) -> bool:
        """Return true if the main lane acts on every request to cancel that is known."""
        return bool(self._lanes) and self._lanes[0].requests_met >= self._log.records.cancel_requests

    def waits_for(self) -> list[str]:
        """List the keys that lanes have stopped at for a person's answer."""
        waits = [lane.interrupted for lane in self._lanes if isinstance(lane.interrupted, Suspended)]
        return [str(wait) for wait in waits if not isinstance(wait, ChildPaused)]

    def paused_children(self) -> list[dict[str, Any]]:
        """List the children that lanes have stopped at because those wait for a person: run and key of the question,
        and until when, if it has a time limit."""
        waits = [lane.interrupted for lane in self._lanes if isinstance(lane.interrupted, ChildPaused)]
        facts = [wait.error.facts for wait in waits if wait.error is not None]
        found = {(each["run_id"], each["key"]): {"run_id": each["run_id"], "key": each["key"]} for each in facts}
        for each in facts:
            if each.get("wake_at"):
                found[each["run_id"], each["key"]]["wake_at"] = each["wake_at"]
        return [found[place] for place in sorted(found)]

    def _check_nothing_open(self, main: LaneCursor) -> None:
        """Raise if a flow has returned although something in it was interrupted or still runs."""
        for error_type in (Stopped, CancelRun, Drained, Parked, Suspended):
            for lane in self._lanes:
                if isinstance(lane.interrupted, error_type):
                    raise lane.interrupted
        if main.cancelled is not None:
            raise main.cancelled
        if main.doing is not None:
            raise main.stop(
                Nondeterminism(
                    f"The flow returned while {describe_operation(main.doing)} still runs.",
                    hint="Await every step before returning.",
                )
            )

    def _check_nothing_left(self) -> None:
        entered = {lane.lane_id: lane.position for lane in self._lanes}
        for lane_id, recorded in self._log.records.lanes.items():
            left = [record for record in recorded[entered.get(lane_id, 0) :] if not record.can_be_skipped]
            if left:
                raise Stopped(
                    Nondeterminism(
                        f"The journal has {describe(left[0].type, left[0].key)}, which the code no longer asks for. "
                        f"Recorded: {' → '.join(describe(one.type, one.key) for one in recorded[-6:])}.",
                        recorded=left[0].key,
                        recorded_around=[describe(one.type, one.key) for one in recorded[-6:]],
                    )
                )

    async def _run_in_turn(self, turns: LaneTurns, lane: LaneCursor, work: Awaitable[_T]) -> _T:
        try:
            await turns.take()
        except BaseException:
            _close(work)
            raise
        try:
            result = await self._run_in(lane, work)
        except BaseException:
            if isinstance(lane.interrupted, Parked):
                turns.keep(lane.interrupted)
            else:
                turns.give_back()
            raise
        turns.give_back()
        return result

    async def _run_in(self, lane: LaneCursor, work: Awaitable[_T]) -> _T:
        token = current_lane.set((self, lane))
        try:
            return await work
        finally:
            current_lane.reset(token)


async def _refuse_step(*_call: object) -> None:
    raise no_flow_here("The flow is over")


def _no_function(key: str, found: object) -> TypeError:
    if not inspect.iscoroutine(found):
        return TypeError(f"Step {key!r} needs a function to call, not {found!r}.")
    found.close()
    name = found.__name__
    return TypeError(f"Step {key!r} needs a function, not its call: write ctx.step({key!r}, {name}, …), not {name}(…).")


def _not_awaitable(found: object) -> TypeError:
    if isinstance(found, list | tuple):
        for item in found:
            _close(item)
        return TypeError("ctx.gather takes awaitables one by one, not a list of them: write ctx.gather(*items).")
    return TypeError(
        f"ctx.gather takes awaitables, such as ctx.step(…) and calls of your own coroutines, not {found!r}."
    )


def _close(work: Awaitable[Any]) -> None:
    """Close what will not be awaited, which is no mistake of the user's."""
    if inspect.iscoroutine(work):
        work.close()
