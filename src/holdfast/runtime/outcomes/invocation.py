"""How the function of a step is called: on the event loop or in a thread, with or without a time limit.

Rule: a plain function that runs cannot be interrupted. Whoever is cancelled meanwhile waits for its end, so that it is
never made again while it still runs. Only a time limit leaves one behind, and forgets what becomes of it.
"""

import asyncio
import contextlib
import contextvars
import inspect
import os
import threading
from collections.abc import Awaitable, Callable
from queue import Empty, SimpleQueue
from types import CoroutineType
from typing import Any

from holdfast.errors import StepTimeout

_MAX_THREADS = 64  # for lanes that wait for something; computing gains nothing from more threads than cores


async def invoke(call: Callable[[], Any], *, key: str, in_thread: bool, timeout_s: float | None) -> Any:
    """Return what `call` returns or, if that can be awaited, what comes of it. Raises `StepTimeout`."""
    started = asyncio.get_running_loop().time()
    result = await _in_thread(call, key, timeout_s) if in_thread else call()
    if type(result) is not CoroutineType and not inspect.isawaitable(result):
        return result
    if timeout_s is None:
        return await result
    return await _in_time(result, key, started, timeout_s)


async def _in_time(work: Awaitable[Any], key: str, started: float, timeout_s: float) -> Any:
    try:
        async with asyncio.timeout_at(started + timeout_s) as limit:
            return await work
    except TimeoutError:
        if limit.expired():
            raise _timeout(key, timeout_s) from None
        raise  # its own


def _timeout(key: str, timeout_s: float) -> StepTimeout:
    return StepTimeout(f"Step {key!r} took longer than {timeout_s:g} s.", key=key, timeout_s=timeout_s)


async def _in_thread(call: Callable[[], Any], key: str, timeout_s: float | None) -> Any:
    loop, pool = asyncio.get_running_loop(), _pool
    work = _ThreadCall(call, loop)
    pool.submit(work.run)
    was_cancelled = False
    deadline = None if timeout_s is None else loop.time() + timeout_s
    while not work.done.done():
        try:
            await asyncio.wait({work.done}, timeout=None if deadline is None else max(0.0, deadline - loop.time()))
        except asyncio.CancelledError:
            was_cancelled = True
            continue
        if not work.done.done():
            if work.leave():
                pool.give_up_one()
            raise _timeout(key, timeout_s or 0)
    task = asyncio.current_task()
    if was_cancelled and task is not None:
        # What it did is recorded first: the cancellation comes again at the next point where this task waits.
        task.uncancel()
        task.cancel()
    return work.get_result()


class _ThreadCall:
    """One call on its way through a thread."""

    def __init__(self, call: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self._call = call
        self._loop = loop
        self.done: asyncio.Future[None] = loop.create_future()
        self._context = contextvars.copy_context()  # so that `step_key()` is known there
        self._lock = threading.Lock()
        self._is_started = self._is_left = False
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        with self._lock:
            if self._is_left:
                return
            self._is_started = True
        try:
            self._result = self._context.run(self._call)
        except BaseException as error:
            self._error = error
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits for the answer
            self._loop.call_soon_threadsafe(self._finish)

    def leave(self) -> bool:
        """Wait no longer; returns true if it runs, and otherwise keeps it from being called."""
        with self._lock:
            self._is_left = True
            return self._is_started

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def get_result(self) -> Any:
        if isinstance(self._error, StopIteration):  # no coroutine may raise that
            raise RuntimeError("The function of a step raised StopIteration.") from self._error
        if self._error is not None:
            raise self._error
        return self._result


class _Pool:
    """Threads that are used again, and that let the program exit whatever they still do."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._free = _MAX_THREADS

    def submit(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)
        with self._lock:
            if self._free == 0 or self._idle.acquire(blocking=False):
                return
            self._free -= 1
        threading.Thread(target=self._run, name="holdfast-step", daemon=True).start()

    def give_up_one(self) -> None:
        """Count no more on the thread of a call that was left behind."""
        with self._lock:
            self._free += 1

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                self._idle.release()
                job = self._jobs.get()
            job()
            del job  # the next may be long in coming, and what this one holds may be large


_pool = _Pool()


def _start_anew() -> None:
    """Forget the threads of the process that this one was forked from."""
    global _pool
    _pool = _Pool()


os.register_at_fork(after_in_child=_start_anew)
