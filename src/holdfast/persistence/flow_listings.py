"""Flow runs as the commands list them: by plain SQL, from a store that may hold nothing but flows."""

import json
from datetime import UTC, datetime
from typing import Any

from holdfast.config import Config, load_config
from holdfast.enums import RunStatus
from holdfast.persistence.raw_sql import Row, find_driven, query
from holdfast.runtime.events import EventKind
from holdfast.runtime.flow_filter import FlowFilter

_COLUMNS = "run_id, flow, status AS state, wake_at, waits_for, parent_run_id, queue, tags, created_at, updated_at"


def list_flow_runs(matching: FlowFilter, *, limit: int = 50) -> list[Row]:
    """Return flow runs, newest first, with whether somebody drives them."""
    where, params = matching.to_sql()
    sql = f"SELECT {_COLUMNS} FROM flow_runs WHERE {where} ORDER BY created_at DESC, run_id DESC LIMIT :limit"  # noqa: S608 - ours
    rows = _query(sql, {**params, "limit": limit})
    driven = find_driven([row["run_id"] for row in rows if row["state"] == RunStatus.RUNNING])
    statuses = _read_last(EventKind.STATUS_SET, rows, RunStatus.RUNNING, RunStatus.PAUSED)
    ends = _read_last(EventKind.RUN_FAILED, rows, RunStatus.FAILED) | _read_last(
        EventKind.RUN_CANCELLED, rows, RunStatus.CANCELLED
    )
    return [
        {
            **_to_listed(row, driven),
            "status_text": str(statuses.get(row["run_id"], {}).get("text", "")),
            "end": ends.get(row["run_id"], {}),
        }
        for row in rows
    ]


def _read_last(kind: str, rows: list[Row], *states: RunStatus) -> dict[str, dict[str, Any]]:
    """Read what the last event of a kind says, of those runs that are in one of these states, by their ids."""
    run_ids = [row["run_id"] for row in rows if row["state"] in states]
    if not run_ids:
        return {}
    params = {f"id{number}": run_id for number, run_id in enumerate(run_ids)}
    names = ", ".join(f":{name}" for name in params)
    found = _query(
        f"SELECT run_id, body FROM events AS e WHERE type = :kind AND run_id IN ({names}) AND seq = "  # noqa: S608 - ours
        "(SELECT max(seq) FROM events WHERE run_id = e.run_id AND type = :kind)",
        {**params, "kind": str(kind)},
    )
    return {row["run_id"]: json.loads(row["body"])["payload"] for row in found}


def find_flow_run(run_id: str) -> Row | None:
    """Return the row of a flow run, or `None` if the id is of none."""
    rows = _query(f"SELECT {_COLUMNS} FROM flow_runs WHERE run_id = :id", {"id": run_id})  # noqa: S608 - ours
    return _to_listed(rows[0], find_driven([run_id])) if rows else None


def find_flow_ids(prefix: str, *, limit: int = 5) -> list[str]:
    """Return the ids of flow runs that begin with a text, in order."""
    rows = _query(
        "SELECT run_id FROM flow_runs WHERE run_id = :prefix OR substr(run_id, 1, :chars) = :prefix "
        "ORDER BY run_id LIMIT :limit",
        {"prefix": prefix, "chars": len(prefix), "limit": limit},
    )
    return [str(row["run_id"]) for row in rows]


def list_waiting_flows() -> list[str]:
    """Return the ids of the flow runs that may wait for a person, also while other parts of them go on."""
    rows = _query("SELECT run_id FROM flow_runs WHERE status IN ('paused', 'running') ORDER BY updated_at", {})
    return [str(row["run_id"]) for row in rows]


def _query(sql: str, params: dict[str, Any]) -> list[Row]:
    config = load_config()
    rows = query(sql, params, config=config)
    if not rows and _is_before_flows(config):
        from holdfast.runtime.stores import open_store

        open_store(str(config.database_path)).close()  # an earlier version made it; opening it brings it up to date
        rows = query(sql, params, config=config)
    return rows


def _is_before_flows(config: Config) -> bool:
    if config.database_path is None:
        return False
    rows = query("SELECT name FROM sqlite_master WHERE name IN ('journal_runs', 'flow_runs')", config=config)
    return [row["name"] for row in rows] == ["journal_runs"]


def _to_listed(row: Row, driven: set[str]) -> Row:
    return {
        **row,
        "kind": "flow",
        "tags": json.loads(row["tags"]),
        "created_at": to_time(row["created_at"]),
        "updated_at": to_time(row["updated_at"]),
        "wake_at": to_time(row["wake_at"]),
        "is_driven": row["run_id"] in driven,
    }


def to_time(epoch_s: float | None) -> str | None:
    """Return a moment as rows of workflow runs have it: ISO 8601 in UTC."""
    if epoch_s is None:
        return None
    return datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
