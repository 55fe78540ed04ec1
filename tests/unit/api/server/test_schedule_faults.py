"""What the log of a server says while its schedules cannot be read."""

import asyncio
import contextlib
import logging
from typing import Any, cast

import pytest

from holdfast.api.options import ServerOptions
from holdfast.api.server.server import fire_for_ever
from holdfast.errors import StoreUnavailable


class FaultyClock:
    def __init__(self, fault: Exception) -> None:
        self._faults = [fault]

    async def fire_due(self, *, patience_s: float) -> int:
        if self._faults:
            raise self._faults.pop()
        raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("fault", "has_traceback"),
    [(StoreUnavailable("The database cannot be reached."), False), (RuntimeError("a fault of ours"), True)],
)
async def test_a_database_that_is_away_is_one_line_and_a_fault_of_ours_is_shown_in_full(
    caplog: pytest.LogCaptureFixture, fault: Exception, has_traceback: bool
) -> None:
    with caplog.at_level(logging.WARNING, "holdfast.api"), contextlib.suppress(asyncio.CancelledError):
        await fire_for_ever(cast(Any, FaultyClock(fault)), ServerOptions(poll_s=0.0))

    (record,) = caplog.records
    assert (bool(record.exc_info), "cannot be reached" in record.getMessage()) == (has_traceback, not has_traceback)
