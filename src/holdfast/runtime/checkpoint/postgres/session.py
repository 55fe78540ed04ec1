"""Connections to Postgres that heal: where to, with which settings, when to try again, and what errors mean to a user.

Rule: a password never reaches a message. What may be tried again must be safe to do twice or find out what it did.
"""

import contextlib
import random
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.waiting import Ready, Wait

from holdfast.errors import (
    HoldfastError,
    JournalCorrupt,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnavailable,
    StoreUnreadable,
)
from holdfast.runtime.checkpoint.postgres.schema import Connection, upgrade

_T = TypeVar("_T")
LOCK_WAIT_S = 30.0
_SCHEME = re.compile(r"postgres(?:ql)?(?:\+\w+)?://")
# A peer that vanished is noticed in about six seconds, the length of a lease.
_DEFAULTS = {
    "application_name": "holdfast",
    "connect_timeout": "5",
    "keepalives": "1",
    "keepalives_idle": "3",
    "keepalives_interval": "1",
    "keepalives_count": "3",
    "tcp_user_timeout": "6000",
}
# The server notices it as soon: what a machine without power had locked is free again. A process that stands still in
# the middle of a batch of statements does not count as idle; from version 17 on the server ends its transaction.
_PEER_LIMITS = (
    "set_config('tcp_keepalives_idle', '3', false), set_config('tcp_keepalives_interval', '1', false), "
    "set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '6000', false), "
    "CASE WHEN current_setting('server_version_num')::int >= 170000 "
    "THEN set_config('transaction_timeout', '300000', false) END"
)
# libpq gives no code for a failed connection, only text; what is not known here as final is tried again.
_FINAL = re.compile(
    r"authentication failed|no password supplied|does not exist|pg_hba\.conf|permission denied|not permitted|"
    r"not currently accepting|invalid |expected authentication request|SSL .*(required|not support)",
    re.IGNORECASE,
)
# Server going down or coming up, too many clients, a standby (after a failover the primary is elsewhere), a time-out.
_LOST = {"57P01", "57P02", "57P03", "57P05", "53300", "25006", "25P03", "25P04"}
_CONFLICT = {"40001", "40P01"}


@dataclass(frozen=True)
class Target:
    """A database, and how to name it to people."""

    conninfo: str = field(repr=False)
    label: str


def parse_url(url: str) -> Target:
    """Read `postgresql://…`, a driver's name after the scheme dropped. Raises `StoreUnreadable`."""
    parts = _read_url(url)
    if parts is None:
        raise StoreUnreadable(
            "This is not the URL of a Postgres database.",
            hint="Write postgresql://user:password@host:port/database; in a password write special characters as %XX.",
        )
    known = {**_DEFAULTS, **parts, "client_encoding": "UTF8"}
    user = f"{parts['user']}@" if parts.get("user") else ""
    port = f":{parts['port']}" if parts.get("port") else ""
    label = f"postgresql://{user}{parts.get('host') or ''}{port}/{parts.get('dbname') or ''}"
    return Target(make_conninfo("", **known), label)


def _read_url(url: str) -> dict[str, Any] | None:
    """Split a URL into its parts; `None` for a wrong one, as libpq's message quotes what may be the password."""
    scheme = _SCHEME.match(url)
    if scheme is None:
        return None
    try:
        parts = conninfo_to_dict("postgresql://" + url[scheme.end() :])
    except psycopg.ProgrammingError:
        return None
    return parts if re.fullmatch(r"[\d,]*", str(parts.get("port") or "")) else None


