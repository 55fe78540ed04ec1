"""Awaits that outlive their waiter, and deadlines that hold whatever the work does with a cancellation.

A cancellation can be lost inside a library: `asyncio.wait_for` of Python 3.11 drops one that comes together with its
result. So nothing here relies on the work to end when it is cancelled: it is cancelled again, and then left alone.
"""

import asyncio
import contextlib
import contextvars
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_T = TypeVar("_T")
_AGAIN_S = 0.25  # between two cancellations of the same task: long enough to clean up after the first
_REMOTE = ThreadPoolExecutor(32, thread_name_prefix="holdfast-remote")  # a thread is made when it is needed
_END_S = 0.3  # how long whoever gives a task up waits for its end


async def in_remote_thread(work: Callable[[], _T]) -> _T:
    """Do work that waits for a stranger's server, as `asyncio.to_thread` does, in none of the threads of our own work.

    However many wait, files and database are read meanwhile.
    """
    context = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(_REMOTE, lambda: context.run(work))


async def shielded(work: Awaitable[_T]) -> _T:
    """Let work end even if whoever waits for it is cancelled: a database connection left in the middle is lost."""
    return await asyncio.shield(asyncio.ensure_future(work))


class TaskTracker:
    """The tasks that must end before the server closes its database, whether their client is there or not."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()

    async def run_shielded(self, work: Awaitable[_T]) -> _T:
        """Do work to its end, as `shielded` does, and let `drain` wait for it."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await shielded(task)

    async def drain(self) -> None:
        """Wait until nothing is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)


async def finish_then_cancel(work: Awaitable[_T]) -> _T:
    """Do work to its end. Whoever is cancelled meanwhile is so after it, and has not let go of anything before."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # a Ctrl-C ends git as well; whoever is cancelled is told that, and not this too
        raise


async def cancel_within(tasks: Collection["asyncio.Future[Any]"], seconds: float, *, again_s: float = _AGAIN_S) -> bool:
    """Cancel tasks, once more each `again_s`, until they have ended; false if one had not after `seconds`.

    One that goes on is left alone: nobody waits for it any more, and nobody hears how it ends.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    pending = {task for task in tasks if not task.done()}
    for task in tasks:
        task.add_done_callback(_forget_outcome)
    while pending:
        for task in pending:
            task.cancel()
        left_s = deadline - loop.time()
        if left_s <= 0:
            return False
        _, pending = await asyncio.wait(pending, timeout=min(again_s, left_s))
    return True


def _forget_outcome(task: "asyncio.Future[Any]") -> None:
    if not task.cancelled():
        task.exception()  # read, so that the loop does not report it as lost


def exit_within(seconds: float, code: int) -> None:
    """End the process after so long, as a kill would: a thread may still wait for a database, which nothing ends."""
    asyncio.get_running_loop().call_later(seconds, _exit, code)


def _exit(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


class ExclusiveGroups:
    """Lets work of one group run side by side, and never beside work of another group.

    Whoever waits goes before those of the running group that come later, so that no group waits for ever.
    """

    def __init__(self) -> None:
        self._group = ""
        self._running = 0
        self._queue: list[tuple[str, asyncio.Event]] = []

    @contextlib.asynccontextmanager
    async def running(self, group: str) -> AsyncIterator[None]:
        if self._queue or (self._running and self._group != group):
            turn = (group, asyncio.Event())
            self._queue.append(turn)
            try:
                await turn[1].wait()
            except BaseException:
                if turn in self._queue:
                    self._queue.remove(turn)
                else:
                    self._leave()  # its turn had come already
                self._admit()
                raise
        else:
            self._enter(group)
        try:
            yield
        finally:
            self._leave()
            self._admit()

    def _enter(self, group: str) -> None:
        self._group = group
        self._running += 1

    def _leave(self) -> None:
        self._running -= 1

    def _admit(self) -> None:
        while self._queue and (not self._running or self._queue[0][0] == self._group):
            group, turn = self._queue.pop(0)
            self._enter(group)
            turn.set()


class DeadlinePassed(TimeoutError):
    """Work took longer than it may in all, or was silent for longer than it may be."""


class Deadline:
    """How long one piece of work may take in all, and how long it may be silent. It holds for work that ignores it."""

    def __init__(self, whole_s: float, idle_s: float | None = None, *, what: str = "It") -> None:
        self._whole_s = whole_s
        self._idle_s = idle_s
        self._what = what
        self._clock: Callable[[], float] = asyncio.get_running_loop().time
        self._began = self._heard = self._clock()

    def note_progress(self) -> None:
        """Note a sign of life."""
        self._heard = self._clock()

    async def run(self, work: Awaitable[_T]) -> _T:
        """Return what the work returns. Raises `DeadlinePassed`; a caller who is cancelled is so at once.

        In both cases the work is cancelled, and left alone if it does not end then.
        """
        self._began = self._heard = self._clock()
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                await asyncio.wait((task,), timeout=self._check())
        except BaseException:
            await cancel_within((task,), _END_S)
            raise
        return task.result()

    def _check(self) -> float:
        """Return how many seconds are left. Raises `DeadlinePassed` if there are none."""
        now = self._clock()
        left_s = self._began + self._whole_s - now
        if left_s <= 0:
            raise DeadlinePassed(f"{self._what} took longer than {self._whole_s:g} s.")
        if self._idle_s is not None:
            silent_s = self._heard + self._idle_s - now
            if silent_s <= 0:
                raise DeadlinePassed(f"{self._what} was silent for {self._idle_s:g} s.")
            left_s = min(left_s, silent_s)
        return left_s
