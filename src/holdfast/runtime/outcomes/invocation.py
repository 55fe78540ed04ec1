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
from collections import deque
from collections.abc import Awaitable, Callable
from queue import Empty, SimpleQueue
from types import CoroutineType
from typing import Any

from holdfast.errors import StepTimeout
from holdfast.quantities import format_number

_MAX_THREADS = 64  # for lanes that wait for something; computing gains nothing from more threads than cores


async def invoke(
    call: Callable[[], Any], *, key: str, in_thread: bool, timeout_s: float | None, gate: "CallGate"
) -> Any:
    """Return what `call` returns or, if that can be awaited, what comes of it. Raises `StepTimeout`.

    A call in a thread begins when the gate lets it; once it is recorded, `gate.settle(key)` is to be called.
    """
    started = asyncio.get_running_loop().time()
    result = await _in_thread(call, key, timeout_s, gate) if in_thread else call()
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
    return StepTimeout(f"Step {key!r} took longer than {format_number(timeout_s)} s.", key=key, timeout_s=timeout_s)


async def _in_thread(call: Callable[[], Any], key: str, timeout_s: float | None, gate: "CallGate") -> Any:
    loop = asyncio.get_running_loop()
    work = _ThreadCall(call, key, gate, loop)
    gate.submit(work)
    was_cancelled = False
    deadline = None if timeout_s is None else loop.time() + timeout_s
    while not work.is_done:
        waiter = work.new_waiter()
        try:
            if deadline is None:
                await waiter
            else:
                await asyncio.wait({waiter}, timeout=max(0.0, deadline - loop.time()))
        except asyncio.CancelledError:
            was_cancelled = True
            continue
        if not work.is_done:
            if gate.leave(work):
                work.pool.give_up_one()
            raise _timeout(key, timeout_s or 0)
    task = asyncio.current_task()
    if was_cancelled and task is not None:
        # What it did is recorded first: the cancellation comes again at the next point where this task waits.
        task.uncancel()
        task.cancel()
    return work.get_result()


class CallGate:
    """Lets no call of a run begin in a thread while another one has ended and is not recorded yet.

    So a process that dies has made no more calls for nothing than were running at that moment, however quickly they
    follow each other and however long the event loop is busy. Those that may begin do so one after the other, each at
    the beginning of the one before it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[_ThreadCall] = deque()
        self._next: _ThreadCall | None = None
        """On its way into a thread."""
        self._unrecorded: set[str] = set()

    def submit(self, call: "_ThreadCall") -> None:
        """Let a call begin as soon as it may."""
        with self._lock:
            self._waiting.append(call)
            self._send_next()

    def enter(self, call: "_ThreadCall") -> bool:
        """Return true if a call may begin now, in this thread; if not, it is sent again once it may."""
        with self._lock:
            self._next = None
            if self._unrecorded and not call.is_left:
                self._waiting.appendleft(call)
            else:
                call.is_started = not call.is_left
                self._send_next()
            return call.is_started

    def note_end(self, call: "_ThreadCall") -> None:
        """Close the gate until the call is recorded, unless nobody waits for it any more."""
        with self._lock:
            if not call.is_left:
                self._unrecorded.add(call.key)

    def leave(self, call: "_ThreadCall") -> bool:
        """Wait for a call no longer; returns true if it runs, and otherwise keeps it from being made."""
        with self._lock:
            call.is_left = True
            return call.is_started

    def settle(self, key: str) -> None:
        """Note that what became of a call is recorded, or never will be."""
        with self._lock:
            self._unrecorded.discard(key)
            self._send_next()

    def _send_next(self) -> None:
        if self._waiting and self._next is None and not self._unrecorded:
            self._next = self._waiting.popleft()
            self._next.pool.submit(self._next.run)


class _ThreadCall:
    """One call on its way through a thread."""

    def __init__(self, call: Callable[[], Any], key: str, gate: CallGate, loop: asyncio.AbstractEventLoop) -> None:
        self._call = call
        self.key = key
        self.pool = _pool
        self._gate = gate
        self._loop = loop
        self._context = contextvars.copy_context()  # so that `step_key()` is known there
        self._waiter: asyncio.Future[None] | None = None
        self.is_started = self.is_left = self.is_done = False
        """The first two belong to the gate."""
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        if not self._gate.enter(self):
            return
        try:
            self._result = self._context.run(self._call)
        except BaseException as error:
            self._error = error
        self._gate.note_end(self)
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits for the answer
            self._loop.call_soon_threadsafe(self._finish)

    def new_waiter(self) -> "asyncio.Future[None]":
        """Return a future that is done when the call is; the one before is forgotten."""
        self._waiter = self._loop.create_future()
        return self._waiter

    def _finish(self) -> None:
        self.is_done = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

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
