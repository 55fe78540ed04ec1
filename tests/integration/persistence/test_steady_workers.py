"""By others' signs of life a worker that starts knows whether the database was there: else owners renew first."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import text

from holdfast.persistence.db import Database
from holdfast.persistence.due.beat import beat
from holdfast.persistence.fleet import WorkerFacts, register, was_reachable

pytestmark = pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
OTHER = WorkerFacts("other", "p1", "m", "1", 8, ("runs",), ())


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[Database]:
    db = Database(database_url)
    await db.init_schema()
    await register(db, OTHER)
    yield db
    await db.dispose()


async def pass_time(db: Database, seconds: float) -> None:
    """Let all times of workers be so much longer ago."""
    async with db.session() as session:
        sql = "UPDATE workers SET seen_at = seen_at - :s, steady_since = steady_since - :s, since = since - :s"
        await session.execute(text(sql), {"s": seconds})
        await session.commit()


async def live(db: Database, *pauses: float) -> None:
    """Give a sign of life of the other worker after each pause."""
    for pause in pauses:
        await pass_time(db, pause)
        await beat(db, OTHER, driven=0, queue_parts=["procrastinate_jobs"])


@pytest.mark.parametrize(
    ("pauses", "expected"),
    [
        ((2, 2, 2, 2), True),
        ((2, 2), False),  # it was not there for a whole lease itself
        ((2, 2, 2, 20), False),  # the outage has only just ended
        ((20, 2), False),
        ((20, 2, 2, 2), True),
    ],
)
async def test_a_database_was_there_if_signs_of_life_came_without_a_gap(
    db: Database, pauses: tuple[float, ...], expected: bool
) -> None:
    await live(db, *pauses)

    assert await was_reachable(db, "mine") is expected
    assert not await was_reachable(db, OTHER.process)  # nobody is a witness of their own


async def test_signs_of_life_of_long_ago_say_nothing(db: Database) -> None:
    await live(db, 2, 2, 2, 2)
    await pass_time(db, 4)

    assert not await was_reachable(db, "mine")


async def test_a_version_that_does_not_say_it_is_no_witness(db: Database) -> None:
    async def run(sql: str, **params: Any) -> None:
        async with db.session() as session:
            await session.execute(text(sql), params)
            await session.commit()

    await live(db, 2, 2, 2, 2)
    await run("UPDATE workers SET steady_since = 0")

    assert not await was_reachable(db, "mine")
