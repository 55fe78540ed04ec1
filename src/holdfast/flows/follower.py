"""Watching a run from anywhere: its events as they are written, until it is over."""

from collections.abc import AsyncIterator

from holdfast.runtime.events import Event
from holdfast.runtime.stores import StoreLike, no_such_run, open_journal


async def follow(run_id: str, *, store: StoreLike = "holdfast.db", after: int = 0) -> AsyncIterator[Event]:
    """Yield every event of a run after number `after`, then each new one, by whichever process; none is left out.

    Log lines, status texts and partial results are events among them (`log.written`, `status.set`,
    `partial.emitted`). Ends with the event that ends the run; one that is paused is followed on. Raises `RunNotFound`.
    """
    async with open_journal(store) as journal:
        if not await journal.read_head(run_id):
            raise no_such_run(journal.store, run_id)
        events = journal.follow(run_id, after)
        try:
            async for event in events:
                yield event
                # A failed run may have gone on since: it is over if this is the last event of all.
                if event.is_terminal and await journal.read_head(run_id) == event.seq:
                    return
        finally:
            await events.aclose()  # type: ignore[attr-defined]  # a generator
