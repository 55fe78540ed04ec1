"""Sessions share a few connections: each for the time of its queries, and nobody waits for ever."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import event, text
from sqlalchemy.pool import Pool

from holdfast.errors import StoreBusy, StoreUnreadable
from holdfast.persistence.db import Database


async def test_many_sessions_are_served_by_the_connections_there_are(database_url: str) -> None:
    db = Database(database_url, connections=2)
    await db.init_schema()
    opened: list[object] = []

    async def look() -> int:
        async with db.session() as session:
            return int(await session.scalar(text("SELECT count(*) FROM runs")) or 0)

    event.listen(Pool, "connect", note := lambda connection, _record: opened.append(connection))
    try:
        counts = await asyncio.gather(*(look() for _ in range(100)))
    finally:
        event.remove(Pool, "connect", note)
        await db.dispose()

    assert counts == [0] * 100
    assert len(opened) == 2  # and none is opened and closed again for one session


async def test_who_waits_too_long_for_a_connection_is_told_so_and_can_come_back(database_url: str) -> None:
    db = Database(database_url, connections=1, wait_s=0.1)
    await db.init_schema()
    try:
        async with db.session() as kept:
            await kept.execute(text("SELECT 1"))
            with pytest.raises(StoreBusy) as refused:
                async with db.session() as session:
                    await session.execute(text("SELECT 1"))
        async with db.session() as session:
            assert await session.scalar(text("SELECT 1")) == 1
    finally:
        await db.dispose()

    assert refused.value.facts["retry_after_s"] == 5


async def test_a_database_that_cannot_be_read_is_told_as_what_it_is(tmp_path: Path) -> None:
    db = Database(f"sqlite+aiosqlite:///{tmp_path}/holdfast.db")
    await db.init_schema()
    await db.dispose()
    (tmp_path / "holdfast.db").unlink()
    (tmp_path / "holdfast.db").mkdir()
    with pytest.raises(StoreUnreadable):
        async with db.session() as session:
            await session.execute(text("SELECT 1 FROM runs"))
    await db.dispose()
