"""Schedules of flows in code, `@flow(cron=…)`: which times are due, and that each of them starts one run.

Rule: the id of a run follows from its flow and its time. So any number of processes may start a time's run, and one
that dies meanwhile is no loss: whoever does it again finds the run there.
"""

import inspect
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, get_args

from holdfast.enums import RunStatus
from holdfast.errors import ConfigInvalid
from holdfast.flows.service.cron import CronLine
from holdfast.runtime import flow_rows
from holdfast.runtime.clock import now
from holdfast.runtime.flow_rows import FlowOptions, find_open
from holdfast.runtime.stores import StoreLike, open_journal

if TYPE_CHECKING:
    from holdfast.flows.service.flow_registry import FlowDefinition

Missed = Literal["skip", "once", "all"]
Overlap = Literal["skip", "queue"]
GRACE = timedelta(seconds=60)  # a time that is this late was missed
_MOST_AT_ONCE = 100  # of the missed times of one schedule, at a look
_AT = "%Y-%m-%dT%H%MZ"  # without a colon, which parts a run from a key where people name both
_log = logging.getLogger("holdfast.flows")


def choose_times(
    cron: CronLine,
    *,
    after: datetime,
    now: datetime,
    missed: str,
    grace: timedelta = GRACE,
    tried: datetime | None = None,
) -> list[datetime]:
    """Return which of the times since the last one are to be fired now, the oldest first.

    `missed` says what becomes of those that nobody fired when they came: none, the last of them, or all. One that was
    `tried` and could not be fired was not missed: its turn lasts until the next time comes.
    """
    if missed == "all":
        return list(islice(cron.between(after, now), _MOST_AT_ONCE))
    since = max(after, now - grace) if missed == "skip" else after
    last = cron.last_until(now, after=since)
    if last is None and tried is not None and cron.next_after(tried) > now:
        last = tried
    return [] if last is None else [last]


@dataclass(frozen=True)
class FlowSchedule:
    """When a flow is started by itself."""

    cron: CronLine
    missed: Missed
    takes_time: bool
    """The flow is called with the time; otherwise with nothing but its context."""
    overlap: Overlap | None = None
    """What becomes of a time at which an earlier run is not over; `None`: both run."""


def to_schedule(
    function: Callable[..., Any],
    name: str,
    cron: str,
    *,
    zone: str = "UTC",
    missed: Missed = "skip",
    overlap: Overlap | None = None,
) -> FlowSchedule:
    """Check what is written at a flow. Raises `ScheduleInvalid`, and `ConfigInvalid` for a flow that wants more."""
    for word, value, known in (("missed", missed, get_args(Missed)), ("overlap", overlap, (None, *get_args(Overlap)))):
        if value not in known:
            raise ConfigInvalid(f"{word} of flow {name!r} is one of {', '.join(filter(None, known))}, not {value!r}.")
    signature = inspect.signature(function)
    for moments in ([datetime.now(UTC)], []):
        try:
            signature.bind(None, *moments)
        except TypeError:
            continue
        return FlowSchedule(CronLine(cron, zone), missed, takes_time=bool(moments), overlap=overlap)
    raise ConfigInvalid(
        f"Flow {name!r} is started by a schedule, so it can take its context and the time, and no more.",
        hint=f"Write def {name}(ctx: Context, at: datetime), or start it from your code.",
        flow=name,
    )


def run_id_of(flow: str, at: datetime) -> str:
    """Return the id of the run that a flow's schedule starts at a time."""
    return f"{flow}@{at.astimezone(UTC):{_AT}}"


class ScheduledFlows:
    """Starts the runs of flows that have a schedule, as their times come."""

    def __init__(self, store: StoreLike, definitions: Iterable["FlowDefinition"], *, poll_s: float) -> None:
        self._store = store
        self._flows = [(one, one.schedule) for one in definitions if one.schedule is not None]
        self._poll_s = poll_s
        self._done_until: dict[str, datetime] = {}

    async def fire_due(self) -> float:
        """Start a run for each time that has come, and return in how many seconds the next one comes.

        What cannot be started is logged and tried again; the others are not kept from starting.
        """
        left_s = self._poll_s
        for definition, schedule in self._flows:
            try:
                await self._fire(definition, schedule)
                next_at = schedule.cron.next_after(self._done_until[definition.name])
                left_s = min(left_s, next_at.timestamp() - now())
            except Exception:
                _log.exception("Flow %s could not be started by its schedule; it is tried again", definition.name)
        return left_s

    async def _fire(self, definition: "FlowDefinition", schedule: FlowSchedule) -> None:
        from holdfast.flows.service.start import start_scheduled_flow

        name, moment = definition.name, datetime.fromtimestamp(now(), UTC)
        # Before its first run nothing was missed, but for the time at which this process was just being started.
        after = self._done_until.get(name) or await self._find_last(name, schedule) or moment - GRACE
        # No name that people give a schedule begins so: theirs and this one do not wait for each other.
        options = FlowOptions(schedule=f"@{name}", is_in_line=schedule.overlap is not None)
        for at in choose_times(schedule.cron, after=after, now=moment, missed=schedule.missed):
            args, run_id = [at] if schedule.takes_time else [], run_id_of(name, at)
            if schedule.overlap != "skip" or not await self._is_any_open(f"@{name}", but=run_id):
                await start_scheduled_flow(name, args, {}, run_id=run_id, store=self._store, options=options)
            # crash: the run is there; the next process finds it as the last one.
            self._done_until[name] = at
        self._done_until[name] = moment

    async def _is_any_open(self, schedule: str, *, but: str) -> bool:
        async with open_journal(self._store) as journal:
            return await journal.query(lambda store: find_open(store, schedule, but=but)) is not None

    async def _find_last(self, name: str, schedule: FlowSchedule) -> datetime | None:
        """Find up to which time this flow's schedule is done: that of its last run in this store, and where times are
        skipped while a run is not over, that run's end."""
        async with open_journal(self._store) as journal:
            run_ids = await journal.query(lambda store: flow_rows.read_last_ids(store, name, prefix=f"{name}@"))
            last = max((at for run_id in run_ids if (at := _to_time(run_id.removeprefix(f"{name}@")))), default=None)
            if last is None or schedule.overlap != "skip":
                return last
            row = await journal.query(lambda store: flow_rows.read_row(store, run_id_of(name, last)))
        is_over = row is not None and RunStatus(row.status).is_terminal
        return max(last, datetime.fromtimestamp(row.updated_at, UTC)) if row is not None and is_over else last


def _to_time(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, _AT).replace(tzinfo=UTC)
    except ValueError:
        return None  # an id that somebody has chosen
