"""The operations of a flow beside steps, approvals and lanes: each is a line here and a module of its own."""

import asyncio
from collections.abc import Awaitable
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from holdfast.errors import Nondeterminism
from holdfast.flows import event_wait, recorded_values, timer
from holdfast.flows.lane import LaneCursor, Operation, check_key, current_lane
from holdfast.flows.timer import WaitRule
from holdfast.runtime.journal import Journal
from holdfast.runtime.run_log import RunLog
from holdfast.runtime.step import Interrupted

_T = TypeVar("_T")


class Operations:
    """What a flow can ask for by name, and the lane in which it is asked for."""

    def __init__(self, log: RunLog, journal: Journal, rule: WaitRule) -> None:
        self._log = log
        self._journal = journal
        self._rule = rule
        self._is_over = False

    @property
    def run_id(self) -> str:
        return self._log.run_id

    # -- time and chance ----------------------------------------------------------------------------------------------

    async def now(self) -> datetime:
        """Return the time in UTC, the same on every replay."""
        lane = self._current_lane()
        key = lane.take("value", "now")
        value = recorded_values.record(self._log, lane, key, self._rule.clock.now)
        return recorded_values.to_datetime(await self._in_lane(lane, ("value", key), value))

    async def random(self) -> float:
        """Return a number from 0 up to, but not including, 1, the same on every replay."""
        lane = self._current_lane()
        key = lane.take("value", "random")
        return await self._in_lane(
            lane, ("value", key), recorded_values.record(self._log, lane, key, recorded_values.new_number)
        )

    async def uuid(self) -> UUID:
        """Return a random UUID, the same on every replay."""
        lane = self._current_lane()
        key = lane.take("value", "uuid")
        value = recorded_values.record(self._log, lane, key, recorded_values.new_uuid)
        return UUID(await self._in_lane(lane, ("value", key), value))

    async def sleep(self, duration: float | timedelta) -> None:
        """Wait until `duration`, seconds or a `timedelta`, after the first time this line was reached.

        However often the process dies meanwhile; by the wall clock, and never longer than `duration`.
        """
        seconds = timer.to_seconds(duration, "ctx.sleep")
        lane = self._current_lane()
        key = lane.take("timer", "sleep")
        work = timer.sleep(self._log, lane, key, seconds=seconds, rule=self._rule)
        await self._in_lane(lane, ("timer", key), work)

    async def sleep_until(self, moment: datetime) -> None:
        """Wait for a moment of the wall clock: an aware `datetime`. One that has passed is no wait."""
        wake_at = timer.to_epoch(moment)
        lane = self._current_lane()
        key = lane.take("timer", "sleep")
        work = timer.sleep_for_moment(self._log, lane, key, wake_at=wake_at, rule=self._rule)
        await self._in_lane(lane, ("timer", key), work)

    # -- events -------------------------------------------------------------------------------------------------------

    async def wait_for(self, name: str, timeout: float | timedelta | None = None) -> Any:
        """Return the data of the next event of this name that `send_event` sent, in the order they were sent.

        One that came before counts. Raises `EventTimeout` if none comes within `timeout`, seconds or a `timedelta`;
        which of both happened is recorded.
        """
        check_key("wait", name)
        seconds = None if timeout is None else timer.to_seconds(timeout, "timeout of ctx.wait_for")
        lane = self._current_lane()
        key = lane.take("wait", name)
        wait = event_wait.EventWait(self._log, self._journal, lane, key, name)
        return await self._in_lane(lane, ("wait", key), wait.run(seconds, self._rule))

    # -- inside -------------------------------------------------------------------------------------------------------

    def _current_lane(self) -> LaneCursor:
        home, lane = current_lane.get((None, None))
        if lane is None or home is not self or self._is_over:
            why = "The flow is over" if self._is_over else "This is not the flow that runs here"
            raise Nondeterminism(f"{why}: nothing more can be asked for by its ctx.", hint="Use ctx in its own flow.")
        return lane

    @staticmethod
    async def _in_lane(lane: LaneCursor, what: Operation, work: Awaitable[_T]) -> _T:
        lane.doing = what
        try:
            return await work
        except Interrupted as interrupted:
            lane.interrupted = interrupted
            raise
        except asyncio.CancelledError:
            lane.cut_off = what
            raise
        finally:
            lane.doing = None
