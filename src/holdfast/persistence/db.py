"""One database: sessions of SQLAlchemy for reading rows, and the runtime's store for writing, on the same data."""

import asyncio
import contextlib
import functools
import select
import sqlite3
import tempfile
import threading
import time
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from holdfast.config import DATABASE_CONNECTIONS
from holdfast.errors import ConfigInvalid, StoreBusy, StoreUnreadable
from holdfast.extras import name_missing_extra
from holdfast.runtime.checkpoint.base import JournalStore
from holdfast.runtime.checkpoint.private_files import make_private_database, make_private_folder
from holdfast.runtime.stores import open_store

with name_missing_extra(__name__):
    from sqlalchemy import URL, event, make_url
    from sqlalchemy.exc import (
        DatabaseError,
        DataError,
        DBAPIError,
        IntegrityError,
        InterfaceError,
        NotSupportedError,
        ProgrammingError,
    )
    from sqlalchemy.exc import TimeoutError as PoolTimeout
    from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine

    from holdfast.persistence.schema import upgrade_rows


_QUIET_S = 10.0
_STILL_S = 10.0  # in the middle of a transaction: longer than a lease, since a busy loop comes back late
_IDLE_MOST = 1  # connection: with the journal's two, and two of the queue, an idle worker has five


class Database:
    """`url` is `sqlite+aiosqlite:///path` or `postgresql://…`; nothing is opened before it is needed.

    Sessions share a number of `connections`, which stay open: one to spare, opened and closed at each use, costs more
    than to wait for a free one. Who waits longer than `wait_s` gets `StoreBusy`.
    """

    def __init__(self, url: str, *, connections: int = DATABASE_CONNECTIONS, wait_s: float = 30.0) -> None:
        """Take the URL of a SQLite or Postgres database. Raises `ConfigInvalid` for another kind."""
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self.path = _sqlite_path(url)
        if self.path == ":memory:":
            # The store and the sessions have connections of their own, so even a passing database needs a file.
            self._scratch = tempfile.TemporaryDirectory(prefix="holdfast-")
            self.path = f"{self._scratch.name}/holdfast.db"
        self._url = url
        self._pool = {"pool_size": connections, "max_overflow": 0, "pool_timeout": wait_s}
        self._in_use = self._most_in_use = 0
        self._look_at = 0.0
        self._engine: AsyncEngine | None = None
        self._sessions: async_sessionmaker[AsyncSession] | None = None
        self._store: JournalStore | None = None
        self._files: weakref.WeakSet[Any] = weakref.WeakSet()

    @property
    def address(self) -> str:
        """What opens another store on the same database."""
        return self.path or self._url

    @property
    def store(self) -> JournalStore:
        """The journal's side of the database, opened on first use."""
        if self._store is None:
            self._store = open_store(self.address)
        return self._store

    async def init_schema(self) -> None:
        """Bring all tables up to date. Safe for many processes at once, and after a kill in the middle."""
        if self.path is not None:
            folder = Path(self.path).absolute().parent
            try:
                make_private_folder(folder)
            except OSError as error:
                message = f"The folder {folder} of the database cannot be made: {error.strerror}."
                raise StoreUnreadable(message, hint="Name another one: --data-dir FOLDER") from error
        await asyncio.to_thread(lambda: self.store)
        await asyncio.to_thread(self.upgrade_tables)

    def upgrade_tables(self) -> None:
        """Bring the rows' tables up to date, without the journal's. Raises `StoreNewer`, `StoreBusy`."""
        try:
            upgrade_rows(self._engine_url(is_async=False))
        except (DatabaseError, InterfaceError) as error:
            raise self._to_store_error(error) from error

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncSession]:
        """Open a session; its changes last only if it commits. It has a connection from its first query to its end:
        nothing is waited for in it but the database, and no second one is opened in it."""
        if self._sessions is None:
            self._engine = self._make_engine()
            self._sessions = async_sessionmaker(self._engine, expire_on_commit=False)
        self._in_use += 1
        self._most_in_use = max(self._most_in_use, self._in_use)
        try:
            async with self._sessions() as session:
                yield session
        except PoolTimeout as error:
            message = "Too many wait for the database; this one was given up, and nothing was changed."
            raise StoreBusy(message, hint="Try it again.", retry_after_s=5) from error
        except (DatabaseError, InterfaceError) as error:
            raise self._to_store_error(error) from error
        finally:
            self._in_use -= 1
            await self._give_back()

    async def _give_back(self) -> None:
        """Close the connections to a server that a quiet process still has from when it was busy: others need them."""
        if self._in_use or self.path is not None or self._engine is None or time.monotonic() < self._look_at:
            return
        most, self._most_in_use, self._look_at = self._most_in_use, 0, time.monotonic() + _QUIET_S
        if (give_back := getattr(self._store, "give_back", None)) is not None:
            give_back()
        pool: Any = self._engine.pool
        if most <= _IDLE_MOST < pool.checkedin():
            await self._engine.dispose()

    def _to_store_error(self, failed: DBAPIError) -> Exception:
        """Return what an error of the driver's means; one that is about a row, not about the store, stays itself."""
        if isinstance(failed, IntegrityError | DataError | ProgrammingError | NotSupportedError):
            return failed
        error: Any = failed.orig
        if self.path is not None:
            from holdfast.runtime.checkpoint.sqlite import transaction

            return transaction.to_store_error(error, self.path)
        from holdfast.runtime.checkpoint.postgres import session as postgres_session

        return postgres_session.to_store_error(error, postgres_session.parse_url(self._url).label)

    async def dispose(self) -> None:
        """Close every connection; the object can be used again."""
        if self._engine is not None:
            await self._engine.dispose()
            self._engine = self._sessions = None
        for connection in list(self._files):
            # A connection whose user was cancelled is closed by its thread, which then tells the loop. Where the loop
            # is closed by then, the thread ends with a traceback on the terminal.
            if not connection._running:
                await asyncio.to_thread(_thread_of(connection).join)
        if self._store is not None:
            await asyncio.to_thread(self._store.close)
            self._store = None

    @property
    def conninfo(self) -> str:
        """How a driver reaches the server: as the URL says, and noticing within seconds that it has vanished."""
        from holdfast.runtime.checkpoint.postgres import session as postgres_session

        return postgres_session.parse_url(self._url).conninfo

    def _make_engine(self) -> AsyncEngine:
        if self.path is None:
            engine = create_async_engine(
                self._engine_url(is_async=True), async_creator=self._connect, pool_pre_ping=True, **self._pool
            )
            _ping_on_suspicion(engine)
            return engine
        engine = create_async_engine(self._engine_url(is_async=True), async_creator=self._open_file, **self._pool)
        event.listen(engine.sync_engine, "connect", set_pragmas)
        return engine

    async def _connect(self) -> Any:
        """Open a connection of the driver's to the server, which ends it if it holds what others wait for."""
        from psycopg import AsyncConnection

        connection = await AsyncConnection.connect(self.conninfo)
        await limit_connection(connection)
        return connection

    async def _open_file(self) -> Any:
        """Open a connection of the driver's, as SQLAlchemy does, and remember it while anybody has it."""
        from holdfast.persistence.sqlite_connection import OneWayConnection

        assert self.path is not None
        make_private_database(self.path)
        connect = functools.partial(sqlite3.connect, self.path, check_same_thread=False)
        connection = OneWayConnection(connect)
        _thread_of(connection).daemon = True
        self._files.add(connection)
        return await connection

    def _engine_url(self, *, is_async: bool) -> URL:
        if self.path is not None:
            # Given as a part, not inside a URL: a path may hold '?' and '%'.
            return URL.create("sqlite+aiosqlite" if is_async else "sqlite", database=self.path)
        return make_url(self._url).set(drivername="postgresql+psycopg")


