"""A connection of aiosqlite whose statements take one way to its thread each, instead of four.

SQLAlchemy's adapter opens a cursor, executes, fetches all rows and closes the cursor, and aiosqlite sends each of these
to the connection's thread: at the small queries of a run the ways cost more than the queries. Here `execute` brings the
rows along; what does not touch the file is done at once. While the thread still works, for somebody who was cancelled,
everything waits its turn in the thread as before.
"""

import functools
import sqlite3
from collections.abc import Callable, Iterable
from typing import Any

import aiosqlite
from aiosqlite.context import contextmanager


class OneWayCursor(aiosqlite.Cursor):
    """A cursor that has its rows once it has executed."""

    _conn: "OneWayConnection"
    _rows: list[Any] | None = None

    async def execute(self, sql: str, parameters: Iterable[Any] | None = None) -> "OneWayCursor":
        self._rows = await self._conn.do(self._execute_and_fetch, sql, parameters or ())
        return self

    def _execute_and_fetch(self, sql: str, parameters: Any) -> list[Any] | None:
        self._cursor.execute(sql, parameters)
        return self._cursor.fetchall() if self._cursor.description else None

    async def fetchall(self) -> list[Any]:
        rows, self._rows = self._rows, None
        return rows or []

    async def close(self) -> None:
        if self._conn.is_idle:
            self._cursor.close()
        else:
            await super().close()


class OneWayConnection(aiosqlite.Connection):
    """See the module. Its file is opened with `check_same_thread=False`."""

    def __init__(self, connector: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connector, iter_chunk_size=64)
        self._requests = 0  # counted on the loop
        self._results = 0  # counted in the thread

    @property
    def is_idle(self) -> bool:
        return self._requests == self._results

    async def do(self, work: Callable[..., Any], *args: Any) -> Any:
        """Do a piece of work in the thread."""
        return await self._execute(work, *args)

    async def _execute(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._requests += 1
        counted = functools.partial(self._count, fn)
        return await super()._execute(counted, *args, **kwargs)  # type: ignore[no-untyped-call]  # the driver has no types

    def _count(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        finally:
            self._results += 1

    @contextmanager
    async def cursor(self) -> aiosqlite.Cursor:
        cursor = self._conn.cursor() if self.is_idle else await self.do(self._conn.cursor)
        return OneWayCursor(self, cursor)

    async def rollback(self) -> None:
        """Roll back the current transaction; a session that has only read has none."""
        if not self.is_idle or self._conn.in_transaction:
            await super().rollback()
