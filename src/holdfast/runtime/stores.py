"""From what a user names as a store to an open journal, shared by everyone in the process who names the same."""

import asyncio
import contextlib
import os
import weakref
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import StoreUnreadable
from holdfast.runtime.checkpoint.base import Checkpointer, JournalStore
from holdfast.runtime.checkpoint.plain import PlainStore
from holdfast.runtime.journal import Journal

StoreLike = str | Path | Checkpointer


@dataclass
class _Shared:
    opening: "asyncio.Future[Journal]"
    users: int = 0


_shared: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[object, _Shared]]" = weakref.WeakKeyDictionary()


def open_store(store: StoreLike) -> JournalStore:
    """Open a path or a database URL, or take a checkpointer as it is. Raises `StoreUnreadable`, `StoreNewer`."""
    if not isinstance(store, str | Path):
        return store if hasattr(store, "claim_many") else PlainStore(store)  # type: ignore[return-value]
    text = str(store)
    if text.startswith(("postgres://", "postgresql://", "postgresql+")):
        from holdfast.runtime.checkpoint.postgres import PostgresCheckpointer

        return PostgresCheckpointer(text)
    from holdfast.runtime.checkpoint.sqlite import SQLiteCheckpointer

    return SQLiteCheckpointer(_to_path(text))


def _to_path(text: str) -> str:
    scheme, separator, rest = text.partition("://")
    if not separator:
        return text
    if scheme not in ("sqlite", "sqlite+aiosqlite"):
        raise StoreUnreadable(
            f"A store cannot be opened by the URL scheme {scheme!r}.",
            hint="Use a path, sqlite:///path or postgresql://…",
        )
    return rest.removeprefix("/") or ":memory:"


@contextlib.asynccontextmanager
async def open_journal(store: StoreLike) -> AsyncIterator[Journal]:
    """A journal on `store` for as long as the block lasts; flows that name the same store share commits."""
    journals = _shared.setdefault(asyncio.get_running_loop(), {})
    name = _name(store)
    shared = journals.get(name)
    if shared is None:
        shared = journals[name] = _Shared(asyncio.get_running_loop().create_future())
        try:
            opened = await asyncio.to_thread(open_store, store) if _is_remote(store) else open_store(store)
            shared.opening.set_result(Journal(opened))
        except BaseException as error:
            del journals[name]
            shared.opening.set_exception(error)
            shared.opening.exception()  # taken note of, even if nobody else waits
            raise
    shared.users += 1
    try:
        journal = await asyncio.shield(shared.opening)
        yield journal
    finally:
        shared.users -= 1
        if shared.users == 0 and journals.get(name) is shared:
            del journals[name]
            await _close(shared, is_ours=isinstance(store, str | Path))


async def _close(shared: _Shared, *, is_ours: bool) -> None:
    if shared.opening.done() and shared.opening.exception() is None:
        journal = shared.opening.result()
        await journal.close()
        if is_ours:
            journal.store.close()


def _name(store: StoreLike) -> object:
    if not isinstance(store, str | Path):
        return id(store)
    text = str(store)
    return text if _is_remote(store) or text == ":memory:" else os.path.realpath(_to_path(text))


def _is_remote(store: StoreLike) -> bool:
    return isinstance(store, str) and store.startswith("postgres")
