"""What the commands read with plain SQL: no ORM, nothing heavier than the driver.

A database that is not there is an empty one. A reader returns rows as dictionaries by column.
"""

import json
import re
import sqlite3
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from holdfast.config import Config, load_config
from holdfast.enums import RunStatus
from holdfast.errors import RunNotFound, StoreUnreadable

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

    from holdfast.runtime.checkpoint.postgres.session import parse_url, to_store_error

    target = parse_url(url)
    try:
        with psycopg.connect(target.conninfo, row_factory=dict_row) as connection:
            return connection.execute(re.sub(r"(?<!:):(\w+)", r"%(\1)s", sql), params).fetchall()
    except psycopg.errors.UndefinedTable:
        return []
    except psycopg.errors.UndefinedColumn as error:
        raise _SchemaOutdated(f"The database cannot be read: {error}.") from error
    except psycopg.Error as error:
        raise to_store_error(error, target.label) from error  # without the password


def _decoded(name: str, value: Any) -> Any:
    if name not in _JSON_COLUMNS or not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


LIVING = "SELECT run_id, owner FROM journal_runs WHERE owner IS NOT NULL AND lease_until > clock_timestamp()"


def find_driven(run_ids: Collection[str], *, config: Config | None = None) -> set[str]:
    """Find those of these runs that somebody drives now; one of which that cannot be known counts as driven."""
    config = config or load_config()
    if not run_ids:
        return set()
    if config.database_path is None:
        from holdfast.runtime.checkpoint import process_owner

        rows = {str(row["run_id"]): process_owner.from_text(row["owner"]) for row in query(LIVING, config=config)}
        return {run_id for run_id, owner in rows.items() if owner is None or not process_owner.is_dead(owner)} & set(
            run_ids
        )
    from holdfast.runtime.checkpoint.run_lock import find_held, lock_folder

    return find_held(lock_folder(str(config.database_path)), run_ids)


_OPEN = f"state IN ({', '.join(repr(status.value) for status in RunStatus if not status.is_terminal)})"
_SUM = "SELECT COALESCE(SUM(amount_micros), 0) FROM ledger WHERE run_id = runs.id AND"
_RUN_COLUMNS = (
    "id AS run_id, state, workflow, title, repo_path, created_at, updated_at, ended_at, error, pause_reason, "
    "queue, priority, due_at, waits_for, schedule, "
    f"verdict, merged_into, requirements_md, is_simulated, ({_SUM} is_simulated = 0) AS cost_micros, "
    f"({_SUM} is_simulated <> 0) AS simulated_micros, "
    f"({_SUM} is_simulated = 0 AND state = 'reserved') AS reserved_micros"
)
_APPROVAL_COLUMNS = (
    "id AS approval_id, run_id, phase_key, attempt, about, state, digest, requested_at, deadline_at, "
    "decided_at, action, comment, decided_by, first_by, shown"
)


class RunQuery(NamedTuple):
    """Which runs to read: every field that is set must fit."""

    state: str | None = None
    workflow: str | None = None
    repository: str | None = None
    """The path of a repository: runs that were started in a folder of it count too."""
    repo_text: str | None = None
    """A part of the repository's path."""
    text: str | None = None
    """A part of the title or the requirements."""


def read_runs(selection: RunQuery, *, limit: int) -> list[Row]:
    """Return runs, newest first, with their costs in dollars and whether somebody drives them."""
    conditions = {
        "state = :state": ("state", selection.state),
        "workflow = :workflow": ("workflow", selection.workflow),
        "(repo_path = :repo OR substr(repo_path, 1, length(:repo) + 1) = :repo || '/')": (
            "repo",
            selection.repository,
        ),
        "repo_path LIKE :repo_text": ("repo_text", _to_pattern(selection.repo_text)),
        "(title LIKE :text OR requirements_md LIKE :text)": ("text", _to_pattern(selection.text)),
    }
    filters = {sql: pair for sql, pair in conditions.items() if pair[1] is not None}
    where = f"WHERE {' AND '.join(filters)}" if filters else ""
    found = query(
        f"SELECT {_RUN_COLUMNS} FROM runs {where} ORDER BY created_at DESC, id DESC LIMIT :limit",  # noqa: S608 - ours
        {**dict(filters.values()), "limit": limit},
    )
    driven = find_driven([row["run_id"] for row in found if row["state"] == RunStatus.RUNNING])
    unanswered = sum_unanswered([row["run_id"] for row in found if row["reserved_micros"]])
    for row in found:
        row["perhaps_paid_usd"] = unanswered.get(row["run_id"], 0) / 1_000_000
        for name in ("cost", "simulated", "reserved"):
            row[f"{name}_usd"] = int(row.pop(f"{name}_micros") or 0) / 1_000_000
        row["is_simulated"] = bool(row["is_simulated"])
        row["is_driven"] = row["run_id"] in driven
    return found