async def limit_connection(connection: Any) -> None:
    """Let the server end what a connection of the driver's holds if its process stands still, or is gone."""
    from holdfast.runtime.checkpoint.postgres import session as postgres_session

    await connection.execute(postgres_session.limit_session(_STILL_S))
    if not connection.autocommit:
        await connection.commit()


def _ping_on_suspicion(engine: AsyncEngine) -> None:
    """Ask the server whether a connection still works only if it has said something meanwhile: what an idle one hears
    is that it is closed. Asking each time would be a transaction for every one that does something."""
    dialect: Any = engine.sync_engine.dialect
    ask = dialect.do_ping

    def ping(connection: Any) -> bool:
        return not _has_news(connection.driver_connection) or bool(ask(connection))

    dialect.do_ping = ping


def _has_news(connection: Any) -> bool:
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _thread_of(connection: Any) -> threading.Thread:
    """Return the thread a connection of aiosqlite works in; before version 0.22 the connection is the thread."""
    thread: threading.Thread = getattr(connection, "_thread", connection)
    return thread


def set_pragmas(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "busy_timeout = 30000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _sqlite_path(url: str) -> str | None:
    scheme, separator, rest = url.partition("://")
    if scheme.partition("+")[0] in ("postgresql", "postgres") and separator:
        return None
    if scheme.partition("+")[0] == "sqlite" and separator:
        return rest.removeprefix("/") or ":memory:"
    raise ConfigInvalid(
        f"{scheme or url!r} is no database holdfast can use.",
        hint="Use sqlite+aiosqlite:///path or postgresql://user@host/name.",
        key="database_url",
    )
