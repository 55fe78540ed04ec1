"""How the owner of a run hears that a person wants it cancelled or paused, even in the middle of a long step."""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.runtime.journal import Journal
from holdfast.runtime.run_log import RunLog

_WATCH_AFTER_S = 0.1  # work shorter than this is over before anyone could ask to cancel it


@dataclass
class CancelWatch:
    is_cancel_requested: bool = False
    is_pause_requested: bool = False
    requests: int = 0
    """How many requests to cancel were acted on: a second one ends what the first one let run."""


@contextlib.contextmanager
def watch_for_cancel(journal: Journal, log: RunLog, *, can_pause: bool = False) -> Iterator[CancelWatch]:
    """Cancel the current task when the journal gets a request for it; the watch tells this from a shutdown.

    With `can_pause` a request to pause does the same.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    watch = CancelWatch()
    looks: set[asyncio.Task[None]] = set()
    listening = contextlib.ExitStack()

    async def look() -> None:
        await log.catch_up()
        act()

    def act() -> None:
        if watch.is_pause_requested or (watch.is_cancel_requested and log.records.cancel_requests <= watch.requests):
            return
        watch.is_cancel_requested, watch.requests = log.records.cancel_request is not None, log.records.cancel_requests
        watch.is_pause_requested = can_pause and log.records.pause_request is not None and not watch.is_cancel_requested
        if watch.is_cancel_requested or watch.is_pause_requested:
            task.cancel()

    def on_head(head: int) -> None:
        if log.has_news(head):
            looks.add(looking := loop.create_task(look()))
            looking.add_done_callback(looks.discard)
        elif log.records.cancel_request is not None or log.records.pause_request is not None:
            act()  # an append of the owner's own may have read the request already

    timer = loop.call_later(_WATCH_AFTER_S, lambda: listening.enter_context(journal.listening(log.run_id, on_head)))
    try:
        yield watch
    finally:
        timer.cancel()
        listening.close()
        for looking in looks:
            looking.cancel()
