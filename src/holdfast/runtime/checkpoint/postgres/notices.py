"""Telling other processes which runs have new events: after the commit, over a connection of its own.

Rule: Postgres lets one transaction with a notice commit at a time, and an append must not wait in that queue. A notice
that is lost costs a reader a second, since it looks at its runs that often anyway.
"""

import contextlib
import threading
import time
from collections.abc import Iterable
from typing import NamedTuple

import psycopg

from holdfast.errors import HoldfastError
from holdfast.runtime.checkpoint.postgres.schema import Connection
from holdfast.runtime.checkpoint.postgres.session import Session
from holdfast.runtime.jsondata import from_json, to_json

CHANNEL = "holdfast_journal"
_EVERY_S = 0.02
_BUSY_EVERY_S = 0.08  # of a process that writes so much that its notices would cost a quarter of its steps
_BUSY_COUNT = 3  # appends since the last notice
_IDLE_S = 5.0  # then the connection is given back
_LAST_S = 1.0  # how long closing a store waits for its last notices
_MAX_BYTES = 7900  # the server takes 8000


class Notice(NamedTuple):
    """What was heard: who appended, and to which runs; `None` is any."""

    sender: int
    run_ids: frozenset[str] | None


ANY = Notice(0, None)
ANY_PAYLOAD = to_json(ANY)[0].decode()


def to_payload(sender: int, run_ids: Iterable[str]) -> str:
    """Write a notice; if the runs are too many to be named, one that names none."""
    payload = to_json([sender, sorted(run_ids)])[0]
    return payload.decode() if len(payload) <= _MAX_BYTES else to_json([sender, None])[0].decode()


def from_payload(payload: str) -> Notice:
    """Read a notice; what another version wrote may be about any run."""
    try:
        sender, run_ids = from_json(payload)
        return Notice(sender, None if run_ids is None else frozenset(run_ids))
    except (TypeError, ValueError):
        return ANY


class NoticeSender:
    """Gathers the runs that were appended to and names them in one notice, every 20 ms at most, or 80 if there is much.

    Its thread and its connection are there while there is something to tell.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._waiting: dict[int, set[str]] = {}
        self._count = 0
        self._is_due = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._connection: Connection | None = None
        """The one that was told not to wait for the disk."""

    def note(self, run_ids: Iterable[str], sender: int = 0) -> None:
        """Tell soon that these runs have new events; returns at once."""
        with self._lock:
            if self._is_closed:
                return
            self._waiting.setdefault(sender, set()).update(run_ids)
            self._count += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="holdfast-notices", daemon=True)
                self._thread.start()
            self._is_due.set()

    def close(self) -> None:
        """Send what waits, unless that takes long."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
            self._is_due.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_LAST_S)
        self._session.close(is_waiting=False)

    def _run(self) -> None:
        while True:
            is_idle = not self._is_due.wait(_IDLE_S)
            with self._lock:
                self._is_due.clear()
                waiting, self._waiting = self._waiting, {}
                count, self._count = self._count, 0
                is_over = self._is_closed or (is_idle and not waiting)
                if is_over:
                    self._thread = None
            if waiting:
                self._send([to_payload(sender, run_ids) for sender, run_ids in waiting.items()])
            if is_over:
                self._connection = None
                self._session.drop_unused()
                return
            time.sleep(_EVERY_S if count < _BUSY_COUNT else _BUSY_EVERY_S)

    def _send(self, payloads: list[str]) -> None:
        def notify(connection: Connection) -> None:
            if connection is not self._connection:
                # Nobody relies on a notice after a crash of the server, so it waits for no disk and no standby.
                connection.execute("SET synchronous_commit = off")
                self._connection = connection
            for payload in payloads:  # one, unless the store is used past its journal too
                connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, payload), prepare=True)

        with contextlib.suppress(HoldfastError, psycopg.Error):
            self._session.run(notify, patience_s=0)
