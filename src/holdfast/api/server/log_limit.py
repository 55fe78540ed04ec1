"""Logs that stay readable: what repeats itself, for a full disk or a client that knocks for ever, is left out."""

import logging
import threading
import time

_MOST_KINDS = 500


class RepeatLimit(logging.Filter):
    """Lets the same message through a few times a minute; the next one after that says how many were left out.

    Messages are the same if they are of one logger and have one text before its facts are put in.
    """

    def __init__(self, *, most: int = 5, per_s: float = 60.0) -> None:
        super().__init__()
        self._most = most
        self._per_s = per_s
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], tuple[float, int]] = {}
        """By kind of message: since when it is counted, and how often it came."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether to log a record, and add to it what was left out before it."""
        kind = (record.name, str(record.msg)[:200])
        now = time.monotonic()
        with self._lock:
            since, count = self._counts.get(kind, (now, 0))
            left_out = 0
            if now - since >= self._per_s:
                left_out, since, count = max(0, count - self._most), now, 0
            if len(self._counts) >= _MOST_KINDS:
                self._counts.clear()
            self._counts[kind] = (since, count + 1)
        if left_out:
            record.msg = f"{record.msg} ({left_out} more of these were left out before)"
        return count < self._most


def limit_repeats(logger: logging.Logger) -> None:
    """Limit what the handlers of a logger write, once."""
    for handler in logger.handlers:
        if not any(isinstance(known, RepeatLimit) for known in handler.filters):
            handler.addFilter(RepeatLimit())
