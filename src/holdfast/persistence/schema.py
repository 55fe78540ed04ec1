"""Bringing the rows' tables up to date with Alembic, in one transaction under a lock.

Importing Alembic costs more than most commands take, so a database that is up to date is recognised without it.
"""

import threading
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, text

from holdfast.errors import StoreNewer
from holdfast.persistence.migrations import HEAD, OLDEST

_ADVISORY_LOCK = 0x686F6C64  # "hold"
_MIGRATIONS = Path(__file__).parent / "migrations"
_LOCK_WAIT_MS = 30_000  # for the write lock of SQLite
_one_at_a_time = threading.Lock()  # Alembic keeps what it works on in a global


def upgrade_rows(url: URL) -> None:
    """Apply what is missing. Raises `StoreNewer` if a newer holdfast has been here.

    Tables that are up to date are only read, so that nobody waits for a process that writes.
    """
    engine = _make_engine(url)
    try:
        with engine.connect().execution_options(is_read_only=True) as connection:
            if _is_current(connection, read_version(connection)):
                return
        with engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
            found = read_version(connection)
            if not _is_current(connection, found):
                _check_known(found)
                _migrate(connection)
                _set_oldest(connection)
            # crash: before this commit nothing has changed; after it everything has.
    finally:
        engine.dispose()


def read_version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _is_current(connection: Connection, found: str | None) -> bool:
    """Tell whether this version can work with the tables as they are.

    On a server others may be newer. An upgrade says in `holdfast_version` from which one on the older ones go on; where
    none has said so, none does.
    """
    if found is None or found <= HEAD or connection.dialect.name != "postgresql":
        return found == HEAD
    if not inspect(connection).has_table("holdfast_version"):
        return False
    oldest = connection.execute(text("SELECT to_jsonb(v) ->> 'oldest_rows' FROM holdfast_version AS v")).scalar()
    return oldest is not None and oldest <= HEAD


def _check_known(found: str | None) -> None:
    if found is not None and not list((_MIGRATIONS / "versions").glob(f"{found}_*.py")):
        raise StoreNewer(f"The database has schema {found}; this holdfast knows schemas up to {HEAD}.")


def _migrate(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    with _one_at_a_time:
        command.upgrade(config, "head")


def _set_oldest(connection: Connection) -> None:
    """Say whose processes may go on with these tables; the journal's, which are made first, have the place for it."""
    if connection.dialect.name == "postgresql" and inspect(connection).has_table("holdfast_version"):
        connection.execute(text("ALTER TABLE holdfast_version ADD COLUMN IF NOT EXISTS oldest_rows text"))
        connection.execute(text("UPDATE holdfast_version SET oldest_rows = :oldest"), {"oldest": OLDEST})


def _make_engine(url: URL) -> Engine:
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":
        # The driver's own transactions leave DDL out of them; ours begin at once and hold the write lock.
        event.listen(engine, "connect", lambda connection, _record: setattr(connection, "isolation_level", None))
        wait = f"PRAGMA busy_timeout = {_LOCK_WAIT_MS}"
        event.listen(engine, "connect", lambda connection, _record: connection.execute(wait))
        event.listen(engine, "begin", _begin)
    return engine


def _begin(connection: Connection) -> None:
    is_read_only = connection.get_execution_options().get("is_read_only", False)
    connection.exec_driver_sql("BEGIN" if is_read_only else "BEGIN IMMEDIATE")
