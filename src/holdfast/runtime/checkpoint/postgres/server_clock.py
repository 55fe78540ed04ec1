"""The server's clock: all machines of a database go by it, so that a wrong one wakes no flow early or late."""

import time
from typing import Any

import psycopg

from holdfast.runtime.clock import measure_off, set_right

_EVERY_S = 60.0  # clocks are set, and drift


class ServerClock:
    """Compares the clocks when a store is opened, and now and then while runs are claimed."""

    def __init__(self) -> None:
        self._read_at = time.monotonic()

    def is_old(self) -> bool:
        return time.monotonic() - self._read_at > _EVERY_S

    def go_by(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        """Set the clock of this process's flows right by the server's."""
        began = time.time()
        row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::double precision").fetchone()
        if row is not None:
            set_right(measure_off(float(row[0]), began, time.time()))
        self._read_at = time.monotonic()
