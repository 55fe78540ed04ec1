"""The clock of flows: what time it is, and how one waits for a time. A test may put another in its place."""

import asyncio
import contextlib
import math
import time
from collections.abc import Iterator

_MAX_NAP_S = 30.0  # a long wait looks at the clock this often, since clocks jump


class FlowClock:
    """The wall clock of this machine."""

    def now(self) -> float:
        """Return the time in epoch seconds."""
        return time.time()

    async def sleep_until(self, epoch_s: float, *, at_most_s: float = math.inf) -> None:
        """Wait for a moment; if the clock is set back meanwhile, no longer than was ever meant."""
        latest = time.monotonic() + at_most_s
        while (left_s := min(epoch_s - self.now(), latest - time.monotonic())) > 0:  # noqa: ASYNC110 - waits for a time
            await asyncio.sleep(min(left_s, _MAX_NAP_S))


_current = FlowClock()


def now() -> float:
    """Return the time in epoch seconds by the clock in use."""
    return _current.now()


async def sleep_until(epoch_s: float, *, at_most_s: float = math.inf) -> None:
    """Wait for a moment by the clock in use; if that is set back meanwhile, no longer than was ever meant."""
    await _current.sleep_until(epoch_s, at_most_s=at_most_s)


@contextlib.contextmanager
def use_clock(clock: FlowClock) -> Iterator[None]:
    """Put another clock in place for all flows of this process, as long as the block lasts."""
    global _current
    before, _current = _current, clock
    try:
        yield
    finally:
        _current = before
