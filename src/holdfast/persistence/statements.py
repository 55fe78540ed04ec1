"""Row changes as statements, to be written in the transaction of the events that explain them.

Rule: a table that events explain is written here and nowhere else, each change by a function that has its name.
"""

import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from holdfast.runtime.checkpoint.base import Statement


def now_text() -> str:
    """Return the time as rows hold it: ISO 8601, UTC, sortable as text."""
    return to_time_text(datetime.now(UTC))


def to_time_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def insert(table: str, values: Mapping[str, Any], *, or_ignore_on: str | None = None) -> Statement:
    """Insert a row; with `or_ignore_on` (a unique column) one that is there already is left as it is."""
    columns = ", ".join(values)
    marks = ", ".join(f":{name}" for name in values)
    conflict = f" ON CONFLICT ({or_ignore_on}) DO NOTHING" if or_ignore_on else ""
    sql = f"INSERT INTO {table} ({columns}) VALUES ({marks}){conflict}"  # noqa: S608 - names of ours
    return Statement(sql, _to_params(values), expect=None if or_ignore_on else 1)


def update(table: str, values: Mapping[str, Any], where: Mapping[str, Any], *, expect: int | None = 1) -> Statement:
    """Change the rows that match `where` exactly; another number of rows than `expect` refuses the append."""
    changes = ", ".join(f"{name} = :{name}" for name in values)
    conditions = " AND ".join(f"{name} = :where_{name}" for name in where)
    sql = f"UPDATE {table} SET {changes} WHERE {conditions}"  # noqa: S608 - names of ours
    return Statement(sql, _to_params(values) | {f"where_{k}": v for k, v in _to_params(where).items()}, expect)


def _to_params(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _to_param(value) for name, value in values.items()}


def _to_param(value: Any) -> Any:
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return int(value)
    return str(value) if isinstance(value, str) else value  # enums become plain text


# -- runs -------------------------------------------------------------------------------------------------------------


def raise_budget(run_id: str, amount_micros: int) -> Statement:
    """Raise the limit of a run; one without a limit stays so."""
    return Statement(
        "UPDATE runs SET budget_micros = budget_micros + :amount WHERE id = :id AND budget_micros IS NOT NULL",
        {"amount": amount_micros, "id": run_id},
        expect=None,
    )


def set_wake(run_id: str) -> Statement:
    """Request that someone goes on with a run.

    Each request has a value of its own, so that whoever has served one does not take back the next.
    """
    return update("runs", {"wake": f"{now_text()} {uuid.uuid4().hex[:8]}"}, {"id": run_id})


def clear_wake(run_id: str, wake: str) -> Statement:
    """Take back the request with this value, which was served; a newer one stays."""
    return update("runs", {"wake": None}, {"id": run_id, "wake": wake}, expect=None)
