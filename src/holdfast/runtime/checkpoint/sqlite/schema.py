"""The tables of the runtime on SQLite, and how an older file becomes a current one.

`PRAGMA user_version` is the version; each upgrade runs in one transaction with the new number, so that a kill in the
middle leaves the file as it was.
"""

import sqlite3

from holdfast.errors import StoreNewer, StoreUnreadable

UPGRADES: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE IF NOT EXISTS events (
            run_id TEXT NOT NULL, seq INTEGER NOT NULL, type TEXT NOT NULL DEFAULT '',
            body TEXT NOT NULL DEFAULT '', hash BLOB NOT NULL DEFAULT x'',
            PRIMARY KEY (run_id, seq)) WITHOUT ROWID""",
        """CREATE TABLE IF NOT EXISTS journal_runs (
            run_id TEXT PRIMARY KEY, epoch INTEGER NOT NULL DEFAULT 0, head INTEGER NOT NULL DEFAULT 0,
            head_hash BLOB NOT NULL DEFAULT x'', status TEXT NOT NULL DEFAULT 'pending',
            owner TEXT, touched INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID""",
        "CREATE TABLE IF NOT EXISTS blobs (digest TEXT PRIMARY KEY, body BLOB NOT NULL)",
        """CREATE TABLE IF NOT EXISTS blob_refs (
            digest TEXT NOT NULL, run_id TEXT NOT NULL, PRIMARY KEY (run_id, digest)) WITHOUT ROWID""",
        "CREATE INDEX IF NOT EXISTS blob_refs_by_digest ON blob_refs (digest)",
        """CREATE TABLE IF NOT EXISTS snapshots (
            run_id TEXT PRIMARY KEY, seq INTEGER NOT NULL, body TEXT NOT NULL, hash BLOB NOT NULL)""",
    ),
    (
        # In the order of writing, with an index by run and number: a batch of many runs fills a few pages instead of
        # one per run, and a long row does not get pages of its own (docs/decisions/0010).
        "ALTER TABLE events RENAME TO events_1",
        """CREATE TABLE events (
            position INTEGER PRIMARY KEY, run_id TEXT NOT NULL, seq INTEGER NOT NULL, type TEXT NOT NULL DEFAULT '',
            body TEXT NOT NULL DEFAULT '', hash BLOB NOT NULL DEFAULT x'', UNIQUE (run_id, seq))""",
        """INSERT INTO events (run_id, seq, type, body, hash)
            SELECT e.run_id, e.seq, e.type, e.body, e.hash FROM events_1 AS e
            LEFT JOIN journal_runs AS r ON r.run_id = e.run_id ORDER BY r.touched, e.run_id, e.seq""",
        "DROP TABLE events_1",
        "ALTER TABLE journal_runs DROP COLUMN touched",
        "ALTER TABLE snapshots ADD COLUMN position INTEGER NOT NULL DEFAULT 0",
    ),
    (
        # The index of flows (`runtime/flow_rows.py`), with the runs that are there already.
        """CREATE TABLE flow_runs (
            run_id TEXT PRIMARY KEY, flow TEXT NOT NULL DEFAULT '', status TEXT NOT NULL DEFAULT 'pending',
            wake_at REAL, waits_for TEXT, parent_run_id TEXT,
            queue TEXT NOT NULL DEFAULT 'default', priority INTEGER NOT NULL DEFAULT 0,
            tags TEXT NOT NULL DEFAULT '{}', created_at REAL NOT NULL DEFAULT 0, updated_at REAL NOT NULL DEFAULT 0)
            WITHOUT ROWID""",
        "CREATE INDEX flow_runs_due ON flow_runs (wake_at) WHERE wake_at IS NOT NULL",
        """CREATE INDEX flow_runs_driven ON flow_runs (updated_at)
            WHERE status = 'running' AND wake_at IS NULL AND waits_for IS NULL""",
        "CREATE INDEX flow_runs_created ON flow_runs (created_at)",
        """INSERT INTO flow_runs (run_id, flow, status, created_at, updated_at)
            SELECT run_id, flow, status, ts, ts FROM (SELECT r.run_id, r.status,
            CASE WHEN json_valid(e.body) THEN json_extract(e.body, '$.payload.flow') END AS flow,
            CASE WHEN json_valid(e.body) THEN ifnull(json_extract(e.body, '$.ts'), 0) END AS ts
            FROM journal_runs AS r JOIN events AS e ON e.run_id = r.run_id AND e.seq = 1 AND e.type = 'run.created')
            WHERE typeof(flow) = 'text'""",
    ),
    (
        # Which schedule has started a flow (`runtime/flow_rows.py`).
        "ALTER TABLE flow_runs ADD COLUMN schedule TEXT",
        """CREATE INDEX flow_runs_scheduled ON flow_runs (schedule, created_at)
            WHERE schedule IS NOT NULL AND status IN ('pending', 'running', 'paused')""",
    ),
    (
        # When the turn came of a flow that stood in line: its time limit counts from then (`runtime/flow_line.py`).
        "ALTER TABLE flow_runs ADD COLUMN called_up_at REAL",
        """CREATE INDEX flow_runs_called_up ON flow_runs (called_up_at)
            WHERE called_up_at IS NOT NULL AND status IN ('pending', 'running', 'paused')""",
    ),
    # Where the journal ended when the run was taken from owners that had died (`Claim.takeovers`).
    ("ALTER TABLE journal_runs ADD COLUMN takeovers TEXT NOT NULL DEFAULT ''",),
    (
        # What a flow needs of who drives it (`FLOW_FORMAT`).
        "ALTER TABLE flow_runs ADD COLUMN format INTEGER NOT NULL DEFAULT 1",
    ),
)
VERSION = len(UPGRADES)


def read_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def upgrade(connection: sqlite3.Connection, path: str) -> None:
    """Bring the file up to date; many processes may do so at once. Raises `StoreNewer`, `StoreUnreadable`."""
    if read_version(connection) == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = read_version(connection)
        if found > VERSION:
            raise StoreNewer(f"{path} has store version {found}; this holdfast knows versions up to {VERSION}.")
        for statements in UPGRADES[found:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        # crash: before this line the file is as it was; after it, current. Nothing between is ever seen.
        connection.execute("COMMIT")
    except BaseException as error:
        connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode == sqlite3.SQLITE_ERROR:
            # A statement does not fit the tables that are there: they are another program's.
            message = f"{path} is a database of another program: {error}."
            raise StoreUnreadable(message, hint="Name another file; this one is as it was.") from error
        raise
