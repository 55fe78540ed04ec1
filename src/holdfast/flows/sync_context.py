"""Flows without `async`: a plain function in a thread of its own, whose calls of `ctx` are made on the event loop.

Rule: the thread does one thing at a time, and waits for each call; what a call raises, it raises there. So a plain flow
is as deterministic as any other, and is cancelled at its calls.
"""

import asyncio
import contextlib
import contextvars
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from queue import SimpleQueue
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, TypeVarTuple, get_type_hints, overload
from uuid import UUID

from holdfast.errors import Nondeterminism
from holdfast.flows.context import Context, Decision
from holdfast.flows.lane import current_caller, find_caller
from holdfast.flows.operations.cancel_delivery import forget_cancellation
from holdfast.flows.operations.child_flow import find_function
from holdfast.flows.operations.compensation import SyncCompensation
from holdfast.flows.step_options import DEFAULT_POLICY, StepPolicy
from holdfast.flows.sync_step import SyncStepCall

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
_IN_THREAD = StepPolicy(in_thread=True)


class SyncContext:
    """What a plain function gets as its flow's context: `Context`, with calls that return when they are done."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._loop = asyncio.get_running_loop()
        self.step = SyncStepCall(self._step)
        """Call a function once: `ctx.step(key, fn, *args)`, or `ctx.step.options(timeout=5)(key, fn, *args)`."""

    @property
    def run_id(self) -> str:
        return self._ctx.run_id

    def _step(
        self,
        policy: StepPolicy,
        key: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Any:
        in_thread = _IN_THREAD if policy is DEFAULT_POLICY else replace(policy, in_thread=True)
        return self._call(self._ctx._step(in_thread, key, fn, args, kwargs))

    @overload
    def gather(
        self, *functions: Callable[[], _T], return_exceptions: Literal[False] = False, limit: int | None = None
    ) -> list[_T]: ...
    @overload
    def gather(
        self, *functions: Callable[[], _T], return_exceptions: bool, limit: int | None = None
    ) -> list[_T | Exception]: ...
    def gather(
        self, *functions: Callable[[], Any], return_exceptions: bool = False, limit: int | None = None
    ) -> list[Any]:
        """Call functions in parallel lanes, each in a thread, at most `limit` at a time; return their results in order.

        With `return_exceptions` failures are returned in the place of results.
        """
        lanes = (run_in_thread(self._ctx, function) for function in functions)
        return self._call(self._ctx.gather(*lanes, return_exceptions=return_exceptions, limit=limit))

    @overload
    def run_flow(self, child: str, /, *args: Any, run_id: str | None = None, **kwargs: Any) -> Any: ...
    @overload
    def run_flow(
        self, child: Callable[Concatenate[Context, _P], Coroutine[Any, Any, _T]], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> _T: ...
    @overload
    def run_flow(
        self, child: Callable[[Context, *_Ts], Coroutine[Any, Any, _T]], /, *args: *_Ts, run_id: str
    ) -> _T: ...
    @overload
    def run_flow(
        self, child: "Callable[Concatenate[SyncContext, _P], _T]", /, *args: _P.args, **kwargs: _P.kwargs
    ) -> _T: ...
    @overload
    def run_flow(self, child: "Callable[[SyncContext, *_Ts], _T]", /, *args: *_Ts, run_id: str) -> _T: ...
    def run_flow(  # type: ignore[misc]  # it takes what either signature allows
        self, child: str | Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """Run another flow, plain or not, as a run of its own, and return its result."""
        return self._call(self._ctx.run_flow(find_function(child), *args, **kwargs))

    def compensate(self, undo: Callable[_P, Any], *args: _P.args, **kwargs: _P.kwargs) -> SyncCompensation:
        """Undo something if what comes after it fails or the run is cancelled: `with ctx.compensate(undo, x):`."""
        return SyncCompensation(self._call, self._ctx.compensate(_in_thread(undo), *args, **kwargs))

    def approval(self, key: str, show: Any = None, timeout: float | timedelta | None = None) -> Decision:
        """Go on only if a person approves what is shown, within `timeout` if there is one."""
        return self._call(self._ctx.approval(key, show, timeout))

    def sleep(self, duration: float | timedelta) -> None:
        """Wait until `duration` after the first time this line was reached."""
        self._call(self._ctx.sleep(duration))

    def sleep_until(self, moment: datetime) -> None:
        """Wait for a moment of the wall clock: an aware `datetime`."""
        self._call(self._ctx.sleep_until(moment))

    def wait_for(self, name: str, timeout: float | timedelta | None = None) -> Any:
        """Return the data of the next event of this name; raises `EventTimeout`."""
        return self._call(self._ctx.wait_for(name, timeout))

    def wait_for_any(self, *names: str, timeout: float | timedelta | None = None) -> tuple[str, Any]:
        """Return the name and the data of the first event of one of these names; raises `EventTimeout`."""
        return self._call(self._ctx.wait_for_any(*names, timeout=timeout))

    def now(self) -> datetime:
        """Return the time in UTC, the same on every replay."""
        return self._call(self._ctx.now())

    def random(self) -> float:
        """Return a number from 0 up to 1, the same on every replay."""
        return self._call(self._ctx.random())

    def uuid(self) -> UUID:
        """Return a random UUID, the same on every replay."""
        return self._call(self._ctx.uuid())

    def changed(self, name: str) -> bool:
        """Return false if this run came past this place before the change of this name was made."""
        return self._call(self._ctx.changed(name))

    def log(self, message: str, **fields: Any) -> None:
        """Tell watchers something, once."""
        self._ctx.log(message, **fields)

    def set_status(self, text: str) -> None:
        """Say what the run is doing now, in words."""
        self._ctx.set_status(text)

    def emit(self, value: Any) -> None:
        """Hand a partial result to whoever follows the run, once."""
        self._ctx.emit(value)

    def _call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Do something on the loop, in the lane of this thread, and wait for it."""
        thread = _current_thread.get(None)
        if thread is None:
            work.close()  # it will not be awaited
            raise Nondeterminism(
                "The ctx of a plain flow was used in a thread that is not the flow's.",
                hint="Run functions that make steps side by side with ctx.gather(first, second).",
            )
        return thread.call(self._loop, work)


