"""A real server for this folder's tests, restarted by some of them; every test has a schema of its own."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import psycopg
import pytest
from tests.support.network import Wire, open_wire
from tests.support.postgres_server import fresh_schema, running_server
from tests.support.stores import Place

from holdfast.runtime.checkpoint import PostgresCheckpointer
from holdfast.runtime.checkpoint.postgres.pipeline import PostgresPipeline
from holdfast.runtime.journal import Journal


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    with running_server() as url:
        yield url


@pytest.fixture
def url(server_url: str) -> Iterator[str]:
    with fresh_schema(server_url) as url:
        yield url


@pytest.fixture
def place(url: str) -> Iterator[Place]:
    place = Place("postgres", url)
    yield place
    place.close()


@pytest.fixture
def open_store(url: str) -> Iterator[Callable[..., PostgresCheckpointer]]:
    opened: list[PostgresCheckpointer] = []

    def open_one(**options: float) -> PostgresCheckpointer:
        opened.append(PostgresCheckpointer(url, **options))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[..., PostgresCheckpointer]) -> PostgresCheckpointer:
    return open_store()


@pytest.fixture
def sql(url: str) -> Callable[..., list[tuple[object, ...]]]:
    """Run one statement past the store, each on a connection of its own."""

    def run(statement: str, *params: object) -> list[tuple[object, ...]]:
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), params or None)
            return cursor.fetchall() if cursor.description else []

    return run


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many appends each batch on a line had."""
    sizes: list[int] = []
    send = PostgresPipeline.send

    def count(pipeline: PostgresPipeline, batch: Any, ticket: Any) -> None:
        sizes.append(len(batch))
        send(pipeline, batch, ticket)

    monkeypatch.setattr(PostgresPipeline, "send", count)
    return sizes


@pytest.fixture
async def journal(store: PostgresCheckpointer, sent: list[int]) -> AsyncIterator[Journal]:
    journal = Journal(store)
    yield journal
    await journal.close()


@pytest.fixture
def wire(url: str) -> Iterator[Wire]:
    with open_wire(url) as wire:
        yield wire


@pytest.fixture
async def far_journal(wire: Wire, sent: list[int]) -> AsyncIterator[Journal]:
    """A journal behind a network that can be cut."""
    store = await asyncio.to_thread(PostgresCheckpointer, wire.url)
    journal = Journal(store)
    yield journal
    await journal.close()
    store.close()
