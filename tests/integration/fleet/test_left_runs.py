"""Runs that some workers cannot drive come to one that can, whoever gets their jobs."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.api.server_world import Api
from tests.support.progress_limit import until, waiting_until

from holdfast.errors import BackendUnavailable
from holdfast.fleet import sweep as module
from holdfast.fleet.port import RunTaker
from holdfast.fleet.procrastinate_queue import ProcrastinateQueue
from holdfast.fleet.schedules import ScheduleClock
from holdfast.fleet.worker import Worker, WorkerOptions
from holdfast.persistence.db import Database
from holdfast.persistence.due.beat import Beat, beat
from holdfast.persistence.fleet import QUEUES, read_looks
from holdfast.runtime.journal import Journal
from holdfast.runtime.stores import open_journal

POLL_S = 0.05


class DeafQueue(ProcrastinateQueue):
    """A queue of which others get every job."""

    async def serve(self, taker: RunTaker) -> None:
        await asyncio.Event().wait()


class Drives:
    """What a worker can drive: everything, or nothing for want of a key."""

    def __init__(self, journal: Journal, folder: Path, *, has_key: bool) -> None:
        self.spool_dir = folder / "spool"
        self.begun: list[str] = []
        self.tried: list[str] = []
        self._journal = journal
        self._has_key = has_key

    async def find_flow(self, _run_id: str) -> None: ...

    async def find_turn(self, _run_id: str, _but: Any) -> None: ...

    async def find(self, run_id: str) -> "Drives":
        self.tried.append(run_id)
        if not self._has_key:
            raise BackendUnavailable("This machine lacks A_KEY.", missing="A_KEY")
        return self

    async def run(self) -> None:
        run_id = self.tried[-1]
        await self._journal.claim(run_id)
        self.begun.append(run_id)
        await asyncio.Event().wait()

    def drain(self) -> bool:
        return False

    def end(self, _run_id: str) -> None: ...


@pytest.fixture
def signs_of_life(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    counts: Counter[str] = Counter()

    async def count(*args: Any, **more: Any) -> Beat:
        heard = await beat(*args, **more)
        counts[args[1].name] += 1
        return heard

    monkeypatch.setattr(module, "beat", count)
    return counts


@pytest.fixture
async def db(office: Api, fleet_url: str) -> AsyncIterator[Database]:
    db = Database(fleet_url, connections=10)
    yield db
    await db.dispose()


async def start(stack: AsyncExitStack, db: Database, drives: Drives, name: str, *, is_deaf: bool = False) -> Worker:
    journal = drives._journal
    options = WorkerOptions(name=name, slots=2, queues=QUEUES, flows=("count",), poll_s=POLL_S)
    queue = (DeafQueue if is_deaf else ProcrastinateQueue)(db, queues=QUEUES, flows=("count",))
    worker = Worker(db, journal, queue, cast(Any, drives), ScheduleClock(db, cast(Any, None)), options)
    await worker.start()
    stack.push_async_callback(worker.stop)
    return worker


async def test_a_run_begins_where_its_key_is_though_five_others_get_its_jobs(
    office: Api, db: Database, folder: Path, signs_of_life: Counter[str]
) -> None:
    async with open_journal(db.store) as journal, AsyncExitStack() as stack:
        lacking = [Drives(journal, folder, has_key=False) for _ in range(5)]
        for number, drives in enumerate(lacking):
            await start(stack, db, drives, f"lacks-{number}")
        run_id = await office.start()
        with waiting_until("all five have looked, and none again"):
            while len(await read_looks(db, run_id)) < 5:
                await asyncio.sleep(0.01)
        able = Drives(journal, folder, has_key=True)
        await start(stack, db, able, "able", is_deaf=True)
        await until(lambda: able.begun or signs_of_life["able"] > 20, "the run begins, or nothing comes of it")

        assert (able.begun, signs_of_life["able"] <= 3) == ([run_id], True)
        assert [drives.tried for drives in lacking] == [[run_id]] * 5
