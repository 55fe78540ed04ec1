"""What repeats itself fills no log, and what was left out is told."""

import logging
from types import SimpleNamespace

import pytest

from holdfast.api.server import log_limit
from holdfast.api.server.log_limit import RepeatLimit, limit_repeats


class ListHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def make_logger() -> tuple[logging.Logger, ListHandler]:
    logger, handler = logging.Logger("limited"), ListHandler()
    logger.addHandler(handler)
    limit_repeats(logger)
    limit_repeats(logger)
    return logger, handler


def test_the_same_message_is_logged_a_few_times_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(log_limit, "time", SimpleNamespace(monotonic=lambda: now))
    logger, handler = make_logger()

    for number in range(100):
        logger.warning("The disk is full: %s", number)
    logger.warning("Something else")
    now = 61.0
    logger.warning("The disk is full: %s", "still")

    assert len([line for line in handler.lines if line.startswith("The disk is full")]) == 6
    assert "Something else" in handler.lines
    assert handler.lines[-1] == "The disk is full: still (95 more of these were left out before)"


def test_a_handler_has_one_limit() -> None:
    _logger, handler = make_logger()

    assert [type(known) for known in handler.filters] == [RepeatLimit]