def _to_pattern(text: str | None) -> str | None:
    return text and f"%{text}%"


def read_newest_runs(limit: int) -> list[Row]:
    """Return id, state, workflow and title of the newest runs."""
    return query("SELECT id, state, workflow, title FROM runs ORDER BY created_at DESC LIMIT :limit", {"limit": limit})


def read_open_runs(*, workflow: str | None = None, repo: str | None = None, limit: int | None = None) -> list[Row]:
    """Return the runs that are not over, the one changed last first; of one workflow on one repository if named."""
    conditions = {_OPEN: True, "workflow = :workflow": workflow, "repo_path = :repo": repo}
    where = " AND ".join(sql for sql, value in conditions.items() if value is not None)
    return query(
        "SELECT id, title, state, workflow, repo_path, pause_reason, updated_at FROM runs "  # noqa: S608 - ours
        f"WHERE {where} ORDER BY updated_at DESC, id {'' if limit is None else 'LIMIT :limit'}",
        {"workflow": workflow, "repo": repo, "limit": limit},
    )


def find_run(run_id: str) -> Row | None:
    """Return a run's row, or `None`."""
    return next(iter(query("SELECT * FROM runs WHERE id = :id", {"id": run_id})), None)


def get_run(run_id: str) -> Row:
    """Return a run's row. Raises `RunNotFound`."""
    row = find_run(run_id)
    if row is None:
        raise RunNotFound(f"There is no run {run_id!r}.", hint="See which there are: holdfast runs list")
    return row


def find_ids(table: Literal["runs", "approvals"], prefix: str, *, limit: int = 5) -> list[str]:
    """Return the ids that begin with a text, in order."""
    # Not LIKE: the text may hold its wildcards.
    rows = query(
        f"SELECT id FROM {table} WHERE id = :prefix OR substr(id, 1, :chars) = :prefix "  # noqa: S608 - ours
        "ORDER BY id LIMIT :limit",
        {"prefix": prefix, "chars": len(prefix), "limit": limit},
    )
    return [str(row["id"]) for row in rows]


def find_template(run_id: str) -> dict[str, Any] | None:
    """Return the workflow that a run was made from, as its definition."""
    sql = "SELECT t.definition FROM workflow_templates t JOIN runs r ON r.template_id = t.id WHERE r.id = :id"
    rows = query(sql, {"id": run_id})
    return rows[0]["definition"] if rows else None


def find_bound_persona(run_id: str, role_id: str) -> dict[str, Any] | None:
    """Return the definition of the persona that fills a role of a run."""
    rows = query(
        "SELECT p.definition FROM run_bindings b JOIN agent_personas p ON p.id = b.persona_id "
        "WHERE b.run_id = :id AND b.role_id = :role",
        {"id": run_id, "role": role_id},
    )
    return rows[0]["definition"] if rows else None


def read_phases(run_id: str) -> list[Row]:
    """Return the phases of a run in their order."""
    return query("SELECT * FROM run_phases WHERE run_id = :id ORDER BY position", {"id": run_id})


def read_phase_keys(run_id: str) -> list[str]:
    """Return the keys of a run's phases in their order."""
    rows = query("SELECT phase_key FROM run_phases WHERE run_id = :id ORDER BY position", {"id": run_id})
    return [str(row["phase_key"]) for row in rows]


