"""Sessions share a few connections: each for the time of its queries, and nobody waits for ever."""

import asyncio
import contextlib
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.pool import Pool
from tests.support.postgres_server import fresh_schema
from tests.support.progress_limit import until

from holdfast.errors import StoreBusy, StoreUnavailable, StoreUnreadable
from holdfast.persistence import db as database
from holdfast.persistence import schema
from holdfast.persistence.db import Database
from holdfast.runtime.checkpoint.sqlite.transaction import to_store_error


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
        async with db.session() as first_session:
            await first_session.execute(text("SELECT 1"))
            with pytest.raises(StoreBusy) as refused:
                async with db.session() as session:
                    await session.execute(text("SELECT 1"))
        async with db.session() as session:
            assert await session.scalar(text("SELECT 1")) == 1
    finally:
        await db.dispose()

    assert refused.value.facts["retry_after_s"] == 5


async def test_who_stands_still_in_a_transaction_keeps_nothing_from_others(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_STILL_S", 0.2)
    take = text("SELECT pg_advisory_xact_lock(1), current_setting('lock_timeout')")
    with fresh_schema(postgres_url) as url:
        db = Database(url)
        waits: list[str] = []

        async def stand_still() -> None:
            async with db.session() as still:
                await still.execute(take)
                async with db.session() as other:
                    waits.append((await other.execute(take)).one()[1])
                await still.execute(take)

        try:
            with pytest.raises(StoreUnavailable):
                await stand_still()
        finally:
            await db.dispose()

    assert waits == ["30s"]


async def test_tables_are_brought_up_to_date_beside_a_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.db"
    db = Database(f"sqlite+aiosqlite:///{path}")
    await db.init_schema()
    await db.dispose()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        db.upgrade_tables()  # there is nothing to write, and nobody to wait for

        writer.execute("UPDATE alembic_version SET version_num = '0004'")
        writer.execute("COMMIT")
        writer.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr(schema, "_LOCK_WAIT_MS", 10)
        with pytest.raises(StoreBusy):
            db.upgrade_tables()


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


@pytest.mark.parametrize("moment", ["it connects", "it reads"])
async def test_a_closed_database_leaves_no_thread_behind_whatever_was_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A thread that has something to say to a loop that is closed would end with a traceback on the terminal."""
    db = Database(f"sqlite+aiosqlite:///{tmp_path}/holdfast.db", connections=1)
    await db.init_schema()
    before = set(threading.enumerate())
    is_there, may_go_on = threading.Event(), threading.Event()

    def wait() -> int:
        is_there.set()
        may_go_on.wait()
        return 1

    def connect(*args: Any, connect: Any = sqlite3.connect, **options: Any) -> sqlite3.Connection:
        if moment == "it connects":
            wait()
        connection: sqlite3.Connection = connect(*args, **options)
        connection.create_function("wait", 0, wait)
        return connection

    async def look() -> None:
        async with db.session() as session:
            await session.execute(text("SELECT wait()"))

    monkeypatch.setattr(sqlite3, "connect", connect)
    looking = asyncio.create_task(look())
    await until(is_there.is_set, moment)
    looking.cancel()
    await asyncio.wait({looking}, timeout=0.05)
    looking.cancel()  # a server that is told twice to stop
    with contextlib.suppress(asyncio.CancelledError):
        await looking
    closing = asyncio.create_task(db.dispose())
    await asyncio.wait({closing}, timeout=0.2)
    may_go_on.set()
    await closing

    left = set(threading.enumerate()) - before
    assert [thread for thread in left if "asyncio" not in thread.name] == []


@pytest.mark.parametrize("damage", ["pages", "header"])
async def test_a_damaged_file_is_told_as_what_it_is(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "holdfast.db"
    db = Database(f"sqlite+aiosqlite:///{path}")
    await db.init_schema()
    await db.dispose()
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"\xff" * (len(content) - 100) if damage == "pages" else b"x" * len(content))
    for left in (path.with_name("holdfast.db-wal"), path.with_name("holdfast.db-shm")):
        left.unlink(missing_ok=True)

    try:
        with pytest.raises(StoreUnreadable):
            async with db.session() as session:
                await session.execute(text("SELECT state FROM runs"))
    finally:
        await db.dispose()


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("SQLITE_IOERR_READ", "store_unreadable"),
        ("SQLITE_IOERR_SHORT_READ", "store_unreadable"),
        ("SQLITE_IOERR_WRITE", "store_full"),
        ("SQLITE_IOERR_FSYNC", "store_full"),
        ("SQLITE_FULL", "store_full"),
    ],
)
def test_an_error_of_the_disk_is_told_by_what_was_tried(name: str, code: str) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode, error.sqlite_errorname = getattr(sqlite3, name), name

    assert to_store_error(error, "holdfast.db").code == code


async def test_f7_a_process_that_is_quiet_again_gives_its_connections_to_the_server_back(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_QUIET_S", 0.0)
    with fresh_schema(f"{postgres_url}{'&' if '?' in postgres_url else '?'}application_name=counted") as url:
        db = Database(url, connections=8)
        await db.init_schema()

        async def look() -> int:
            async with db.session() as session:
                query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'counted'"
                return int(await session.scalar(text(query)) or 0)

        try:
            busy = max(await asyncio.gather(*(look() for _ in range(50))))
            for _ in range(3):
                await look()
            await until_async(look, lambda count: count <= 5)
        finally:
            await db.dispose()

    assert busy > 5


async def until_async(look: Any, is_enough: Any) -> None:
    while not is_enough(await look()):
        await asyncio.sleep(0)


async def test_a_query_of_sqlite_takes_one_way_to_its_thread_and_a_cancelled_one_keeps_nobody(tmp_path: Path) -> None:
    db = Database(f"sqlite+aiosqlite:///{tmp_path}/holdfast.db", connections=1, wait_s=60.0)
    await db.init_schema()

    async def ask(query: str) -> int:
        async with db.session() as session:
            return int(await session.scalar(text(query)) or 0)

    assert await ask("SELECT count(*) FROM runs") == 0
    [connection] = db._files
    before = connection._requests
    assert await ask("SELECT count(*) FROM runs") == 0
    assert connection._requests == before + 1

    long = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000) SELECT count(*) FROM n"
    asking = asyncio.create_task(ask(long))
    await until(lambda: not connection.is_idle)
    asking.cancel()
    await asyncio.wait([asking])

    assert await ask("SELECT 7") == 7
    await db.dispose()
