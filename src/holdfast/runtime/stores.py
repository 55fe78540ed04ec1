"""From what a user names as a store to an open journal, shared by everyone in the process who names the same;
and reading from it in the middle of a run, where a store that is away is no fault of the run.
"""

import asyncio
import contextlib
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from holdfast.errors import RunNotFound, StoreBusy, StoreError, StoreUnavailable, StoreUnreadable
from holdfast.runtime.checkpoint.adapter import PlainStore
from holdfast.runtime.checkpoint.base import Checkpointer, JournalStore
from holdfast.runtime.events import Event
from holdfast.runtime.journal import Journal
from holdfast.runtime.step import Stopped

_T = TypeVar("_T")
StoreLike = str | Path | Checkpointer
_AGAIN_S = 0.25  # until a store that is away is asked again
_POSTGRES = ("postgres://", "postgresql://", "postgresql+")


@dataclass
class _Shared:
    opening: "asyncio.Task[Journal]"
    users: int = 0


_shared: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[object, _Shared]]" = weakref.WeakKeyDictionary()


def open_store(store: StoreLike) -> JournalStore:
    """Open a path or a database URL, or take a checkpointer as it is. Raises `StoreUnreadable`, `StoreNewer`."""
    if not isinstance(store, str | Path):
        if not (hasattr(store, "save_event") and hasattr(store, "list_events")):
            raise TypeError(f"A store is a path, a database URL or a Checkpointer, not {store!r}.")
        return store if hasattr(store, "claim_many") else PlainStore(store)  # type: ignore[return-value]
    text = str(store)
    if text.startswith(_POSTGRES):
        from holdfast.runtime.checkpoint.postgres.store import PostgresCheckpointer

        return PostgresCheckpointer(text)
    from holdfast.runtime.checkpoint.sqlite.store import SQLiteCheckpointer

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


def _describe(store: object) -> str:
    """Say which store it is, without a password: a file, a database, or the class of one that has no name."""
    label = str(getattr(store, "label", ""))
    return {"": type(getattr(store, "inner", store)).__name__, ":memory:": "a store in memory"}.get(label, label)


def no_such_run(store: object, run_id: str) -> RunNotFound:
    """Return the error that names the store in which a run was looked for."""
    where = _describe(store)
    return RunNotFound(f"There is no run {run_id!r} in {where}.", run_id=run_id, store=where)


@contextlib.asynccontextmanager
async def open_journal(store: StoreLike) -> AsyncIterator[Journal]:
    """Open a journal on `store` for as long as the block lasts; flows that name the same store share commits."""
    journals = _shared.setdefault(asyncio.get_running_loop(), {})
    name = _name(store)
    shared = journals.get(name)
    if shared is None:
        # A task of its own: whoever asked first may be cancelled while others wait for the same store.
        shared = journals[name] = _Shared(asyncio.get_running_loop().create_task(_open(store)))
    shared.users += 1
    try:
        journal = await asyncio.shield(shared.opening)
        yield journal
    finally:
        shared.users -= 1
        if shared.users == 0:
            del journals[name]
            await _close(shared, is_ours=isinstance(store, str | Path))


async def _open(store: StoreLike) -> Journal:
    return Journal(await asyncio.to_thread(open_store, store) if _is_remote(store) else open_store(store))


async def _close(shared: _Shared, *, is_ours: bool) -> None:
    if shared.opening.cancelled():
        return
    with contextlib.suppress(Exception):  # whoever waited for it was told
        journal = await shared.opening
        await journal.close()
        if is_ours:
            journal.store.close()


def _name(store: StoreLike) -> object:
    if not isinstance(store, str | Path):
        return id(store)
    if _is_remote(store):
        return store
    path = _to_path(str(store))
    return path if path == ":memory:" else _resolve(path)


_resolved: dict[str, tuple[tuple[int, int], str]] = {}


def _resolve(path: str) -> str:
    """Return what `realpath` returns; by one look at the file, if this path has led to the same one before."""
    try:
        found = os.stat(path)  # noqa: PTH116 - each run comes here
    except OSError:
        return os.path.realpath(path)
    file = (found.st_dev, found.st_ino)
    known = _resolved.get(path)
    if known is None or known[0] != file:
        if len(_resolved) > 100:
            _resolved.clear()
        known = _resolved[path] = (file, os.path.realpath(path))
    return known[1]


def _is_remote(store: StoreLike) -> bool:
    return isinstance(store, str) and store.startswith(_POSTGRES)


async def read_for_owner(journal: Journal, read: Callable[[], Awaitable[_T]]) -> _T:
    """Read between two steps of a run; wait for a store that is away for as long as results wait to be recorded.

    Raises `Stopped` after that: any other error would be taken for one of the agent, the phase or the flow, and end the
    run, which is to stay under way for whoever goes on with it.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + journal.owner_patience_s
    while True:
        try:
            return await read()
        except StoreError as error:
            if not isinstance(error, StoreUnavailable | StoreBusy) or loop.time() >= deadline:
                raise Stopped(error) from error
        await asyncio.sleep(_AGAIN_S)


async def read_events(journal: Journal, run_id: str, after: int = 0) -> list[Event]:
    """Read the events of a run after this number, as `read_for_owner` does."""
    return await read_for_owner(journal, lambda: journal.read(run_id, after))