def read_artifacts(run_id: str) -> list[Row]:
    """Return every version of a run's artifacts, without their texts, in the order they were written."""
    return query(
        "SELECT phase_key, attempt, turn, path, schema_id, hash, state, findings, created_at FROM artifacts "
        "WHERE run_id = :id ORDER BY created_at, attempt, turn",
        {"id": run_id},
    )


def find_artifact_text(run_id: str, phase_key: str, attempt: int, digest: str | None) -> str | None:
    """Return the text of an artifact by its hash, as an attempt at a phase handed it in."""
    rows = query(
        "SELECT content FROM artifacts WHERE run_id = :run_id AND phase_key = :phase_key AND attempt = :attempt "
        "AND hash = :hash ORDER BY turn DESC",
        {"run_id": run_id, "phase_key": phase_key, "attempt": attempt, "hash": digest},
    )
    return str(rows[0]["content"]) if rows else None


def find_last_payload(run_id: str, kind: str) -> dict[str, Any]:
    """Return the payload of a run's last event of a kind; empty if there is none."""
    return next(iter(read_payloads(run_id, kind, order="DESC LIMIT 1")), {})


def read_payloads(run_id: str, kind: str, *, having: str = "", order: Literal["", "DESC LIMIT 1"] = "") -> list[Row]:
    """Return the payloads of a run's events of a kind, in their order; only those with this text in them."""
    rows = query(
        f"SELECT body FROM events WHERE run_id = :id AND type = :kind AND body LIKE :text ORDER BY seq {order}",  # noqa: S608
        {"id": run_id, "kind": str(kind), "text": f"%{having}%"},
    )
    payloads = [json.loads(row["body"]).get("payload") for row in rows]
    return [payload for payload in payloads if isinstance(payload, dict)]


def read_approvals(
    run_id: str | None = None,
    *,
    state: str | None = None,
    of_open_runs: bool = False,
    approval_id: str | None = None,
) -> list[Row]:
    """Return the approvals that fit every argument that is set, the oldest first."""
    conditions = {
        "run_id = :run_id": run_id,
        "state = :state": state,
        "id = :approval_id": approval_id,
        f"run_id IN (SELECT id FROM runs WHERE {_OPEN})": of_open_runs or None,  # noqa: S608 - ours
    }
    where = " AND ".join(sql for sql, value in conditions.items() if value is not None)
    return query(
        f"SELECT {_APPROVAL_COLUMNS} FROM approvals "  # noqa: S608 - ours
        f"{f'WHERE {where}' if where else ''} ORDER BY requested_at",
        {"run_id": run_id, "state": state, "approval_id": approval_id},
    )


def count_waiting_approvals() -> int:
    """Return how many approvals wait for a person."""
    rows = query(
        "SELECT COUNT(*) AS n FROM approvals WHERE state = 'pending' "  # noqa: S608 - ours
        f"AND run_id IN (SELECT id FROM runs WHERE {_OPEN})"
    )
    return int(rows[0]["n"]) if rows else 0


def sum_costs(run_id: str, *columns: Literal["phase_key", "attempt", "state", "is_simulated"]) -> list[Row]:
    """Return by these columns how often a run spent something (`calls`), and how much in millionths (`total`)."""
    names = ", ".join(columns)
    return query(
        f"SELECT {names}, COUNT(*) AS calls, SUM(amount_micros) AS total FROM ledger WHERE run_id = :id "  # noqa: S608
        f"GROUP BY {names} ORDER BY {names}",
        {"id": run_id},
    )


_FOLLOWED = """EXISTS (SELECT 1 FROM ledger n WHERE n.run_id = l.run_id AND n.step_key = l.step_key
AND n.created_at > l.created_at)"""
_HELD = "FROM ledger l WHERE l.state = 'reserved' AND l.is_simulated = 0"


