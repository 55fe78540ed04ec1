"""Many flows that sleep in one process: what they cost in memory and CPU while nothing happens."""

import asyncio
import time

from benchmarks.measure import Place, Reading, reading
from holdfast import Context, Runtime, flow, get_flow, start_flow

_AT_ONCE = 200
_LOOK_S = 5.0


@flow("sleeper")
async def sleeper(ctx: Context, number: int) -> int:
    await ctx.sleep(24 * 3600)
    return number


def rest(place: Place) -> Reading:
    return asyncio.run(_rest(place))


async def _rest(place: Place) -> Reading:
    """Start them, wait until all are parked, and look at the process for a while."""
    runs = [f"s-{number}" for number in range(place.steps)]
    with reading() as found:
        async with Runtime(place.db, flows=[sleeper], park_after_s=0.5) as runtime:
            for begin in range(0, len(runs), _AT_ONCE):
                part = range(begin, min(begin + _AT_ONCE, len(runs)))
                await asyncio.gather(*(start_flow(sleeper, n, run_id=runs[n], store=place.db) for n in part))
            while runtime.driven or await get_flow(runs[-1], store=place.db).status() == "pending":
                await asyncio.sleep(0.1)
            cpu, wall = time.process_time(), time.perf_counter()
            await asyncio.sleep(_LOOK_S)
            share = (time.process_time() - cpu) / (time.perf_counter() - wall)
    found.extra = {"peak_mb": _read_mb("VmHWM"), "rest_mb": _read_mb("VmRSS"), "cpu_share": share}
    return found


def _read_mb(name: str) -> float:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(name))
