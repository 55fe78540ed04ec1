"""Time that is skipped: flows sleep, wait and back off without any real waiting, in the order of their times."""

import asyncio
import contextlib
import heapq
import itertools
import math
import time
from collections.abc import Iterator

from holdfast.runtime.clock import FlowClock, use_clock

_QUIET_TURNS = 20  # of the event loop: whoever can go on without the clock has done so by then

_Entry = tuple[float, int, "asyncio.Future[None]"]  # when, in which order, and who is woken


class VirtualClock(FlowClock):
    """A clock that jumps to the next moment somebody waits for, as soon as nothing else is to be done.

    Only waits of flows are skipped: a step that itself sleeps takes as long as it takes, and the clock may jump
    meanwhile.
    """

    def __init__(self, start: float | None = None) -> None:
        self._now = time.time() if start is None else start
        self._waiting: list[_Entry] = []
        self._limits: list[_Entry] = []
        self._numbers = itertools.count()
        self._moving: asyncio.Task[None] | None = None
        self.skipped_s = 0.0
        """How many seconds were skipped in all."""

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Move the clock on by hand, and wake whoever waits for a moment up to then."""
        self._move_to(self._now + seconds)

    async def sleep_until(self, epoch_s: float, *, at_most_s: float = math.inf) -> None:
        moment = min(epoch_s, self._now + at_most_s)
        if moment <= self._now:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (moment, next(self._numbers), woken))
        if self._moving is None or self._moving.done():
            self._moving = asyncio.ensure_future(self._move_on())
        await woken

    async def reach(self, epoch_s: float) -> None:
        if epoch_s > self._now:
            woken = asyncio.get_running_loop().create_future()
            heapq.heappush(self._limits, (epoch_s, next(self._numbers), woken))
            await woken

    async def _move_on(self) -> None:
        while self._waiting:
            count = next(self._numbers)
            for _ in range(_QUIET_TURNS):
                await asyncio.sleep(0)
            self._waiting, self._limits = _still_waiting(self._waiting), _still_waiting(self._limits)
            if self._waiting and next(self._numbers) == count + 1:  # nobody has begun to wait meanwhile
                # A time limit on the way there is met first, and whoever it ends may not wait any more.
                self._move_to(min(self._waiting[0][0], *(entry[0] for entry in self._limits[:1]), math.inf))

    def _move_to(self, moment: float) -> None:
        self.skipped_s += max(0.0, moment - self._now)
        self._now = max(self._now, moment)
        for entries in (self._limits, self._waiting):
            while entries and entries[0][0] <= self._now:
                _, _, woken = heapq.heappop(entries)
                if not woken.done():
                    woken.set_result(None)


def _still_waiting(entries: list[_Entry]) -> list[_Entry]:
    left = [entry for entry in entries if not entry[2].done()]
    heapq.heapify(left)
    return left


@contextlib.contextmanager
def skip_time(start: float | None = None) -> Iterator[VirtualClock]:
    """Let all flows of this process skip their waits, as long as the block lasts; `start` is the time to begin at."""
    clock = VirtualClock(start)
    with use_clock(clock):
        yield clock
