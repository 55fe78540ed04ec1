"""When a worker takes back the request to go on that made a run due."""

import asyncio
import contextlib
from typing import Any, cast

import pytest

from holdfast.errors import HoldfastError, LeaseLost, RunAlreadyTerminal, RunBusy, RunWaits, StoreUnavailable
from holdfast.fleet.run_drive import WorkflowDrive
from holdfast.persistence.listings import DueRun
from holdfast.runtime.step import Drained


class RowsJournal:
    """A journal that takes row changes alone."""

    def __init__(self) -> None:
        self.changed = 0

    async def append(self, run_id: str, events: list[Any], *, rows: list[Any]) -> None:
        self.changed += len(rows)


class EndingEngine:
    """An engine whose drives end in one way."""

    def __init__(self, end: BaseException | None) -> None:
        self._end = end

    async def drive_due(self, run_id: str) -> None:
        if self._end is not None:
            raise self._end


async def count_changes(end: BaseException | None) -> int:
    """Drive a run that somebody asked to go on, and count how often that is taken back."""
    journal, run = RowsJournal(), DueRun("run", "paused", "/repository", "asked at noon")
    with contextlib.suppress(BaseException):
        await WorkflowDrive(cast(Any, journal), cast(Any, EndingEngine(end)), run).run()
    return journal.changed


@pytest.mark.parametrize(
    "end",
    [
        RunBusy("Another has it."),
        LeaseLost("Another has it."),
        RunWaits("No place is free."),
        StoreUnavailable("The database is away."),
        asyncio.CancelledError(),
        Drained("The worker ends."),
    ],
    ids=lambda end: type(end).__name__,
)
async def test_a_request_stays_for_whoever_drives_the_run_next(end: BaseException) -> None:
    assert await count_changes(end) == 0


@pytest.mark.parametrize(
    "end",
    [None, RunAlreadyTerminal("It is over."), HoldfastError("It can never go on.")],
    ids=lambda end: type(end).__name__,
)
async def test_a_request_is_taken_back_when_it_was_served_or_cannot_be(end: BaseException | None) -> None:
    assert await count_changes(end) == 1
