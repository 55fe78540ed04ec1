"""The clock of flows: what time it is, and how one waits for a time. A test may put another in its place."""

import contextlib
import math
import time
from collections.abc import Iterator

MOST_OFF_S = 2.0  # of a machine's clock: more is told to people
_MAX_NAP_S = 30.0  # a long wait looks at the clock this often, since clocks jump


class FlowClock:
    """The wall clock of this machine."""

    def now(self) -> float:
        """Return the time in epoch seconds."""
        return wall_time()

    async def sleep_until(self, epoch_s: float, *, at_most_s: float = math.inf) -> None:
        """Wait for a moment; if the clock is set back meanwhile, no longer than was ever meant."""
        import asyncio  # commands that only look at the time do without

        latest = time.monotonic() + at_most_s
        while (left_s := min(epoch_s - self.now(), latest - time.monotonic())) > 0:  # noqa: ASYNC110 - waits for a time
            await asyncio.sleep(min(left_s, _MAX_NAP_S))

    async def reach(self, epoch_s: float) -> None:
        """Wait for a moment as for a time limit: whoever waits so gives a clock that can jump no reason to."""
        await self.sleep_until(epoch_s)


_current = FlowClock()
_ahead_s = 0.0


def elapsed_s() -> float:
    """Return the seconds of a clock that is never set, and that goes on while the machine sleeps if there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def wall_time() -> float:
    """Return the time in epoch seconds by this machine's clock, set right as far as it is known to be wrong."""
    return time.time() - _ahead_s


def measure_off(now: float, began: float, ended: float) -> float:
    """Return how many seconds this machine's clock is ahead of another, which said `now` between two of its times.

    It is 0 if the difference is small, or no more than the answer may have taken.
    """
    is_right = began - MOST_OFF_S <= now <= ended + MOST_OFF_S
    return 0.0 if is_right else round((began + ended) / 2 - now, 1)


def describe_off(off_s: float) -> str:
    return f"{abs(off_s):.0f} s {'ahead of' if off_s > 0 else 'behind'} the database's"


def set_right(ahead_s: float) -> None:
    """Take this much off what the machine's clock says: timers and dates go by a clock that many machines share."""
    global _ahead_s
    _ahead_s = ahead_s


def now() -> float:
    """Return the time in epoch seconds by the clock in use."""
    return _current.now()


async def sleep_until(epoch_s: float, *, at_most_s: float = math.inf) -> None:
    """Wait for a moment by the clock in use; if that is set back meanwhile, no longer than was ever meant."""
    await _current.sleep_until(epoch_s, at_most_s=at_most_s)


async def reach(epoch_s: float) -> None:
    """Wait for a moment by the clock in use, as for a time limit: nobody is in a hurry to get there."""
    await _current.reach(epoch_s)


@contextlib.contextmanager
def use_clock(clock: FlowClock) -> Iterator[None]:
    """Put another clock in place for all flows of this process, as long as the block lasts."""
    global _current
    before, _current = _current, clock
    try:
        yield
    finally:
        _current = before