def sum_unanswered(run_ids: Collection[str] | None = None, *, day: str | None = None) -> dict[str, int]:
    """Return by run what is reserved for calls that are over without an answer, and so perhaps paid, in millionths.

    They are over if nobody drives the run, or if another attempt at the same call came after. Of these runs, or of all;
    of one day, or of all.
    """
    names = {f"run{number}": run_id for number, run_id in enumerate(run_ids or ())}
    conditions = {
        f"AND l.run_id IN ({', '.join(f':{name}' for name in names)})": run_ids is not None,
        "AND l.day = :day": day is not None,
    }
    if run_ids is not None and not names:
        return {}
    rows = query(
        f"SELECT l.run_id, SUM(l.amount_micros) AS held, "
        f"SUM(CASE WHEN {_FOLLOWED} THEN l.amount_micros ELSE 0 END) AS followed {_HELD} "
        f"{' '.join(sql for sql, is_set in conditions.items() if is_set)} GROUP BY l.run_id",
        {**names, "day": day},
    )
    driven = find_driven([str(row["run_id"]) for row in rows])
    return {row["run_id"]: int(row["followed" if row["run_id"] in driven else "held"] or 0) for row in rows}


def list_unanswered(run_id: str, *, limit: int) -> list[Row]:
    """Return the calls that are over without an answer, the newest first, with what is reserved for each."""
    is_over = _FOLLOWED if find_driven([run_id]) else "1 = 1"
    return query(
        f"SELECT l.id, l.step_key, l.model, l.created_at, l.amount_micros {_HELD} AND l.run_id = :id "
        f"AND {is_over} AND l.amount_micros > 0 ORDER BY l.created_at DESC LIMIT :limit",
        {"id": run_id, "limit": limit},
    )


_SUMS = (
    "SUM(CASE WHEN l.is_simulated = 0 THEN l.amount_micros ELSE 0 END) AS spent_micros, "
    "SUM(CASE WHEN l.is_simulated <> 0 THEN l.amount_micros ELSE 0 END) AS simulated_micros"
)


def sum_day(day: str) -> tuple[int, int]:
    """Return what was spent on a day, in millionths of a dollar: real money, then simulated. Deleted runs count."""
    rows = [
        row
        for table in ("ledger", "past_spending")
        for row in query(f"SELECT {_SUMS} FROM {table} l WHERE day = :day", {"day": day})  # noqa: S608 - ours
    ]
    real, simulated = (sum(int(row[name] or 0) for row in rows) for name in ("spent_micros", "simulated_micros"))
    return real, simulated


def find_day_limit(own_usd: float | None) -> float | None:
    """Return what may be spent in a day: the limit for all processes if there is one, else this one's own."""
    rows = query("SELECT amount FROM limits WHERE kind = 'day'")
    return rows[0]["amount"] / 1_000_000 if rows else own_usd


def read_run_costs(limit: int) -> list[Row]:
    """Return the newest runs that spent something, with what they may spend and what they did."""
    return query(
        f"SELECT r.id AS run_id, r.state, r.workflow, r.budget_micros, {_SUMS}, "  # noqa: S608 - ours
        "SUM(CASE WHEN l.is_simulated = 0 AND l.state = 'reserved' THEN l.amount_micros ELSE 0 END) AS held_micros "
        "FROM ledger l JOIN runs r ON r.id = l.run_id "
        "GROUP BY r.id, r.state, r.workflow, r.budget_micros, r.created_at ORDER BY r.created_at DESC LIMIT :limit",
        {"limit": limit},
    )


def sum_estimated(run_id: str) -> int:
    """Return the part of what a run spent that is estimated from the tokens of a program, in millionths."""
    from holdfast.runtime.events import EventKind  # not above: it costs the listings their start

    payloads = read_payloads(run_id, EventKind.BUDGET_SETTLED, having='"estimated"')
    return sum(int(payload["amount_micros"]) for payload in payloads if payload.get("estimated") is True)


def read_tokens() -> list[Row]:
    """Return the tokens for the API, revoked ones too, the oldest first."""
    return query(
        "SELECT id, name, role, created_at, created_by, made_with, expires_at, last_used_at, revoked_at, revoked_by "
        "FROM tokens ORDER BY created_at, id"
    )
