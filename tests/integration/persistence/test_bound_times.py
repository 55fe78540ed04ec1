"""The database's clock has gone back by an hour: what lasts for seconds is bounded, what a person chose is not."""

from collections.abc import Iterator

import pytest
from sqlalchemy import text
from tests.support.postgres_server import fresh_schema

from holdfast.persistence.db import Database
from holdfast.persistence.due.still_runs import Look
from holdfast.persistence.fleet import WorkerFacts, bound_times, note_look, register

AHEAD_S = 3600.0
_NOW = "extract(epoch FROM clock_timestamp())::float8"


@pytest.fixture
def url(postgres_url: str) -> Iterator[str]:
    with fresh_schema(postgres_url) as url:
        yield url


async def read(db: Database, query: str) -> list[tuple[object, ...]]:
    async with db.session() as session:
        return [tuple(row) for row in await session.execute(text(query))]


async def test_a_clock_that_went_back_leaves_nothing_that_lasts_for_an_hour(url: str) -> None:
    db = Database(url)
    await db.init_schema()
    await register(db, WorkerFacts("gone", "{}", "machine", "1", 1, (), ()))
    await note_look(db, "run-1", Look("gone", "", "no repository"), wait_s=1.0)
    async with db.session() as session:
        ahead = f"clock_timestamp() + make_interval(secs => {AHEAD_S})"
        for sql in (
            f"UPDATE workers SET seen_at = {_NOW} + {AHEAD_S}, sweeps_until = {_NOW} + {AHEAD_S}",
            f"UPDATE run_looks SET again_at = {_NOW} + {AHEAD_S}",
            "INSERT INTO journal_runs (run_id, epoch, head, head_hash, owner, lease_until) "
            f"VALUES ('led', 1, 0, '', 'x', {ahead}), ('left', 1, 0, '', 'x', clock_timestamp())",
            "INSERT INTO flow_runs (run_id, flow, status, wake_at, tags, created_at, updated_at) "
            f"VALUES ('due', 'f', 'pending', {_NOW} + {AHEAD_S}, '{{}}', 0, {_NOW} + {AHEAD_S}), "
            f"('sleeps', 'f', 'running', {_NOW} + {AHEAD_S}, '{{}}', 0, {_NOW})",
        ):
            await session.execute(text(sql))
        await session.commit()

    await bound_times(db, longest_lease_s=120)

    assert await read(db, f"SELECT seen_at <= {_NOW}, sweeps_until <= {_NOW} + 6 FROM workers") == [(True, True)]
    assert await read(db, f"SELECT again_at <= {_NOW} FROM run_looks") == [(True,)]
    leases = "SELECT run_id, lease_until < clock_timestamp() + interval '7 s' FROM journal_runs ORDER BY run_id"
    assert await read(db, leases) == [("led", True), ("left", True)]
    flows = f"SELECT run_id, wake_at <= {_NOW} FROM flow_runs ORDER BY run_id"
    assert await read(db, flows) == [("due", True), ("sleeps", False)]
    await db.dispose()
