"""The tables of the runtime on Postgres, and how an older database becomes a current one.

The version is one row of `holdfast_version`; all upgrades and the new number are one transaction under an advisory
lock, so that many processes may try at once and a kill in the middle leaves the database as it was.
"""

from typing import Any, LiteralString

import psycopg

from holdfast.errors import StoreNewer, StoreUnreadable

Connection = psycopg.Connection[tuple[Any, ...]]

UPGRADES: tuple[tuple[LiteralString, ...], ...] = (
    (
        # Collation "C": run ids are compared as bytes, the same on every server and after every upgrade of its library.
        """CREATE TABLE events (
            run_id text COLLATE "C" NOT NULL, seq bigint NOT NULL, type text NOT NULL DEFAULT '',
            body text NOT NULL DEFAULT '', hash bytea NOT NULL DEFAULT '',
            PRIMARY KEY (run_id, seq))""",
        # Updated by every append and never by an indexed column: room in the page keeps these updates in place.
        """CREATE TABLE journal_runs (
            run_id text COLLATE "C" PRIMARY KEY, epoch bigint NOT NULL DEFAULT 0, head bigint NOT NULL DEFAULT 0,
            head_hash bytea NOT NULL DEFAULT '', status text NOT NULL DEFAULT 'pending',
            owner text, lease_until timestamptz, touched bigint NOT NULL DEFAULT 0) WITH (fillfactor = 70)""",
        # The order of writing over all machines, whatever their clocks say.
        "CREATE SEQUENCE journal_touched OWNED BY journal_runs.touched",
        'CREATE TABLE blobs (digest text COLLATE "C" PRIMARY KEY, body bytea NOT NULL)',
        """CREATE TABLE blob_refs (
            digest text COLLATE "C" NOT NULL, run_id text COLLATE "C" NOT NULL, PRIMARY KEY (run_id, digest))""",
        "CREATE INDEX blob_refs_by_digest ON blob_refs (digest)",
        """CREATE TABLE snapshots (
            run_id text COLLATE "C" PRIMARY KEY, seq bigint NOT NULL, body text NOT NULL, hash bytea NOT NULL)""",
    ),
    (
        # The index of flows (`runtime/flow_rows.py`), with the runs that are there already.
        """CREATE TABLE flow_runs (
            run_id text COLLATE "C" PRIMARY KEY, flow text NOT NULL DEFAULT '', status text NOT NULL DEFAULT 'pending',
            wake_at double precision, waits_for text, parent_run_id text COLLATE "C",
            queue text NOT NULL DEFAULT 'default', priority bigint NOT NULL DEFAULT 0, tags text NOT NULL DEFAULT '{}',
            created_at double precision NOT NULL DEFAULT 0, updated_at double precision NOT NULL DEFAULT 0)""",
        "CREATE INDEX flow_runs_due ON flow_runs (wake_at) WHERE wake_at IS NOT NULL",
        """CREATE INDEX flow_runs_driven ON flow_runs (updated_at)
            WHERE status = 'running' AND wake_at IS NULL AND waits_for IS NULL""",
        "CREATE INDEX flow_runs_created ON flow_runs (created_at)",
        # Postgres reads no JSON with a NUL in it, wherever that is; a blank takes its place, also behind a backslash.
        """INSERT INTO flow_runs (run_id, flow, status, created_at, updated_at)
            SELECT run_id, body->'payload'->>'flow', status, coalesce((body->>'ts')::double precision, 0),
            coalesce((body->>'ts')::double precision, 0) FROM (SELECT r.run_id, r.status,
            replace(e.body, '\\u0000', '\\u0020')::json AS body
            FROM journal_runs AS r JOIN events AS e ON e.run_id = r.run_id AND e.seq = 1 AND e.type = 'run.created')
            AS created WHERE body->'payload'->>'flow' IS NOT NULL""",
    ),
    (
        # Which schedule has started a flow (`runtime/flow_rows.py`).
        'ALTER TABLE flow_runs ADD COLUMN schedule text COLLATE "C"',
        """CREATE INDEX flow_runs_scheduled ON flow_runs (schedule, created_at)
            WHERE schedule IS NOT NULL AND status IN ('pending', 'running', 'paused')""",
    ),
    (
        # When the turn came of a flow that stood in line: its time limit counts from then (`runtime/flow_line.py`).
        "ALTER TABLE flow_runs ADD COLUMN called_up_at double precision",
        """CREATE INDEX flow_runs_called_up ON flow_runs (called_up_at)
            WHERE called_up_at IS NOT NULL AND status IN ('pending', 'running', 'paused')""",
    ),
    # Where the journal ended when the run was taken from owners that had died (`Claim.takeovers`).
    ("ALTER TABLE journal_runs ADD COLUMN takeovers bigint[]",),
    (
        # What a flow needs of who drives it (`FLOW_FORMAT`).
        "ALTER TABLE flow_runs ADD COLUMN format bigint NOT NULL DEFAULT 1",
    ),
)
VERSION = len(UPGRADES)
OLDEST = 2  # whose processes go on beside this one; an upgrade that does more than add raises it to its own
_LOCK = 0x686F6C6466617374  # "holdfast"


def read_version(connection: Connection) -> int:
    """Read the database's version; 0 if it holds no store. Works inside and outside of a transaction."""
    if connection.execute("SELECT to_regclass('holdfast_version') IS NULL").fetchone() == (True,):
        return 0
    row = connection.execute("SELECT version FROM holdfast_version").fetchone()
    return int(row[0]) if row else 0


def upgrade(connection: Connection, label: str) -> None:
    """Bring the database up to date; many processes may do so at once. Raises `StoreNewer`, `StoreUnreadable`.

    On an error the connection is of no further use.
    """
    if _is_current(connection, read_version(connection), label):
        return
    # Taken before the transaction begins, not inside it: a session looks again at what it has cached about tables that
    # do not exist only when a transaction begins. A killed process gives the lock up with its session.
    connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
    connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
    found = read_version(connection)
    if not _is_current(connection, found, label):
        try:
            _apply(connection, found)
        except psycopg.errors.DuplicateTable as error:
            raise StoreUnreadable(
                f"{label} holds tables of another program under holdfast's names: {error.diag.message_primary}.",
                hint="Give holdfast a database or a schema of its own.",
            ) from error
    # crash: before this line the database is as it was; after it, current. Nothing between is ever seen.
    connection.execute("COMMIT")
    connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))


def _apply(connection: Connection, found: int) -> None:
    for statements in UPGRADES[found:]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(
        "CREATE TABLE IF NOT EXISTS holdfast_version (is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only), "
        "version integer NOT NULL)"
    )
    connection.execute("ALTER TABLE holdfast_version ADD COLUMN IF NOT EXISTS oldest integer")
    connection.execute(
        "INSERT INTO holdfast_version (version, oldest) VALUES (%s, %s) ON CONFLICT (is_only) "
        "DO UPDATE SET version = excluded.version, oldest = excluded.oldest",
        (VERSION, OLDEST),
    )


def _is_current(connection: Connection, found: int, label: str) -> bool:
    if found > VERSION and not _read_oldest(connection, found) <= VERSION:
        raise StoreNewer(f"{label} has store version {found}; this holdfast knows versions up to {VERSION}.")
    return found >= VERSION


def _read_oldest(connection: Connection, found: int) -> int:
    """Read the oldest version that may still work here; a database that was last upgraded long ago does not say it."""
    row = connection.execute("SELECT to_jsonb(v) ->> 'oldest' FROM holdfast_version AS v").fetchone()
    return int(row[0]) if row and row[0] is not None else found
