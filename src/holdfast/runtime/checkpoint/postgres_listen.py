"""Noticing other processes' appends on Postgres: LISTEN on a connection of its own, opened when someone waits."""

import time

import psycopg

from holdfast.runtime.checkpoint.postgres_session import Session, is_lost
from holdfast.runtime.checkpoint.postgres_tx import CHANNEL

_SLICE_S = 0.25  # how soon a waiting thread sees that the store was closed
_PAUSE_S = 0.2


class Listener:
    """Waits for changes; after a loss it listens again and reports a change, since it may have missed one."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._is_listening = False

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
                if self._has_changed(max(0.0, min(left_s, _SLICE_S)), but_by):
                    return True
            except psycopg.Error as error:
                self.drop()
                if not is_lost(error):
                    raise
                time.sleep(max(0.0, min(left_s, _PAUSE_S)))
            if left_s <= 0:
                return False

    def _has_changed(self, timeout_s: float, but_by: int | None) -> bool:
        connection = self._session.open()
        if not self._is_listening:
            connection.execute(f"LISTEN {CHANNEL}".encode())
            self._is_listening = True
            return True
        heard = [notice.pid for notice in connection.notifies(timeout=timeout_s, stop_after=1)]
        return any(pid != but_by for pid in heard)

    def drop(self) -> None:
        self._is_listening = False
        self._session.drop()
