"""Noticing other processes' appends on Postgres: LISTEN on a connection of its own, opened when someone waits."""

import threading
import time
from collections import deque
from itertools import islice

import psycopg

from holdfast.runtime.checkpoint.postgres.session import Session, is_lost
from holdfast.runtime.checkpoint.postgres.transaction import CHANNEL

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
        self._last: deque[int] = deque(maxlen=1000)
        """Who sent the last of the notices."""
        self._seen = threading.local()

    def wait(self, timeout_s: float, but_by: int | None) -> bool:
        with self._session.lock:
            try:
                return self._wait_until(time.monotonic() + timeout_s, but_by)
            finally:
                if self._session.is_closed:
                    self.drop()

    def _wait_until(self, deadline: float, but_by: int | None) -> bool:
        while True:
            left_s = deadline - time.monotonic()
            try:
                if self._is_listening and self._has_news(but_by):
                    return True
                self._hear(max(0.0, min(left_s, _SLICE_S)))
            except psycopg.Error as error:
                self.drop()
                if not is_lost(error):
                    raise
                time.sleep(max(0.0, min(left_s, _PAUSE_S)))
            if left_s <= 0:
                return self._has_news(but_by)

    def _has_news(self, but_by: int | None) -> bool:
        count = self._heard - getattr(self._seen, "heard", 0)
        self._seen.heard = self._heard
        return count > len(self._last) or any(pid != but_by for pid in islice(reversed(self._last), count))

    def _hear(self, timeout_s: float) -> None:
        connection = self._session.open()
        if self._is_listening:
            heard = [notice.pid for notice in connection.notifies(timeout=timeout_s, stop_after=1)]
        else:
            connection.execute(f"LISTEN {CHANNEL}".encode())
            self._is_listening = True
            heard = [0]
        self._last.extend(heard)
        self._heard += len(heard)

    def drop(self) -> None:
        self._is_listening = False
        self._session.drop()
