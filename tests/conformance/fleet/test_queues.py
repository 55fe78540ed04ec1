"""What every queue does: it brings runs to whoever takes them, and stops when it is told to."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text
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

    def __init__(self, places: int = 2) -> None:
        self.taken: list[str] = []
        self.may_end = asyncio.Event()
        self._places = places
        self._has_place = asyncio.Event()
        self._has_place.set()

    def take(self, run_id: str) -> "asyncio.Task[None] | None":
        if not self._places:
            return None
        self.taken.append(run_id)
        self._places -= 1
        if not self._places:
            self._has_place.clear()
        return asyncio.create_task(self._drive())

    async def wait_for_place(self) -> int:
        await self._has_place.wait()
        return self._places

    def make_room(self, places: int) -> None:
        self._places += places
        self._has_place.set()

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


async def test_no_more_are_brought_than_there_are_places_and_the_rest_when_there_is_room(db: Database) -> None:
    queue, taker = make_queue(db), Taker(places=2)
    serving = await serve(queue, taker)
    await asyncio.sleep(0)
    names = ["one", "two", "three", "four"]
    jobs = [DueJob(name, RUN_QUEUE) for name in names]
    await queue.enqueue(jobs)
    await until(lambda: len(taker.taken) == 2, "as many are taken as there are places")
    await queue.enqueue(jobs)  # as whoever looks does, again and again: none of it is brought twice
    assert len(taker.taken) == 2

    taker.make_room(2)
    await queue.enqueue([DueJob(name, RUN_QUEUE) for name in names if name not in taker.taken])
    await until(lambda: len(taker.taken) == 4, "the others are taken too")
    await queue.stop()
    await serving
    taker.may_end.set()

    assert sorted(taker.taken) == sorted(names)


async def test_what_was_put_back_is_brought_to_the_next_that_serves(db: Database) -> None:
    queue, taker = make_queue(db), Taker()
    serving = await serve(queue, taker)
    await asyncio.sleep(0)
    job = DueJob("one", RUN_QUEUE)
    await queue.enqueue([job])
    await until(lambda: taker.taken == ["one"], "the run is taken")
    await queue.stop()
    await queue.put_back(["one", "never taken"])
    await serving
    taker.may_end.set()

    after, other = make_queue(db), Taker()
    serving = await serve(after, other)
    await asyncio.sleep(0)
    if not after.describe().is_shared:
        await after.enqueue([job])  # whoever looks next finds it
    await until(lambda: other.taken == ["one"], "the next one takes it")
    await after.stop()
    await serving
    other.may_end.set()


async def test_a_queue_whose_parts_are_lost_is_made_whole_and_brings_runs_again(db: Database) -> None:
    queue, taker = make_queue(db), Taker()
    await queue.repair()
    for part in queue.describe().parts:
        if part.startswith("procrastinate_") and part.endswith("s"):
            async with db.session() as session:
                await session.execute(text(f"DROP TABLE IF EXISTS {part} CASCADE"))
                await session.commit()
    serving = await serve(queue, taker)
    await asyncio.sleep(0)
    await asyncio.gather(queue.repair(), queue.repair())

    await queue.enqueue([DueJob("one", RUN_QUEUE)])
    await until(lambda: taker.taken == ["one"], "the run is taken")
    await queue.stop()
    await serving
    taker.may_end.set()
