"""Plain SQL for listings: no ORM, nothing heavier than the driver. A database that is not there is an empty one."""

import json
import os
import re
import sqlite3
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from holdfast.config import Config, load_config
from holdfast.errors import StoreUnreadable

Row = dict[str, Any]
_JSON_COLUMNS = {"error", "shown", "findings", "definition"}


def query(sql: str, params: Mapping[str, Any] | None = None, *, config: Config | None = None) -> list[Row]:
    """Return rows as dictionaries; `[]` where there is no database or no table yet."""
    config = config or load_config()
    try:
        rows = _query(config, sql, params or {})
    except _SchemaOutdated:
        from holdfast.persistence.db import Database

        # An earlier version made it, and nothing of this one has written to it yet.
        Database(config.database_url).upgrade_tables()
        rows = _query(config, sql, params or {})
    return [{name: _decoded(name, value) for name, value in row.items()} for row in rows]


class _SchemaOutdated(StoreUnreadable):
    """A column is not there."""


def _query(config: Config, sql: str, params: Mapping[str, Any]) -> list[Row]:
    path = config.database_path
    return _query_sqlite(path, sql, params) if path else _query_postgres(config.database_url, sql, params)


def _query_sqlite(path: Path, sql: str, params: Mapping[str, Any]) -> list[Row]:
    if not path.exists():
        return []
    try:
        connection = sqlite3.connect(path, timeout=30)
        try:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(sql, params)]
        finally:
            connection.close()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return []
        outdated = "no such column" in str(error)
        raise (_SchemaOutdated if outdated else StoreUnreadable)(f"{path} cannot be read: {error}.") from error
    except sqlite3.DatabaseError as error:
        raise StoreUnreadable(f"{path} cannot be used as a store: {error}.") from error


def _query_postgres(url: str, sql: str, params: Mapping[str, Any]) -> list[Row]:
    import psycopg
    from psycopg.rows import dict_row

    plain = re.sub(r"^postgres(ql)?(\+\w+)?://", "postgresql://", url)
    try:
        with psycopg.connect(plain, row_factory=dict_row) as connection:
            return connection.execute(re.sub(r"(?<!:):(\w+)", r"%(\1)s", sql), params).fetchall()
    except psycopg.errors.UndefinedTable:
        return []
    except psycopg.errors.UndefinedColumn as error:
        raise _SchemaOutdated(f"The database cannot be read: {error}.") from error
    except psycopg.Error as error:
        from holdfast.runtime.checkpoint.postgres.session import parse_url, to_store_error

        raise to_store_error(error, parse_url(plain).shown) from error  # without the password


def _decoded(name: str, value: Any) -> Any:
    if name not in _JSON_COLUMNS or not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


_LIVING = "SELECT run_id, owner FROM journal_runs WHERE owner IS NOT NULL AND lease_until > clock_timestamp()"


def find_driven(run_ids: Collection[str], *, config: Config | None = None) -> set[str]:
    """Return those of these runs that somebody drives now; one of which that cannot be known counts as driven."""
    config = config or load_config()
    if not run_ids:
        return set()
    if config.database_path is None:
        from holdfast.runtime.checkpoint import process_owner

        rows = {str(row["run_id"]): process_owner.from_text(row["owner"]) for row in query(_LIVING, config=config)}
        return {run_id for run_id, owner in rows.items() if owner is None or not process_owner.is_dead(owner)} & set(
            run_ids
        )
    from holdfast.runtime.checkpoint.run_lock import is_held

    folder = Path(f"{os.path.realpath(config.database_path)}-locks")
    return {run_id for run_id in run_ids if is_held(folder, run_id)}
