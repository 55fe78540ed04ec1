"""What every queue does: it brings runs to whoever takes them, and stops when it is told to."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.support.progress_limit import until

from holdfast.fleet.assembly import make_queue
from holdfast.fleet.port import Queue
from holdfast.persistence.db import Database
from holdfast.persistence.due.beat import DueJob
from holdfast.persistence.fleet import RUN_QUEUE
from holdfast.runtime.events import EventKind, create_event
from holdfast.runtime.stores import open_journal


class Taker:
    """Takes what it is brought; its drives end when they are let."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.may_end = asyncio.Event()

    def take(self, run_id: str) -> "asyncio.Task[None]":
        self.taken.append(run_id)
        return asyncio.create_task(self._drive())

    async def wait_for_place(self) -> int:
        return 2

    async def _drive(self) -> None:
        await self.may_end.wait()

    def list_passed_over(self) -> set[str]:
        return set()


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[Database]:
    db = Database(database_url)
    await db.init_schema()
    yield db
    await db.dispose()


async def serve(queue: Queue, taker: Taker) -> "asyncio.Task[None]":
    await queue.repair()
    return asyncio.create_task(queue.serve(taker))


async def test_what_is_enqueued_is_brought_to_the_taker_and_to_nobody_after_the_stop(db: Database) -> None:
    queue, taker = make_queue(db), Taker()
    serving = await serve(queue, taker)
    await asyncio.sleep(0)
    await queue.enqueue([DueJob("one", RUN_QUEUE)])
    await until(lambda: taker.taken == ["one"], "the run is taken")
    await queue.stop()
    await serving
    await queue.enqueue([DueJob("two", RUN_QUEUE)])
    taker.may_end.set()

    assert taker.taken == ["one"]
    assert queue.describe().is_shared is (db.path is None)


async def test_what_is_written_beside_events_never_refuses_them(db: Database) -> None:
    queue, taker = make_queue(db), Taker()
    async with open_journal(db.store) as journal:

        async def write(run_id: str) -> None:
            event = create_event(run_id, EventKind.AGENT_PROGRESS, text="due")
            rows = queue.beside(run_id, queue=RUN_QUEUE)
            await journal.append(run_id, [event], rows=[*rows, *rows])

        await write("before")  # on Postgres there is no table of the queue yet
        serving = await serve(queue, taker)
        await write("after")
        if queue.describe().is_shared:
            await until(lambda: taker.taken == ["after"], "the run is taken as soon as it is due")
        assert [await journal.read_head(run_id) for run_id in ("before", "after")] == [1, 1]
        await queue.stop()
        await serving
        taker.may_end.set()
