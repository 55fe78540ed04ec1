"""Rows on a server that goes away: told as what it is, and read again when it is back."""

import pytest
from sqlalchemy import text
from tests.support.postgres_server import control_server

from holdfast.errors import StoreUnavailable
from holdfast.persistence.db import Database


async def count_runs(db: Database) -> int:
    async with db.session() as session:
        return int(await session.scalar(text("SELECT count(*) FROM runs")) or 0)


async def test_a_server_that_is_away_is_told_and_does_again_when_it_is_back(server_url: str, url: str) -> None:
    db = Database(url)
    await db.init_schema()
    assert await count_runs(db) == 0
    control_server(server_url, "stop", "-m", "fast")
    try:
        for _ in range(2):  # with a connection that was good before, and without one
            with pytest.raises(StoreUnavailable, match="cannot be reached") as refused:
                await count_runs(db)
    finally:
        control_server(server_url, "start")

    assert "password" not in str(refused.value)
    assert await count_runs(db) == 0
    await db.dispose()
