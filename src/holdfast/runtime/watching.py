"""How the owner of a run hears that a person wants it cancelled, even in the middle of a long step."""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.runtime.durable import RunLog
from holdfast.runtime.journal import Journal

_WATCH_AFTER_S = 0.1  # work shorter than this is over before anyone could ask to cancel it


@dataclass
class CancelWatch:
    is_asked: bool = False


@contextlib.contextmanager
def watch_for_cancel(journal: Journal, log: RunLog) -> Iterator[CancelWatch]:
    """Cancel the current task when the journal gets a request for it; the watch tells this from a shutdown."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    watch = CancelWatch()
    looks: set[asyncio.Task[None]] = set()
    listening = contextlib.ExitStack()

    async def look() -> None:
        await log.catch_up()
        if log.records.cancel_request is not None and not watch.is_asked:
            watch.is_asked = True
            task.cancel()

    def on_head(head: int) -> None:
        if log.has_news(head):
            looks.add(looking := loop.create_task(look()))
            looking.add_done_callback(looks.discard)

    timer = loop.call_later(_WATCH_AFTER_S, lambda: listening.enter_context(journal.listening(log.run_id, on_head)))
    try:
        yield watch
    finally:
        timer.cancel()
        listening.close()
        for looking in looks:
            looking.cancel()
