"""Durable timers: a wait that ends at a moment of the wall clock, in whichever process."""

import math
from datetime import datetime, timedelta

from holdfast.flows.lane import LaneCursor
from holdfast.runtime.clock import now, sleep_until
from holdfast.runtime.events import EventKind
from holdfast.runtime.run_log import RunLog
from holdfast.runtime.step import Parked


def to_seconds(duration: float | timedelta, what: str) -> float:
    """Return a duration in seconds. Raises `TypeError` for what is none."""
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    if isinstance(duration, bool) or not isinstance(duration, int | float) or math.isnan(duration):
        raise TypeError(f"{what} takes a number of seconds or a timedelta, not {duration!r}.")
    return duration


def to_epoch(moment: datetime) -> float:
    """Return a moment in epoch seconds. Raises `TypeError` for what is none, `ValueError` if it has no time zone."""
    if not isinstance(moment, datetime):
        raise TypeError(f"ctx.sleep_until takes a datetime, not {moment!r}.")
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise ValueError(
            f"ctx.sleep_until needs to know the time zone of {moment!r}: "
            "use datetime(…, tzinfo=UTC), moment.astimezone(), or (await ctx.now()) + timedelta(…)."
        )
    return moment.timestamp()


async def sleep(log: RunLog, lane: LaneCursor, key: str, *, seconds: float, park_after_s: float | None) -> None:
    """Wait for `seconds` from when it was first asked for, and never longer from now."""
    await _wait(log, key, await _begin(log, lane, key, now() + seconds, seconds), park_after_s, at_most_s=seconds)


async def sleep_for_moment(
    log: RunLog, lane: LaneCursor, key: str, *, wake_at: float, park_after_s: float | None
) -> None:
    """Wait until `wake_at`; what was recorded first stands."""
    seconds = max(0.0, wake_at - now())
    await _wait(log, key, await _begin(log, lane, key, wake_at, seconds), park_after_s)


async def _begin(log: RunLog, lane: LaneCursor, key: str, wake_at: float, seconds: float) -> float:
    record = log.find("timer", key, {})
    if record is not None:
        return record.wake_at
    await log.append(log.event(EventKind.TIMER_STARTED, lane.lane_id, key=key, wake_at=wake_at, seconds=seconds))
    return wake_at


async def _wait(
    log: RunLog, key: str, wake_at: float, park_after_s: float | None, *, at_most_s: float = math.inf
) -> None:
    if park_after_s is not None and wake_at - now() > park_after_s:
        raise Parked(key, wake_at, run_ids=[log.run_id])
    await sleep_until(wake_at, at_most_s=at_most_s)
