"""Noticing other processes' appends on Postgres: LISTEN on a connection of its own, opened when someone waits."""

import threading
import time
from collections import deque
from collections.abc import Set
from itertools import islice

import psycopg

from holdfast.runtime.checkpoint.postgres.notices import ANY, CHANNEL, Notice, from_payload
from holdfast.runtime.checkpoint.postgres.session import Session, is_lost

_SLICE_S = 0.25  # how soon a waiting thread sees that the store was closed
_PAUSE_S = 0.2


class ChangeListener:
    """Waits for changes; after a loss it listens again and reports a change, since it may have missed one.

    Each thread hears of every change, whichever of them has read the notice.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._is_listening = False
        self._heard = 0
        self._waited_at = 0.0
        self._last: deque[Notice] = deque(maxlen=1000)
        self._seen = threading.local()

    def wait(self, timeout_s: float, but_by: int | None, of: Set[str] | None) -> bool:
        with self._session.lock:
            try:
                self._waited_at = time.monotonic() + timeout_s
                return self._wait_until(time.monotonic() + timeout_s, but_by, of)
            finally:
                if self._session.is_closed:
                    self.drop()

    def _wait_until(self, deadline: float, but_by: int | None, of: Set[str] | None) -> bool:
        while True:
            left_s = deadline - time.monotonic()
            try:
                if self._is_listening and self._has_news(but_by, of):
                    return True
                self._hear(max(0.0, min(left_s, _SLICE_S)))
            except psycopg.Error as error:
                self.drop()
                if not is_lost(error):
                    raise
                time.sleep(max(0.0, min(left_s, _PAUSE_S)))
            if left_s <= 0:
                return self._has_news(but_by, of)

    def _has_news(self, but_by: int | None, of: Set[str] | None) -> bool:
        count = self._heard - getattr(self._seen, "heard", 0)
        self._seen.heard = self._heard
        return count > len(self._last) or any(
            notice.sender != but_by and (of is None or notice.run_ids is None or not of.isdisjoint(notice.run_ids))
            for notice in islice(reversed(self._last), count)
        )

    def _hear(self, timeout_s: float) -> None:
        connection = self._session.open()
        if self._is_listening:
            heard = [from_payload(notice.payload) for notice in connection.notifies(timeout=timeout_s, stop_after=1)]
        else:
            connection.execute(f"LISTEN {CHANNEL}".encode())
            self._is_listening = True
            heard = [ANY]
        self._last.extend(heard)
        self._heard += len(heard)

    def give_back(self, idle_s: float) -> None:
        """Close the connection if nobody has waited for so long; who waits again hears of a change first."""
        if time.monotonic() - self._waited_at >= idle_s and self._session.lock.acquire(blocking=False):
            try:
                self.drop()
            finally:
                self._session.lock.release()

    def drop(self) -> None:
        self._is_listening = False
        self._session.drop()
