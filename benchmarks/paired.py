"""holdfast and the raw limit by turns, a moment each, in one process: both meet the same moods of the disk.

holdfast's part is all of `run_flow`: opening the store, claiming, starting and ending each run.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from benchmarks.measure import RUNS, Place, Reading, reading
from benchmarks.ours_flow import closing_flow, flow, work
from benchmarks.raw import open_postgres, open_sqlite
from holdfast import Context, run_flow

_CHUNK = 100
_TURNS = 3
Flow = Callable[[Context, int], Coroutine[Any, Any, int]]


class _Raw:
    """Single-row commits, timed apart from what surrounds them."""

    def __init__(self, commit: Callable[[], object]) -> None:
        self._commit = commit
        self.wall_s = self.cpu_s = 0.0
        self.commits = 0

    def go(self, commits: int) -> None:
        with reading() as found:
            for _ in range(commits):
                self._commit()
        self.wall_s += found.wall_s
        self.cpu_s += found.cpu_s
        self.commits += commits

    def taken_out_of(self, whole: Reading) -> Reading:
        extra = {"raw_rate": self.commits / self.wall_s, "raw_cpu_s": self.cpu_s / self.commits}
        return Reading(whole.wall_s - self.wall_s, whole.cpu_s - self.cpu_s, extra)


def one_run_sqlite(place: Place) -> Reading:
    raw = _Raw(open_sqlite(place))

    async def by_turns(ctx: Context, steps: int) -> None:
        for number in range(steps):
            await ctx.step("step", work, number)
            if number % _CHUNK == _CHUNK - 1:
                raw.go(_CHUNK)

    async def go() -> Reading:
        await run_flow(flow, 50, store=place.db)
        with reading() as whole:
            await run_flow(by_turns, place.steps, store=place.db)
        return raw.taken_out_of(whole)

    return asyncio.run(go())


def many_runs_sqlite(place: Place) -> Reading:
    return asyncio.run(_many_runs(place, place.db, _Raw(open_sqlite(place))))


def many_runs_sqlite_closing(place: Place) -> Reading:
    return asyncio.run(_many_runs(place, place.db, _Raw(open_sqlite(place)), closing_flow))


def many_runs_postgres(place: Place) -> Reading:
    return asyncio.run(_many_runs(place, place.url, _Raw(open_postgres(place))))


async def _many_runs(place: Place, store: str, raw: _Raw, flow: Flow = flow) -> Reading:
    steps = place.steps // RUNS
    await asyncio.gather(*(run_flow(flow, 2, store=store) for _ in range(RUNS)))
    with reading() as whole:
        for _ in range(_TURNS):
            raw.go(_CHUNK)
            await asyncio.gather(*(run_flow(flow, steps, store=store) for _ in range(RUNS)))
            raw.go(_CHUNK)
    found = raw.taken_out_of(whole)
    return Reading(found.wall_s / _TURNS, found.cpu_s / _TURNS, found.extra)
