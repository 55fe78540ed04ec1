"""Work in a thread that a cancellation must not cut in two."""

import asyncio
import gc
from typing import Any

from holdfast.workspace.to_the_end import to_the_end


async def test_a_failure_after_the_cancellation_is_not_told_as_nobodys() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))
    may_fail = asyncio.Event()

    async def fail() -> None:
        await may_fail.wait()
        raise RuntimeError("git was ended by the same Ctrl-C")

    waiting = asyncio.create_task(to_the_end(fail()))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    may_fail.set()
    (ended,) = await asyncio.gather(waiting, return_exceptions=True)
    was_cancelled = isinstance(ended, asyncio.CancelledError)
    del waiting, ended  # what is said of a task is said when it is forgotten
    gc.collect()

    assert was_cancelled
    assert told == []