class _SendingConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose pipelines also take what does not fit into the socket's buffer at once.

    psycopg waits for an answer alone as soon as all is queued; where the rest of a big value is still unsent then, the
    server waits for it, and both wait for ever. This can go when psycopg sends all before it waits.
    """

    def wait(self, gen: PQGen[_T], *args: Any, **options: Any) -> _T:
        is_in_pipeline = self.pgconn.pipeline_status != psycopg.pq.PipelineStatus.OFF
        return super().wait(_sending(self.pgconn, gen) if is_in_pipeline else gen, *args, **options)


def _sending(pgconn: psycopg.pq.abc.PGconn, gen: PQGen[_T]) -> PQGen[_T]:
    """Do as `gen`, and send what is unsent while it waits for an answer."""
    try:
        direction = next(gen)
        while True:
            is_unsent = direction == Wait.R and pgconn.flush() == 1
            ready = yield Wait.RW if is_unsent else direction
            if is_unsent and ready == Ready.W:
                continue
            direction = gen.send(Ready(ready & ~Ready.W) if is_unsent else ready)
    except StopIteration as end:
        value: _T = end.value
        return value


def connect(target: Target, lease_s: float) -> Connection:
    """Open a connection with the settings that the promises rest on, its store up to date."""
    try:
        connection = _SendingConnection.connect(target.conninfo, autocommit=True)
    except psycopg.OperationalError as error:
        if _FINAL.search(str(error)):
            raise StoreUnreadable(
                f"{target.label} cannot be used as a store: {_reason(error)}.",
                hint="Check the user, the password and the name of the database.",
            ) from error
        raise
    try:
        _prepare(connection, target, lease_s)
        upgrade(connection, target.label)
    except BaseException:
        connection.close()
        raise
    return connection


def check_sessions(url: str) -> None:
    """Raise `StoreUnreadable` if this is no database whose sessions last, as behind a pooler in transaction mode."""
    target = parse_url(url)
    try:
        with psycopg.connect(target.conninfo, autocommit=True) as connection:
            _prepare(connection, target, 1.0)
    except psycopg.Error as error:
        raise to_store_error(error, target.label) from error


def _prepare(connection: Connection, target: Target, lease_s: float) -> None:
    # Set for the session, so that a weaker default of server, database or role, now or after a reload, does not count.
    # An owner that stands still inside a transaction must not hold its rows for longer than its lease.
    row = connection.execute(
        "SELECT current_setting('server_encoding'), set_config('synchronous_commit', "
        "CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false), "
        "set_config('lock_timeout', %s, false), set_config('statement_timeout', '0', false), "
        f"set_config('idle_in_transaction_session_timeout', %s, false), {_PEER_LIMITS}, pg_backend_pid()",
        (to_milliseconds(LOCK_WAIT_S), to_milliseconds(lease_s)),
    ).fetchone()
    assert row is not None
    if row[0] != "UTF8":
        raise StoreUnreadable(
            f"{target.label} has the encoding {row[0]}, which cannot hold every text.",
            hint="Create the database with ENCODING 'UTF8'.",
        )
    if row[-1] != connection.info.backend_pid:
        _check_pooler(connection, target)


def _check_pooler(connection: Connection, target: Target) -> None:
    """Refuse a pooler that gives a connection another session of the server for each transaction.

    What a session is told (settings, notices, locks over several transactions) would be told to somebody else's.
    """
    with psycopg.connect(target.conninfo, autocommit=True) as other:
        pids = [each.execute("SELECT pg_backend_pid()").fetchone() for each in (connection, other) * 3]
    if pids[0] == pids[1] or len(set(pids)) > 2:  # two connections in one session, or one connection in several
        raise StoreUnreadable(
            f"{target.label} is behind a pooler in transaction mode, where a session does not last.",
            hint="Set the pooler to session mode for holdfast, or give the address of the database itself.",
        )


def limit_session(idle_s: float) -> str:
    """Return the SQL by which no session holds for long what others wait for, whatever becomes of its process."""
    return (
        f"SELECT set_config('lock_timeout', '{to_milliseconds(LOCK_WAIT_S)}', false), "
        f"set_config('idle_in_transaction_session_timeout', '{to_milliseconds(idle_s)}', false), {_PEER_LIMITS}"
    )


def to_milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))


class Session:
    """One long-lived connection, used by one thread at a time and replaced when it was lost."""

    def __init__(
        self, target: Target, *, lease_s: float, patience_s: float, on_loss: Callable[[], None] = lambda: None
    ) -> None:
        self._target = target
        self._lease_s = lease_s
        self._patience_s = patience_s
        self._on_loss = on_loss
        self._connection: Connection | None = None
        self._used_at = 0.0
        self._is_idle = False
        self.is_closed = False
        self.lock = threading.RLock()

    def run(
        self, work: Callable[[Connection], _T], *, run_id: str | None = None, patience_s: float | None = None
    ) -> _T:
        """Do `work` on a live connection; after a lost one it is called again, until patience is over."""
        patience_s = self._patience_s if patience_s is None else patience_s
        deadline = time.monotonic() + patience_s  # waiting for other threads counts too
        pause_s = 0.0
        while True:
            # Held for one try at a time: what has more patience than others keeps nobody from hearing of an outage.
            with self.lock:
                try:
                    return self._try(work)
                except psycopg.Error as error:
                    is_over = time.monotonic() + pause_s >= deadline
                    if is_lost(error):
                        self._on_loss()
                    elif error.sqlstate not in _CONFLICT:
                        is_over = True
                    if is_over:
                        raise to_store_error(error, self._target.label, run_id) from error
            time.sleep(pause_s * random.uniform(0.5, 1.5))  # noqa: S311 - spreads waiting processes, no secret
            pause_s = min(max(0.05, pause_s * 2), 1.0)

    def _try(self, work: Callable[[Connection], _T]) -> _T:
        connection = self.open()
        try:
            return work(connection)
        except BaseException:
            self._clean_up(connection)
            raise

    def open(self) -> Connection:
        """Return the connection, opened if there is none. Raises psycopg's errors as they are."""
        if self.is_closed:
            raise StoreUnreadable(f"The store {self._target.label} is closed.", hint="Open a new one.")
        if self._connection is None:
            self._connection = connect(self._target, self._lease_s)
        self._used_at, self._is_idle = time.monotonic(), False
        return self._connection

    def _clean_up(self, connection: Connection) -> None:
        """Leave no transaction open; a connection in doubt is given up."""
        try:
            if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                connection.execute("ROLLBACK")
        except psycopg.Error:
            self.drop()

    def is_usable(self) -> bool:
        """Return true unless the connection was lost, or never opened; one that was given back can be opened again."""
        return self._is_idle if self._connection is None else not self._connection.closed

    def drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()

    def drop_unused(self) -> None:
        """Close the connection unless another thread uses it; the next use opens another."""
        if self.lock.acquire(blocking=False):
            try:
                self.drop()
            finally:
                self.lock.release()

    def drop_idle(self, idle_s: float) -> None:
        """Close the connection if it was not used for so long; the next use opens another."""
        if self.is_usable() and time.monotonic() - self._used_at >= idle_s:
            self.drop_unused()
            self._is_idle = self._connection is None

    def close(self, *, is_waiting: bool = True) -> None:
        """Close the connection; one that another thread uses is waited for, or left for that thread to drop."""
        self.is_closed = True
        if is_waiting:
            with self.lock:
                self.drop()
        else:
            self.drop_unused()

    def detach_after_fork(self, keep_alive: list[Any]) -> None:
        """Leave the connection to the parent of this forked child; `keep_alive` refers to it, so it is not closed."""
        self.lock = threading.RLock()
        if self._connection is not None:
            keep_alive.append(self._connection)
            self._connection = None


