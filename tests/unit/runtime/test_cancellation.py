"""How an owner hears of a request to cancel, whatever it is doing when the request is written."""

import asyncio
from typing import Any

import pytest
from tests.support.progress_limit import until

from holdfast.runtime.cancellation import watch_for_cancel
from holdfast.runtime.checkpoint import InMemoryCheckpointer
from holdfast.runtime.events import EventKind
from holdfast.runtime.journal import Journal
from holdfast.runtime.records import Records
from holdfast.runtime.run_log import RunLog
from holdfast.runtime.stores import open_journal


async def test_a_request_is_heard_that_came_while_an_append_of_the_owner_was_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written, may_return = asyncio.Event(), asyncio.Event()
    write = Journal.write

    def write_slowly(journal: Journal, append: Any) -> Any:
        numbers = write(journal, append)

        async def answer() -> Any:
            written.set()
            await may_return.wait()
            return numbers if isinstance(numbers, list) else await numbers

        return answer()

    async with open_journal(InMemoryCheckpointer()) as journal:
        log = RunLog(journal, await journal.claim("r"), Records())
        await log.append(log.event(EventKind.RUN_CREATED), log.event(EventKind.RUN_STARTED))
        log.holds.add(("scope", "s"))  # what must be undone first: the append itself raises nothing then
        monkeypatch.setattr(Journal, "write", write_slowly)
        heads: list[int] = []

        async def own() -> None:
            with watch_for_cancel(journal, log), journal.listening("r", heads.append):
                await asyncio.Event().wait()

        owner = asyncio.create_task(own())
        await until(lambda: len(journal._listeners.get("r", ())) == 2)
        append = asyncio.create_task(log.append(log.event(EventKind.AGENT_PROGRESS)))
        await written.wait()
        monkeypatch.undo()
        await journal.append("r", [log.event(EventKind.RUN_CANCEL_REQUESTED, reason="", by="")])
        await until(lambda: heads and heads[-1] == 4)
        may_return.set()

        await append
        with pytest.raises(asyncio.CancelledError):
            await owner
