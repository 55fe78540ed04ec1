"""The thread that notices what others commit: a follower hears of it whenever it came."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.stores import progress

from holdfast.runtime.checkpoint import SQLiteCheckpointer
from holdfast.runtime.events import Event
from holdfast.runtime.journal import Journal


class LateStore(SQLiteCheckpointer):
    """Looks for others' commits only from `may_hear` on."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_waiting, self.may_hear = threading.Event(), threading.Event()

    def wait_for_change(self, timeout_s: float, **options: Any) -> bool:
        self.is_waiting.set()
        self.may_hear.wait()
        return super().wait_for_change(timeout_s, **options)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LateStore]:
    store = LateStore(tmp_path / "journal.db")
    store.save_event(progress())
    yield store
    store.may_hear.set()
    store.close()


@pytest.fixture
async def journal(store: LateStore) -> AsyncIterator[Journal]:
    """A journal whose watcher waits already, when nobody follows any run."""
    journal = Journal(store)
    with journal.noticing(lambda: None):
        await asyncio.to_thread(store.is_waiting.wait)
        yield journal
    await journal.close()


@pytest.fixture
async def second(journal: Journal, store: LateStore) -> AsyncIterator["asyncio.Task[Event]"]:
    """The second event of run `r`, which another process has written, for a follower that has seen but the first."""
    following = journal.follow("r")
    assert (await anext(following)).seq == 1
    second = asyncio.ensure_future(anext(following))
    for _ in range(5):  # turns of the loop, until it has read that there is no more
        await asyncio.sleep(0)
    other = SQLiteCheckpointer(store.path)
    other.save_event(progress())
    other.close()
    await asyncio.sleep(0)
    assert not second.done()
    yield second
    await following.aclose()


async def test_whoever_follows_a_run_while_the_watcher_waits_hears_of_the_change_that_ends_the_wait(
    second: "asyncio.Task[Event]", store: LateStore
) -> None:
    store.may_hear.set()
    assert (await second).seq == 2


async def test_a_claim_tells_followers_of_what_it_finds(second: "asyncio.Task[Event]", journal: Journal) -> None:
    claim = await journal.claim("r")
    assert (await second).seq == 2
    await journal.release(claim)