def is_lost(error: psycopg.Error) -> bool:
    """Return true if the connection or the server went away, so that another connection may do better."""
    if error.sqlstate is not None:
        return is_lost_by(error.sqlstate)
    return isinstance(error, psycopg.OperationalError) and not isinstance(error, psycopg.errors.PipelineAborted)


def is_lost_by(code: str) -> bool:
    return code in _LOST or code.startswith("08")


def to_store_error(error: psycopg.Error, label: str, run_id: str | None = None) -> HoldfastError:
    """Turn Postgres' errors into ours: by code, not by text."""
    code = error.sqlstate or ""
    reason = _reason(error)
    if is_lost(error):
        return StoreUnavailable(f"{label} cannot be reached: {reason}.")
    if code == "53100":
        return StoreFull(f"{label} could not be written: {reason}.")
    if code in ("55P03", "57014") or code in _CONFLICT:
        return StoreBusy(f"{label} is locked by another session: {reason}.")
    if code in ("XX001", "XX002") and run_id is not None:
        return JournalCorrupt(f"The journal of run {run_id!r} in {label} cannot be read: {reason}.", run_id=run_id)
    if code in ("42501", "3D000", "3F000", "42P01", "42703", "XX001", "XX002") or code.startswith("28"):
        return StoreUnreadable(
            f"{label} cannot be used as a store: {reason}.",
            hint="Check that the URL names holdfast's database and that this user may create and write tables there.",
        )
    return StoreError(f"{label}: {reason}.")


def _reason(error: psycopg.Error) -> str:
    return " ".join((error.diag.message_primary or str(error)).split()).rstrip(".?")
