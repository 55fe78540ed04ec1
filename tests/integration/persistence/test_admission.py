"""Limits of runs hold over processes, a dead process holds no place, and what has to wait is not claimed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import text
from tests.support.postgres_server import fresh_schema
from tests.support.stores import start_python

from holdfast.persistence.admission import admit, drop_limit, put_limit, read_clock
from holdfast.persistence.db import Database
from holdfast.persistence.listings import list_due
from holdfast.persistence.statements import pause_run
from holdfast.runtime.stores import open_journal

STARTER = """
import asyncio, sys
from holdfast.persistence.admission import admit
from holdfast.persistence.db import Database

async def main():
    db = Database(sys.argv[1])
    claim = db.store.claim(sys.argv[2])
    print("ready", flush=True)
    sys.stdin.readline()
    print(await admit(db, claim), flush=True)
    sys.stdin.readline()

asyncio.run(main())
"""


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[Database]:
    db = Database(database_url)
    await db.init_schema()
    await change(db, "INSERT INTO workflow_templates (id, hash) VALUES ('t', 'h')")
    yield db
    await db.dispose()


async def change(db: Database, sql: str, **params: Any) -> None:
    async with db.session() as session:
        await session.execute(text(sql), params)
        await session.commit()


async def insert(db: Database, run_id: str, **values: Any) -> None:
    row = {"id": run_id, "template_id": "t", "state": "pending", "workflow": "release", "created_at": run_id, **values}
    marks = ", ".join(f":{name}" for name in row)
    await change(db, f"INSERT INTO runs ({', '.join(row)}) VALUES ({marks})", **row)


async def read(db: Database, run_id: str, column: str) -> Any:
    async with db.session() as session:
        return await session.scalar(text(f"SELECT {column} FROM runs WHERE id = :id"), {"id": run_id})


async def ids(db: Database, **options: Any) -> list[str]:
    return [run.run_id for run in await list_due(db, **options)]


def tell(process: Any) -> None:
    process.stdin.write("go\n")
    process.stdin.flush()


async def test_of_five_processes_that_start_at_once_two_get_a_place_and_a_dead_one_gives_it_back(
    db: Database, database_url: str
) -> None:
    await put_limit(db, "workflow", "release", 2, by="")
    runs = [f"r{number}" for number in range(5)]
    for run_id in runs:
        await insert(db, run_id)
    processes = {run_id: start_python(STARTER, database_url, run_id) for run_id in runs}
    try:
        for process in processes.values():
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes.values():
            tell(process)
        outcomes = {
            run_id: (await asyncio.to_thread(process.stdout.readline)).strip() for run_id, process in processes.items()
        }
        full = "Waits for a place of workflow release, 2 of 2 are taken."
        assert sorted(outcomes.values()) == ["None", "None", full, full, full]

        admitted = [run_id for run_id, words in outcomes.items() if words == "None"]
        waiting = [run_id for run_id, words in outcomes.items() if words == full]
        assert {await read(db, run_id, "waits_for") for run_id in waiting} == {full}
        for run_id in waiting:  # they give their claims up
            tell(processes[run_id])
            assert processes[run_id].wait() == 0
        assert await ids(db) == []

        processes[admitted[0]].kill()
        processes[admitted[0]].wait()
        free = await ids(db)
        assert len(free) == 1  # the oldest, whichever that is
        claim = db.store.claim(free[0])
        assert await admit(db, claim) is None
        db.store.release(claim)
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()


async def test_a_claim_that_was_taken_over_holds_no_place(db: Database) -> None:
    await put_limit(db, "runs", "", 1, by="")
    await insert(db, "a")
    await insert(db, "b")
    first = db.store.claim("a")
    assert await admit(db, first) is None
    other = db.store.claim("b")
    assert await admit(db, other) == "Waits for a place, 1 of 1 are taken."

    second = db.store.claim("a", force=True)  # its owner has not been admitted yet
    assert await admit(db, other) is None
    assert await admit(db, second) == "Waits for a place, 1 of 1 are taken."
    db.store.release(other)
    assert await admit(db, second) is None
    db.store.release(second)
    assert await admit(db, db.store.claim("b")) is None


async def test_users_take_turns_and_a_priority_counts_among_the_runs_of_one(db: Database) -> None:
    for number in range(4):
        await insert(db, f"a{number}", started_by="ann", priority=number)
    await insert(db, "b", started_by="ben", created_at="z")

    assert await ids(db, limit=3) == ["a3", "b", "a2"]
    await change(db, "UPDATE runs SET state = 'completed', driven_at = '2026' WHERE id = 'a3'")
    assert await ids(db) == ["b", "a2", "a1", "a0"]


async def test_a_run_is_left_alone_before_its_time_and_outside_its_queue(db: Database) -> None:
    await insert(db, "late", due_at="2999-01-01T00:00:00.000Z")
    await insert(db, "now", due_at=await read_clock(db), queue="gpu")
    await insert(db, "day", state="paused", pause_reason="budget", due_at="2020-01-01T00:00:00.000Z")
    await insert(db, "other-day", state="paused", pause_reason="budget", due_at="2999-01-01T00:00:00.000Z")

    assert await ids(db) == ["day", "now"]
    assert await ids(db, queues=["runs"]) == ["day"]
    assert await ids(db, of=["now"]) == ["now"]
    await put_limit(db, "day", "", 5_000_000, by="")  # what waits for tomorrow looks at the new limit now
    assert await ids(db) == ["day", "now", "other-day"]


async def test_a_run_of_a_schedule_waits_for_the_one_before(db: Database) -> None:
    await insert(db, "aaaaaaaa-first", state="paused", pause_reason="person", schedule="nightly")
    await insert(db, "second", schedule="nightly")

    assert await ids(db) == []
    assert await read(db, "second", "waits_for") == "Waits for run aaaaaaaa of schedule nightly to end."
    await change(db, "UPDATE runs SET state = 'failed' WHERE id = 'aaaaaaaa-first'")
    assert await ids(db) == ["second"]


async def test_a_run_that_pauses_gives_its_place_back_in_the_same_transaction(db: Database) -> None:
    await put_limit(db, "runs", "", 1, by="")
    await insert(db, "a", state="running")
    await insert(db, "b")
    claim = db.store.claim("a")
    assert await admit(db, claim) is None
    assert await ids(db) == []
    async with open_journal(db.store) as journal:
        await journal.append("a", [], claim=claim, rows=[pause_run("a", "person")])
    assert await ids(db) == ["b"]  # although its owner still has the claim


async def test_a_run_that_a_limit_no_longer_holds_waits_for_no_place_any_more(db: Database) -> None:
    await put_limit(db, "runs", "", 1, by="")
    await insert(db, "a", state="running")
    await insert(db, "b")
    assert await admit(db, db.store.claim("a")) is None
    assert await ids(db) == []
    assert await read(db, "b", "waits_for") == "Waits for a place, 1 of 1 are taken."

    await drop_limit(db, "runs", "")

    assert await ids(db) == ["b"]
    assert await read(db, "b", "waits_for") is None  # though nobody has taken it yet


async def test_whoever_looks_for_all_hears_of_a_limit_that_is_set_or_removed(postgres_url: str) -> None:
    """By notices alone: nobody hears of a limit again by looking later."""
    with fresh_schema(postgres_url) as url:
        db = Database(url)
        await db.init_schema()
        heard = asyncio.Event()
        async with open_journal(url) as journal:
            with journal.noticing(heard.set):
                await heard.wait()  # that it listens from now on
                for work in (put_limit(db, "runs", "", 2, by="test"), drop_limit(db, "runs", "")):
                    heard.clear()
                    await work
                    await heard.wait()
        await db.dispose()
