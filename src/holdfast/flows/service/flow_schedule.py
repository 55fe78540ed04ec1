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

from holdfast.errors import ConfigInvalid
from holdfast.flows.service.cron import CronLine
from holdfast.runtime import flow_rows
from holdfast.runtime.clock import now
from holdfast.runtime.stores import StoreLike, open_journal

if TYPE_CHECKING:
    from holdfast.flows.service.flow_registry import FlowDefinition

Missed = Literal["skip", "once", "all"]
GRACE = timedelta(seconds=60)  # a time that is this late was missed
_MOST_AT_ONCE = 100  # of the missed times of one schedule, at a look
_AT = "%Y-%m-%dT%H%MZ"  # without a colon, which parts a run from a key where people name both
_log = logging.getLogger("holdfast.flows")


def choose_times(cron: CronLine, *, after: datetime, now: datetime, missed: str) -> list[datetime]:
    """Return which of the times since the last one are to be fired now, the oldest first.

    `missed` says what becomes of those that nobody fired when they came: none, the last of them, or all.
    """
    if missed == "all":
        return list(islice(cron.between(after, now), _MOST_AT_ONCE))
    since = max(after, now - GRACE) if missed == "skip" else after
    last = cron.last_until(now, after=since)
    return [] if last is None else [last]


@dataclass(frozen=True)
class FlowSchedule:
    """When a flow is started by itself."""

    cron: CronLine
    missed: Missed
    takes_time: bool
    """The flow is called with the time; otherwise with nothing but its context."""


def to_schedule(function: Callable[..., Any], name: str, cron: str, zone: str, missed: Missed) -> FlowSchedule:
    """Check what is written at a flow. Raises `ScheduleInvalid`, and `ConfigInvalid` for a flow that wants more."""
    if missed not in get_args(Missed):
        raise ConfigInvalid(f"missed of flow {name!r} is one of {', '.join(get_args(Missed))}, not {missed!r}.")
    signature = inspect.signature(function)
    for moments in ([datetime.now(UTC)], []):
        try:
            signature.bind(None, *moments)
        except TypeError:
            continue
        return FlowSchedule(CronLine(cron, zone), missed, takes_time=bool(moments))
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
        from holdfast.flows.service.start import start_flow

        name, moment = definition.name, datetime.fromtimestamp(now(), UTC)
        # Before its first run nothing was missed, but for the time at which this process was just being started.
        after = self._done_until.get(name) or await self._find_last(name) or moment - GRACE
        for at in choose_times(schedule.cron, after=after, now=moment, missed=schedule.missed):
            args = [at] if schedule.takes_time else []
            await start_flow(name, *args, run_id=run_id_of(name, at), store=self._store)
            # crash: the run is there; the next process finds it as the last one.
            self._done_until[name] = at
        self._done_until[name] = moment

    async def _find_last(self, name: str) -> datetime | None:
        """Find the time of the last run that this flow's schedule has started in this store."""
        async with open_journal(self._store) as journal:
            run_ids = await journal.query(lambda store: flow_rows.read_last_ids(store, name, prefix=f"{name}@"))
        times = [at for run_id in run_ids if (at := _to_time(run_id.removeprefix(f"{name}@")))]
        return max(times, default=None)


def _to_time(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, _AT).replace(tzinfo=UTC)
    except ValueError:
        return None  # an id that somebody has chosen
