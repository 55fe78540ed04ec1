"""Where journals are kept: in memory, in JSONL files, in SQLite, in Postgres."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.runtime.checkpoint.base import Checkpointer, JournalStore
    from holdfast.runtime.checkpoint.jsonl.store import JSONLCheckpointer
    from holdfast.runtime.checkpoint.memory import InMemoryCheckpointer
    from holdfast.runtime.checkpoint.postgres.store import PostgresCheckpointer
    from holdfast.runtime.checkpoint.sqlite.store import SQLiteCheckpointer

__all__ = [
    "Checkpointer",
    "InMemoryCheckpointer",
    "JSONLCheckpointer",
    "JournalStore",
    "PostgresCheckpointer",
    "SQLiteCheckpointer",
]

_HOMES = {
    "Checkpointer": "base",
    "InMemoryCheckpointer": "memory",
    "JSONLCheckpointer": "jsonl.store",
    "JournalStore": "base",
    "PostgresCheckpointer": "postgres.store",
    "SQLiteCheckpointer": "sqlite.store",
}


def __getattr__(name: str) -> Any:
    # The Postgres driver alone takes a quarter of a second to import; nobody pays for a store they do not use.
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
