"""How the owner of a run hears that a person wants it cancelled or paused, even in the middle of a long step."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from holdfast.runtime.journal import Journal
from holdfast.runtime.run_log import RunLog

WATCH_AFTER_S = 0.1  # work shorter than this is over before anyone could ask to cancel it


@dataclass
class CancelWatch:
    is_cancel_requested: bool = False
    is_pause_requested: bool = False


@contextlib.contextmanager
def watch_for_cancel(
    journal: Journal,
    log: RunLog,
    *,
    can_pause: bool = False,
    has_met: Callable[[], bool] = lambda: False,
    after_s: float = WATCH_AFTER_S,
) -> Iterator[CancelWatch]:
    """Cancel the current task when the journal gets a request for it; the watch tells this from a shutdown.

    With `can_pause` a request to pause does the same. What `has_met` the requests acts on them already, and only a
    further request interrupts it. It begins to listen `after_s` from now.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    watch = CancelWatch()
    looks: set[asyncio.Task[None]] = set()
    acts: set[asyncio.Handle] = set()
    listening = contextlib.ExitStack()

    async def look() -> None:
        await log.catch_up()
        act()

    def act() -> None:
        records = log.records
        if watch.is_pause_requested or (watch.is_cancel_requested and records.cancel_requests <= log.interrupts):
            return
        watch.is_cancel_requested, log.interrupts = records.cancel_request is not None, records.cancel_requests
        watch.is_pause_requested = can_pause and records.pause_request is not None and not watch.is_cancel_requested
        if watch.is_pause_requested or (watch.is_cancel_requested and not has_met()):
            task.cancel()

    def on_head(head: int) -> None:
        if log.has_news(head):
            looks.add(looking := loop.create_task(look()))
            looking.add_done_callback(looks.discard)
        elif log.records.cancel_request is not None or log.records.pause_request is not None:
            act()  # an append of the owner's own may have read the request already

    def on_request() -> None:
        # The head may have been reported while an append of the owner's own was under way, whose numbers nobody could
        # tell from a request's; that append has read it now, and no head will be reported again.
        acts.add(loop.call_soon(act))

    def listen() -> None:
        log.on_request = on_request
        listening.enter_context(journal.listening(log.run_id, on_head))

    timer = loop.call_later(after_s, listen)
    try:
        yield watch
    finally:
        timer.cancel()
        listening.close()
        log.on_request = None
        for handle in acts:
            handle.cancel()
        for looking in looks:
            looking.cancel()