class _FlowThread:
    """One thread of a plain flow, and the call on the loop that it waits for."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._is_refusing = False

    def call(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, _T]) -> _T:
        answers: SimpleQueue[asyncio.Task[_T] | None] = SimpleQueue()

        def begin() -> None:
            if self._is_refusing:
                work.close()
                answers.put(None)
                return
            self._task = loop.create_task(work, context=context)
            self._task.add_done_callback(answers.put)

        context = contextvars.copy_context()
        context.run(current_caller.set, find_caller())
        loop.call_soon_threadsafe(begin)
        task = answers.get()
        if task is None:
            raise asyncio.CancelledError
        return task.result()

    def cancel(self, *, refuse: bool) -> None:
        """Cancel the call that is under way, on the loop; with `refuse`, every later one too."""
        self._is_refusing = self._is_refusing or refuse
        if self._task is not None:
            self._task.cancel()


_current_thread: contextvars.ContextVar[_FlowThread] = contextvars.ContextVar("holdfast_flow_thread")


async def run_in_thread(ctx: Context, function: Callable[[], _T]) -> _T:
    """Call a plain function that uses the context, in a thread of its own, and return its result."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()
    thread = _FlowThread()

    def work() -> None:
        _current_thread.set(thread)
        try:
            report: Callable[[], None] = functools.partial(_settle, done, function(), None)
        except BaseException as error:
            report = functools.partial(_settle, done, None, error)
        with contextlib.suppress(RuntimeError):  # the loop is gone, and with it whoever waited
            loop.call_soon_threadsafe(report)

    threading.Thread(target=contextvars.copy_context().run, args=(work,), name="holdfast-flow", daemon=True).start()
    while True:
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            log = ctx._log
            if done.done():
                raise
            thread.cancel(refuse=not log.is_cancel_held)
            if log.records.cancel_request is None:
                raise  # a shutdown: the thread ends at its next call, and nobody waits for it
            forget_cancellation()


def _settle(done: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
        done.exception()  # whoever waited may be gone: then it is no news


def _in_thread(fn: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return a function that is called in a thread if it is a plain one; its signature stays."""
    if inspect.iscoroutinefunction(inspect.unwrap(fn)):
        return fn

    @functools.wraps(fn)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(fn, *args, **kwargs)

    return call


def is_plain(flow: Callable[..., Any]) -> bool:
    """Return true for `def flow(ctx, …)`, to be run in a thread; false for what returns an awaitable itself.

    A lambda, a `functools.partial` or an object with `__call__` says nothing of that, and is called on the loop.
    """
    function = inspect.unwrap(flow)
    if inspect.ismethod(function):
        function = function.__func__
    if not inspect.isfunction(function) or function.__name__ == "<lambda>" or inspect.iscoroutinefunction(function):
        return False
    try:
        hints = get_type_hints(function)
    except Exception:
        hints = {}
    return not (Context in hints.values() or _is_awaitable(hints.get("return")))


def _is_awaitable(hint: Any) -> bool:
    origin = getattr(hint, "__origin__", hint)
    return isinstance(origin, type) and issubclass(origin, Awaitable)


def call_flow(flow: Callable[..., Any], ctx: Context, *args: Any, **kwargs: Any) -> Awaitable[Any]:
    """Call a flow's function with its context, in a thread if it is a plain one; its result can be awaited."""
    if is_plain(flow):
        facade = SyncContext(ctx)
        return run_in_thread(ctx, lambda: flow(facade, *args, **kwargs))
    result: Awaitable[Any] = flow(ctx, *args, **kwargs)
    return result
