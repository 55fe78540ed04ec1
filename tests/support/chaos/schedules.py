"""Schedules that fire while everything goes wrong: each of their times exactly once, one run after the other."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from sqlalchemy import text
from tests.support.chaos.client import People

from holdfast.config import load_config
from holdfast.fleet.schedules import add_schedule, get_schedule, hold_schedule, run_id_of
from holdfast.persistence.db import Database
from holdfast.persistence.schedule_table import Schedule
from holdfast.persistence.statements import to_time_text

NAMES = ("tick-one", "tick-two")
_OF_FLOW = "SELECT run_id, status FROM flow_runs WHERE flow = 'tick'"
# Those that stood in line: a worker of an earlier version starts its own at once.
_TURNS = """
SELECT f.schedule, f.run_id, (b.body::json ->> 'ts')::float8, (e.body::json ->> 'ts')::float8 FROM flow_runs AS f
JOIN events AS b ON b.run_id = f.run_id AND b.type = 'run.started'
JOIN events AS e ON e.run_id = f.run_id AND e.type = 'run.completed'
WHERE f.flow = 'tick' AND f.schedule IS NOT NULL ORDER BY f.schedule, f.created_at
"""


class Ticks:
    """Schedules of a flow that does one thing, every minute."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._since: dict[str, str] = {}
        self._until: dict[str, str] = {}

    async def begin(self) -> None:
        for name in NAMES:
            each_minute = Schedule(
                name=name, target="tick", cron="* * * * *", kind="flow", missed="all", overlap="queue"
            )
            self._since[name] = (await add_schedule(self._db, load_config(), each_minute)).last_at

    async def end(self, people: People) -> None:
        """Let them fire no more; of what they have fired the last time is known."""
        for name in NAMES:
            await people.until_done(lambda name=name: self._end(name))  # type: ignore[misc]

    async def _end(self, name: str) -> None:
        self._until[name] = (await get_schedule(self._db, name)).last_at
        await hold_schedule(self._db, name, is_paused=True)

    async def check(self) -> list[str]:
        """Every sentence of what is not as it must be."""
        async with self._db.session() as session:
            rows: Any = await session.execute(text(_OF_FLOW))
            states = {str(run_id): str(status) for run_id, status in rows}
            turns: Any = list(await session.execute(text(_TURNS)))
        found = [f"tick {run_id} is {state}" for run_id, state in states.items() if state != "completed"]
        expected = {run_id_of(name, at): (name, at) for name in NAMES for at in self._list_times(name)}
        found += [f"{name} has not fired for {at}" for run_id, (name, at) in expected.items() if run_id not in states]
        found += [
            f"tick {later[1]} has begun before {earlier[1]} of {later[0]} was over"
            for earlier, later in pairwise(turns)
            if earlier[0] == later[0] and later[2] < earlier[3]
        ]
        # One may have fired in the moment in which it was told to stop.
        late = {run_id_of(name, _next(self._until[name])) for name in NAMES}
        found += [f"run {run_id} is of no time of a schedule" for run_id in states.keys() - expected.keys() - late]
        return found

    def count(self) -> int:
        return sum(len(list(self._list_times(name))) for name in NAMES)

    def _list_times(self, name: str) -> Iterator[str]:
        at = _next(self._since[name])
        while at <= self._until[name]:
            yield at
            at = _next(at)


def _next(at: str) -> str:
    """The full minute after a time."""
    moment = datetime.fromisoformat(at)
    return to_time_text(moment.replace(second=0, microsecond=0) + timedelta(minutes=1))
