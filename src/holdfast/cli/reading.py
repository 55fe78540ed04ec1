"""Plain SQL for listings: no ORM, nothing heavier than the driver. A database that is not there is an empty one."""

import json
import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.config import Config, load_config
from holdfast.errors import ApprovalNotFound, RunNotFound, StoreUnreadable

Row = dict[str, Any]
_JSON_COLUMNS = {"error", "shown", "findings"}
_MIN_PREFIX_CHARS = 4  # shorter ones are typing errors more often than ids


def query(sql: str, params: Mapping[str, Any] | None = None, *, config: Config | None = None) -> list[Row]:
    """Rows as dictionaries; `[]` where there is no database or no table yet."""
    config = config or load_config()
    path = config.database_path
    rows = _query_sqlite(path, sql, params or {}) if path else _query_postgres(config.database_url, sql, params or {})
    return [{name: _decoded(name, value) for name, value in row.items()} for row in rows]


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
        raise StoreUnreadable(f"{path} cannot be read: {error}.") from error
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
    except psycopg.Error as error:
        from holdfast.runtime.checkpoint.postgres_session import parse_url, to_store_error

        raise to_store_error(error, parse_url(plain).shown) from error  # without the password


def _decoded(name: str, value: Any) -> Any:
    if name not in _JSON_COLUMNS or not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def find_run_id(given: str) -> str:
    """The full id for an unambiguous beginning of one. Raises `RunNotFound`."""
    ids = _find_ids("runs", given)
    if len(ids) > 1:
        raise RunNotFound(f"{given!r} is the beginning of several runs.", hint=f"Give more of it: {', '.join(ids)}.")
    if not ids:
        raise RunNotFound(f"There is no run {given!r}.", hint="See which there are: holdfast runs list")
    return ids[0]


def find_approval(given: str) -> tuple[str, str]:
    """The ids of an approval and its run, for an unambiguous beginning. Raises `ApprovalNotFound`."""
    ids = _find_ids("approvals", given)
    if len(ids) != 1:
        what = "is the beginning of several approvals" if ids else "is no approval"
        raise ApprovalNotFound(f"{given!r} {what}.", hint="See what waits: holdfast approvals")
    (row,) = query("SELECT run_id FROM approvals WHERE id = :id", {"id": ids[0]})
    return ids[0], str(row["run_id"])


def _find_ids(table: str, given: str) -> list[str]:
    # Not LIKE: what is given may hold its wildcards.
    rows = query(
        f"SELECT id FROM {table} WHERE id = :given OR substr(id, 1, :chars) = :given ORDER BY id LIMIT 5",  # noqa: S608
        {"given": given, "chars": len(given)},
    )
    ids = [str(row["id"]) for row in rows]
    if given in ids:
        return [given]
    return ids if len(given) >= _MIN_PREFIX_CHARS else []


def find_repository(run_id: str) -> Path | None:
    rows = query("SELECT repo_path FROM runs WHERE id = :id", {"id": run_id})
    return Path(rows[0]["repo_path"]) if rows else None
