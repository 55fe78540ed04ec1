"""Inserts and updates of any table, and values as rows hold them. What a table means is said by its own module."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.clock import wall_time


def now_text() -> str:
    """Return the time as rows hold it: ISO 8601, UTC, sortable as text."""
    return to_time_text(datetime.fromtimestamp(wall_time(), UTC))


def to_time_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def insert(table: str, values: Mapping[str, Any], *, or_ignore_on: str | None = None) -> Statement:
    """Insert a row; with `or_ignore_on` (a unique column) one that is there already is left as it is."""
    columns = ", ".join(values)
    marks = ", ".join(f":{name}" for name in values)
    conflict = f" ON CONFLICT ({or_ignore_on}) DO NOTHING" if or_ignore_on else ""
    sql = f"INSERT INTO {table} ({columns}) VALUES ({marks}){conflict}"  # noqa: S608 - names of ours
    return Statement(sql, to_params(values), expect=None if or_ignore_on else 1)


def update(table: str, values: Mapping[str, Any], where: Mapping[str, Any], *, expect: int | None = 1) -> Statement:
    """Change the rows that match `where` exactly; another number of rows than `expect` refuses the append."""
    changes = ", ".join(f"{name} = :{name}" for name in values)
    conditions = " AND ".join(f"{name} = :where_{name}" for name in where)
    sql = f"UPDATE {table} SET {changes} WHERE {conditions}"  # noqa: S608 - names of ours
    return Statement(sql, to_params(values) | {f"where_{k}": v for k, v in to_params(where).items()}, expect)


def to_params(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _to_param(value) for name, value in values.items()}


def _to_param(value: Any) -> Any:
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return int(value)
    return str(value) if isinstance(value, str) else value  # enums become plain text
