"""The journal of the configured store, for the commands that only read."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.runtime.events import Event


def open_configured_store() -> Any:
    """Open the store of the configured database; whoever opens it closes it."""
    from holdfast.config import load_config

    config = load_config()
    if config.database_path is not None:
        from holdfast.runtime.checkpoint.sqlite.store import SQLiteCheckpointer

        return SQLiteCheckpointer(config.database_path)
    from holdfast.runtime.stores import open_store

    return open_store(config.database_url)


def read_events(run_id: str, since: int = 0) -> "list[Event]":
    """Return the events of a run with a higher number than `since`."""
    store = open_configured_store()
    try:
        events: list[Event] = store.list_events(run_id, since)
        return events
    finally:
        store.close()
