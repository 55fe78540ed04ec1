"""What `holdfast doctor` asks of a database, with nothing heavier than the driver. One that is not there is empty."""

import sqlite3
import time
from typing import Any

from holdfast.config import Config
from holdfast.persistence.raw_sql import query
from holdfast.runtime.clock import measure_off


def read_schema_version(config: Config) -> str | None:
    """Read the version of the rows' tables; `None` if there are none."""
    rows = query("SELECT version_num FROM alembic_version", config=config)
    return rows[0]["version_num"] if rows else None


def count_runs(config: Config) -> int:
    return int(query("SELECT COUNT(*) AS n FROM runs", config=config)[0]["n"])


def read_latest_update(config: Config) -> str | None:
    """Read when a run was written last; `None` if there is no run."""
    rows = query("SELECT MAX(updated_at) AS latest FROM runs", config=config)
    return rows[0]["latest"] if rows else None


def read_clock_off(config: Config) -> float:
    """Read how many seconds this machine's clock is ahead of that of a database's server; 0 if that is not much."""
    began = time.time()
    rows = query("SELECT extract(epoch FROM clock_timestamp())::float8 AS now", config=config)
    return measure_off(float(rows[0]["now"]), began, time.time()) if rows else 0.0


def read_run_states(config: Config) -> dict[str, str]:
    """Read the state of every run, by its id."""
    return {row["id"]: row["state"] for row in query("SELECT id, state FROM runs", config=config)}


def read_limit_rows(config: Config) -> list[dict[str, Any]]:
    """Read the limits that hold for all processes."""
    return query("SELECT kind, name, amount, set_at, set_by FROM limits", config=config)


def find_damage(config: Config) -> str | None:
    """Find what SQLite says is wrong with the file; `None` if nothing is, or if it is another kind of database."""
    if config.database_path is None:
        return None
    connection = sqlite3.connect(config.database_path)
    try:
        # The thorough look takes long, and some versions of SQLite see damage with the quick one where there is none.
        for pragma in ("quick_check(1)", "integrity_check(1)"):
            (answer,) = connection.execute(f"PRAGMA {pragma}").fetchone()
            if answer == "ok":
                return None
    finally:
        connection.close()
    return str(answer)
