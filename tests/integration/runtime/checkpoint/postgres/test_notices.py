"""F2: notices of new events leave after the commit, over another connection, and name the runs."""

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from tests.support.postgres_runs import append, own
from tests.support.progress_limit import until, wait_until
from tests.support.stores import progress

from holdfast.runtime.checkpoint import PostgresCheckpointer
from holdfast.runtime.checkpoint.postgres import notices
from holdfast.runtime.checkpoint.postgres.notices import ANY, Notice, from_payload, to_payload
from holdfast.runtime.journal import Journal

OpenStore = Callable[..., PostgresCheckpointer]


@pytest.fixture
def heard(url: str) -> Any:
    """What a stranger hears: a function that returns the notices of this schema's runs so far."""
    found: list[Notice] = []
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"LISTEN {notices.CHANNEL}".encode())

        def hear() -> list[Notice]:
            found.extend(from_payload(notice.payload) for notice in connection.notifies(timeout=0))
            return found

        yield hear


async def test_f2_an_append_is_committed_and_answered_before_anybody_is_told(
    journal: Journal, store: PostgresCheckpointer, open_store: OpenStore, heard: Callable[[], list[Notice]]
) -> None:
    claims = await own(journal, "r", "s")
    await until(lambda: any("s" in (notice.run_ids or ()) for notice in heard()))
    before = len(heard())

    with store._noticing.lock:
        for number in range(20):
            await asyncio.gather(*(append(journal, claim, number) for claim in claims.values()))
        store.save_event(progress("outside"))

        assert len(open_store().list_events("r")) == 21
        assert len(heard()) == before

    await until(lambda: {"r", "s", "outside"} <= {n for notice in heard()[before:] for n in notice.run_ids or ()})
    assert len(heard()) - before < 20  # each names all that waited for it


async def test_a_reader_looks_by_the_clock_too_since_a_notice_may_be_lost(
    journal: Journal, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = open_store()
    monkeypatch.setattr(writer._notices, "note", lambda *_: None)
    seen: list[int] = []
    with journal.listening("r", seen.append):
        await until(lambda: seen)
        writer.save_event(progress())
        await until(lambda: seen[-1] == 1)


def test_a_wait_for_some_runs_is_ended_by_them_alone(open_store: OpenStore, heard: Callable[[], list[Notice]]) -> None:
    reader, writer = open_store(), open_store()
    reader.wait_for_change(0, of={"mine"})
    writer.save_event(progress("other"))
    wait_until(heard)
    assert not reader.wait_for_change(0.1, of={"mine"})

    writer.save_event(progress("mine"))

    assert reader.wait_for_change(30, of={"mine"})


def test_the_last_notice_leaves_before_a_store_is_closed(
    open_store: OpenStore, heard: Callable[[], list[Notice]]
) -> None:
    store = open_store()
    store.save_event(progress("last"))
    store.close()

    wait_until(lambda: any("last" in (notice.run_ids or ()) for notice in heard()))


def test_a_notice_is_read_as_it_was_written_and_one_of_another_version_is_about_any_run() -> None:
    assert from_payload(to_payload(7, ["b", 'a "quoted" one'])) == Notice(7, frozenset({"b", 'a "quoted" one'}))
    assert from_payload(to_payload(7, (f"run-{number}" for number in range(2000)))) == Notice(7, None)
    for payload in ("", "{}", "[1]", "1"):
        assert from_payload(payload) == ANY
