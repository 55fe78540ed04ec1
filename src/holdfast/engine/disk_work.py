"""Work on files and git in a thread that can be given up: whoever is cancelled waits for it a moment, and no longer.

Rule: work that is given up is like work whose process was killed. It is under a lock of the workspace, which it and its
git keep until they end, so that whoever comes next waits for it; and it is made again from its beginning.
"""

import asyncio
import signal
from collections.abc import Callable
from typing import TypeVar

from holdfast.workspace.git import GIT_PROCESSES, GitProcesses

_T = TypeVar("_T")
# What is nearly done may end; then git is asked to end, and then it is made to.
_GRACE_S = 0.2
_STOPS = (signal.SIGTERM, signal.SIGKILL)


async def run_interruptible(work: Callable[[], _T]) -> _T:
    """Do blocking work on files and git in a thread. Whoever is cancelled is so within a second."""
    processes = GitProcesses()

    def run() -> _T:
        GIT_PROCESSES.set(processes)  # the thread has a context of its own
        return work()

    task = asyncio.ensure_future(asyncio.to_thread(run))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await _give_up(task, processes)
        raise


async def _give_up(task: "asyncio.Future[_T]", processes: GitProcesses) -> None:
    """Wait for the end of the work, with more and more force, and leave it alone if it does not come."""
    task.add_done_callback(_forget_outcome)
    await asyncio.wait((task,), timeout=_GRACE_S)
    for stop in _STOPS:
        if task.done():
            return
        processes.stop(stop)
        await asyncio.wait((task,), timeout=_GRACE_S)


def _forget_outcome(task: "asyncio.Future[_T]") -> None:
    if not task.cancelled():
        task.exception()  # whoever is cancelled hears of that, and not of this too
