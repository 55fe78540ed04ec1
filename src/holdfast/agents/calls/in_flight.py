"""The calls of one agent that have begun: they end and are recorded, whatever becomes of those who wait for them."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from holdfast.concurrency import cancel_within
from holdfast.runtime.step import Interrupted

_T = TypeVar("_T")
_END_S = 0.5  # how long a call that was given up has to end


class InFlight:
    """Keeps begun calls apart from the framework's tasks, and knows who must begin no more."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._interrupted: Interrupted | None = None
        self._is_over = False
        self._left: set[str] = set()
        """Tool calls nobody waits for any more; their keys are the lanes of the subagents in them."""

    def check(self, lane_id: str) -> None:
        """Raise if a lane must not go on in this process."""
        if self._interrupted is not None:
            raise self._interrupted
        if self._is_over or any(lane_id == left or lane_id.startswith((f"{left}/", f"{left}.")) for left in self._left):
            raise asyncio.CancelledError

    async def finish(self, work: Coroutine[Any, Any, _T], *, tool_key: str | None = None) -> _T:
        """Let effect and record end together.

        The framework cancels the siblings of a call that raised, but what they have begun is done.
        """
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._note_end)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if tool_key is not None:
                self._left.add(tool_key)  # a subagent in it stops before its next step
            raise

    async def drain(self, timeout_s: float | None) -> None:
        """Wait for what has begun, and give up what is still under way then. From now on nothing begins.

        Whoever is cancelled meanwhile does not wait: all of it is given up at once.
        """
        self._is_over = True
        try:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=timeout_s)
        finally:
            await cancel_within(list(self._tasks), _END_S)

    def _note_end(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Interrupted) and self._interrupted is None:
            self._interrupted = error
