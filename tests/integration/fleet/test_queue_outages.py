"""The queue's loop after an outage: it hears of jobs again, and has a row under which it fetches them."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from tests.support.progress_limit import until, waiting_until

from holdfast.fleet import procrastinate_queue
from holdfast.fleet.procrastinate_queue import ProcrastinateQueue
from holdfast.persistence.db import Database
from holdfast.persistence.due.beat import DueJob
from holdfast.persistence.fleet import RUN_QUEUE

NAME = "queue-outages"


class Taker:
    def __init__(self) -> None:
        self.taken: list[str] = []

    def take(self, run_id: str) -> None:
        self.taken.append(run_id)

    async def wait_for_place(self) -> int:
        return 1

    def list_passed_over(self) -> set[str]:
        return set()


class Outage:
    """While it lasts, this process is refused every new connection to the server."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_on = False
        self.is_noticed = False
        """The listener wants its connection back, or all of the loop does: it was not idle when it was cut off."""
        self._refused = 0
        real = psycopg.AsyncConnection.connect

        async def connect(*args: Any, **more: Any) -> "psycopg.AsyncConnection[Any]":
            if self.is_on:
                self._refused += 1
                self.is_noticed |= bool(more.get("autocommit")) or self._refused > 3
                raise psycopg.OperationalError("the server is away")
            return await real(*args, **more)

        monkeypatch.setattr(psycopg.AsyncConnection, "connect", connect)


@pytest.fixture
async def queue(fleet_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProcrastinateQueue]:
    """A queue that hears of jobs by notices alone, with connections that can be told from all others."""
    monkeypatch.setattr(procrastinate_queue, "_POLL_S", 3600.0)
    db = Database(f"{fleet_url}&application_name={NAME}")
    await db.init_schema()
    queue = ProcrastinateQueue(db, queues=(RUN_QUEUE,))
    await queue.repair()
    yield queue
    await db.dispose()


@pytest.fixture
async def outside(fleet_url: str) -> AsyncIterator["psycopg.AsyncConnection[Any]"]:
    connection = await psycopg.AsyncConnection.connect(fleet_url, autocommit=True)
    yield connection
    await connection.close()


async def bring_one_more(outside: "psycopg.AsyncConnection[Any]", taker: Taker) -> None:
    """Enqueue a run and wait until it is taken.

    It is rung for as the sweep does: a notice that comes while the loop fetches, or before it listens, is lost.
    """
    await outside.execute("SELECT holdfast_enqueue('after', %s, 0)", (RUN_QUEUE,))
    notice = f"procrastinate_queue_v1#{RUN_QUEUE}", json.dumps({"type": "job_inserted", "job_id": 1})
    with waiting_until("the second one is taken"):
        while taker.taken != ["before", "after"]:
            await outside.execute("SELECT pg_notify(%s, %s)", notice)
            await asyncio.sleep(0.05)


async def test_a_queue_whose_listener_died_in_an_outage_hears_of_jobs_again(
    queue: ProcrastinateQueue,
    outside: "psycopg.AsyncConnection[Any]",
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    taker, outage = Taker(), Outage(monkeypatch)
    await queue.enqueue([DueJob("before", RUN_QUEUE)])
    serving = asyncio.create_task(queue.serve(taker))
    await until(lambda: taker.taken == ["before"], "the first one is taken")
    with waiting_until("its job is over"):
        while await (await outside.execute("SELECT id FROM procrastinate_jobs")).fetchall():
            await asyncio.sleep(0.01)

    outage.is_on = True
    await outside.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", (NAME,))
    await until(lambda: outage.is_noticed, "the listener has not got its connection back")
    outage.is_on = False
    await bring_one_more(outside, taker)
    await queue.stop()
    await serving
    assert not [record for record in caplog.records if record.exc_info]  # an outage is no fault of ours


@pytest.mark.parametrize("is_noticed", [True, False], ids=["before-a-job-comes", "when-a-job-comes"])
async def test_a_queue_whose_row_was_removed_gets_another_and_takes_what_comes(
    queue: ProcrastinateQueue,
    outside: "psycopg.AsyncConnection[Any]",
    monkeypatch: pytest.MonkeyPatch,
    is_noticed: bool,
) -> None:
    rows = "SELECT id FROM procrastinate_workers"
    monkeypatch.setattr(procrastinate_queue, "_HEARTBEAT_S", 0.5 if is_noticed else 3600.0)
    taker = Taker()
    await queue.enqueue([DueJob("before", RUN_QUEUE)])
    serving = asyncio.create_task(queue.serve(taker))
    await until(lambda: taker.taken == ["before"], "the first one is taken")
    removed = await (await outside.execute("DELETE FROM procrastinate_workers RETURNING id")).fetchall()

    if is_noticed:
        with waiting_until("there is another row"):
            while not await (await outside.execute(rows)).fetchall():
                await asyncio.sleep(0.01)
    await bring_one_more(outside, taker)

    assert not {*removed} & {*await (await outside.execute(rows)).fetchall()}
    await queue.stop()
    await serving
