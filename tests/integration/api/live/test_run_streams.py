"""What followers of a run cost: pages of its journal, one query for all who ask at once, and a bounded queue."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import pytest
from tests.support.api.server_world import Api

from holdfast.api.live import run_stream
from holdfast.api.live.client_queue import ClientQueue
from holdfast.api.live.run_stream import RunStreams
from holdfast.errors import HoldfastError
from holdfast.persistence import event_feed
from holdfast.persistence.db import Database
from holdfast.runtime.events import Event, create_event

EVENTS, FOLLOWERS = 60, 100


async def make_run(api: Api, *, text_bytes: int, count: int = EVENTS) -> str:
    """A run that waits for a person, with many events after its own."""
    run_id = await api.start(workflow="asking-notes")
    await api.wait_for(run_id, "paused")
    server = await api.app.state.holder.get()
    for number in range(count):
        text = f"{number:06}" + "x" * text_bytes
        await server.journal.append(run_id, [create_event(run_id, "agent.progress", number=number, text=text)])
    return run_id


async def read_until(frames: AsyncGenerator[bytes, None], number: int) -> bytes:
    text = b""
    async with contextlib.aclosing(frames):
        async for piece in frames:
            text += piece
            if f'"number":{number}'.encode() in text:
                break
    return text


@pytest.mark.parametrize("text_bytes", [20_000, 100_000])  # within the row, and stored apart
async def test_a_follower_that_does_not_read_holds_one_page_of_the_journal(
    api: Api, monkeypatch: pytest.MonkeyPatch, text_bytes: int
) -> None:
    run_id = await make_run(api, text_bytes=text_bytes)
    pages: list[int] = []

    async def read_pages(db: Database, places: Sequence[tuple[str, int]]) -> list[list[Event] | HoldfastError]:
        found = await event_feed.read_pages_of_runs(db, places)
        pages.extend(len(str(page)) for page in found)
        return found

    monkeypatch.setattr(run_stream, "read_pages_of_runs", read_pages)
    server = await api.app.state.holder.get()
    streams = RunStreams(server.db, server.journal, max_queued=100)
    frames = streams.follow(run_id, 0, idle_s=60)
    await anext(frames)
    after_first = list(pages)
    await frames.aclose()
    text = await read_until(streams.follow(run_id, 0, idle_s=60), EVENTS - 1)

    assert len(after_first) == 1
    assert max(pages) < 400_000
    assert [f'"number":{number},'.encode() in text for number in range(EVENTS)] == [True] * EVENTS
    await streams.wait_closed()


async def test_many_followers_share_the_queries_that_they_wait_for(api: Api) -> None:
    run_id = await make_run(api, text_bytes=10)
    server = await api.app.state.holder.get()
    sessions = under_way = most_at_once = 0

    class CountedDatabase(Database):
        @contextlib.asynccontextmanager
        async def session(self) -> AsyncIterator[Any]:
            nonlocal sessions, under_way, most_at_once
            sessions, under_way = sessions + 1, under_way + 1
            most_at_once = max(most_at_once, under_way)
            try:
                async with super().session() as session:
                    yield session
            finally:
                under_way -= 1

    db = CountedDatabase(api.config.database_url, connections=1)
    streams = RunStreams(db, server.journal, max_queued=100)
    try:
        follows = [read_until(streams.follow(run_id, 0, idle_s=60), EVENTS - 1) for _ in range(FOLLOWERS)]
        texts = await asyncio.gather(*follows)
        await streams.wait_closed()
    finally:
        await db.dispose()

    assert len(set(texts)) == 1
    assert most_at_once <= 2  # for pages and for states
    assert sessions < FOLLOWERS / 4


async def test_many_who_are_recognised_at_once_share_a_query(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await api.app.state.holder.get()
    sessions = 0
    original = Database.session

    def session(self: Database) -> Any:
        nonlocal sessions
        sessions += 1
        return original(self)

    monkeypatch.setattr(Database, "session", session)
    rows = await asyncio.gather(*(server.find_token(api.tokens["viewer"]) for _ in range(FOLLOWERS)))

    assert {row.name for row in rows if row} == {"viewer"}
    assert sessions < FOLLOWERS / 10  # the server's own work opens some, too


async def test_a_stream_whose_store_fails_ends_and_says_nothing_wrong(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from holdfast.errors import StoreBusy

    run_id = await make_run(api, text_bytes=10, count=1)

    async def fail(_db: Database, _places: object) -> list[list[Event] | HoldfastError]:
        raise StoreBusy("Too many wait.")

    monkeypatch.setattr(run_stream, "read_pages_of_runs", fail)
    answer = await api.viewer.get(f"/api/runs/{run_id}/events")

    assert answer.status_code == 200
    assert "event:" not in answer.text  # neither an event nor `done`: the client comes back
    assert "already started" not in caplog.text


async def test_a_client_is_let_go_when_it_has_too_many_bytes_unread() -> None:
    queue: ClientQueue[str] = ClientQueue(1000, max_bytes=100, idle_s=60)

    queue.put("big", 500)  # one always fits
    queue.put("next", 1)

    assert queue.is_cut_off
    assert (await queue.take(), await queue.take()) == (["big"], None)
    queue.close()
