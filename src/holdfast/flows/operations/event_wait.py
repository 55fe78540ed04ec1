"""Events that are sent to a run from outside: `send_event` keeps one in its journal, `ctx.wait_for` reads it there."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any

from holdfast.enums import RunStatus
from holdfast.errors import EventTimeout, RunAlreadyTerminal
from holdfast.flows.lane import LaneCursor, check_key
from holdfast.runtime import flow_rows
from holdfast.runtime.clock import now, sleep_until
from holdfast.runtime.events import EventKind, create_event
from holdfast.runtime.flow_rows import rows_of
from holdfast.runtime.journal import Journal
from holdfast.runtime.jsondata import to_json
from holdfast.runtime.records import Record, Records, StepState
from holdfast.runtime.run_log import RunLog
from holdfast.runtime.step import Parked
from holdfast.runtime.stores import StoreLike, no_such_run, open_journal


async def send_event(
    run_id: str, name: str, data: Any = None, *, store: StoreLike = "holdfast.db", dedup_id: str | None = None
) -> None:
    """Send an event to a run, whether it waits for it already or not: `ctx.wait_for(name)` returns `data`.

    When this returns the event is durable. Events of one name are read in the order they came. A second one with the
    same `dedup_id` changes nothing, also after the end of the run. Raises `RunNotFound`, `RunAlreadyTerminal`,
    `PayloadInvalid`.
    """
    check_key("wait", name)
    if dedup_id is not None and not isinstance(dedup_id, str):
        raise TypeError(f"dedup_id is a string, not {dedup_id!r}.")
    content = to_json(data, f"the data of event {name!r}")[1]
    async with open_journal(store) as journal:
        records = Records(await journal.read(run_id) if await journal.read_head(run_id) else ())
        if not records.last_seq:
            raise no_such_run(journal.store, run_id)
        if dedup_id is not None and records.inbox.has_seen(dedup_id):
            return  # also if the run is over: who sends it again does not know that the first one has arrived
        is_over = isinstance(records.status, RunStatus) and records.status.is_terminal
        if is_over and not records.is_retry_requested:
            raise RunAlreadyTerminal(f"Run {run_id!r} is {records.status}: it reads no more events.", run_id=run_id)
        # Two senders with one dedup_id may both come here. Both are written then, and whoever reads takes the first.
        payload = {"name": name, "data": content} | ({} if dedup_id is None else {"dedup_id": dedup_id})
        event = create_event(run_id, EventKind.EVENT_RECEIVED, **payload)
        await journal.append(run_id, [event], rows=rows_of(journal, flow_rows.due(run_id)))


def join_names(names: Sequence[str]) -> str:
    """Return what a wait for one of these events is called: by their order, which is part of the flow's code."""
    return " or ".join(names)


class EventWait:
    """One wait of a flow for an event of one of some names, by the lane and key where it was asked for."""

    def __init__(self, log: RunLog, journal: Journal, lane: LaneCursor, key: str, names: Sequence[str]) -> None:
        self._log = log
        self._journal = journal
        self._lane = lane
        self._key = key
        self._names = names
        self._name = join_names(names)

    async def run(self, timeout_s: float | None, park_after_s: float | None) -> tuple[str, Any]:
        """Wait, and return the name and the data of the event. Raises `EventTimeout`."""
        record = self._log.find("wait", self._key, {})
        if record is not None and record.state is StepState.COMPLETED:
            return record.event_name, record.result
        if record is not None and record.state is StepState.FAILED:
            raise self._expired(record.error.get("seconds"))
        if record is None and (found := self._log.records.inbox.take(*self._names)) is not None:
            return await self._complete(*found)
        deadline = await self._begin(record, timeout_s)
        return await self._wait(deadline, timeout_s, park_after_s)

    async def _begin(self, record: Record | None, timeout_s: float | None) -> float:
        """Record that the flow waits, once, and return until when."""
        if record is None:
            limit = {} if timeout_s is None else {"wake_at": now() + timeout_s, "seconds": timeout_s}
            event = self._log.event(EventKind.WAIT_STARTED, self._lane.lane_id, key=self._key, name=self._name, **limit)
            await self._log.append(event)
            return limit.get("wake_at", math.inf)
        return record.wake_at or math.inf

    async def _wait(self, deadline: float, timeout_s: float | None, park_after_s: float | None) -> tuple[str, Any]:
        woken = asyncio.Event()
        park_at = math.inf if park_after_s is None else now() + park_after_s
        with self._journal.listening(self._log.run_id, lambda _head: woken.set()):
            while True:
                woken.clear()
                is_late = now() >= deadline
                # The journal is read once more before a wait is given up: what was sent in time counts.
                if is_late or self._log.is_behind():
                    await self._log.catch_up()
                if (found := self._log.records.inbox.take(*self._names)) is not None:
                    return await self._complete(*found)
                if is_late:
                    return await self._expire(timeout_s)
                if now() >= park_at:
                    raise Parked(self._key, None if deadline == math.inf else deadline, run_ids=[self._log.run_id])
                await self._nap(woken, min(deadline, park_at))

    @staticmethod
    async def _nap(woken: asyncio.Event, until: float) -> None:
        """Sleep until the journal has grown, or until a moment if there is one."""
        if until == math.inf:
            await woken.wait()
            return
        tasks = [asyncio.ensure_future(woken.wait()), asyncio.ensure_future(sleep_until(until))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    async def _complete(self, seq: int, name: str, data: Any) -> tuple[str, Any]:
        await self._log.append(
            self._log.event(EventKind.WAIT_COMPLETED, self._lane.lane_id, key=self._key, name=name, event=seq)
        )
        # crash: before this the event is unread, and whoever goes on reads it; after it, it is this wait's for ever.
        return name, data

    async def _expire(self, timeout_s: float | None) -> tuple[str, Any]:
        error = {"seconds": timeout_s}
        await self._log.append(
            self._log.event(EventKind.WAIT_EXPIRED, self._lane.lane_id, key=self._key, name=self._name, error=error)
        )
        raise self._expired(timeout_s)

    def _expired(self, seconds: Any) -> EventTimeout:
        return EventTimeout(
            f"No event {self._name!r} came to run {self._log.run_id!r} within {seconds} s.",
            run_id=self._log.run_id,
            name=self._name,
        )
