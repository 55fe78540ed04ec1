"""How long an abort, a pause and a shutdown of a run take, whatever the run is in the middle of.

    python -m benchmarks.interrupts [rounds]

The run is in this process and its model is a server on loopback, which answers for ever, or never. What is measured is
the time from the request to the moment when the run has stopped and is recorded so. The limit is one second.
"""

import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.engine_world import World, make_repo, phase
from tests.support.model_server import Drips, Hangs, ModelServer, asks
from tests.support.served_engine import RUN_ID, ServedEngine

LIMIT_S = 1.0
ROUNDS = 5
SUB_WORK = asks(("task", {"description": "Sub work", "subagent_type": "general-purpose"}))
STUBBORN = "trap '' TERM; : > {}; while :; do sleep 0.05; done"
MODELS: dict[str, dict[str, list[Any]]] = {
    "fast stream": {"": [Drips(pause_s=0.001)]},
    "silent model": {"": [Hangs(has_head=True)]},
    "slow head": {"": [Hangs()]},
    "subagent": {"": [SUB_WORK, Hangs()], "Sub work": [Drips(pause_s=0.001)]},
    "command": {"": [Hangs()]},
}
INTERRUPTS = ("abort", "pause", "shutdown")


@contextlib.contextmanager
def new_world() -> Iterator[World]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").mkdir()
        make_repo(folder / "repo")
        yield World(f"sqlite+aiosqlite:///{folder}/data/holdfast.db", folder)


async def measure(activity: str, interrupt: str) -> float:
    """Bring one run into the middle of something, interrupt it, and return the seconds that took."""
    with new_world() as world, ModelServer(MODELS[activity]) as server:
        await world.db.init_schema()
        served, reached = ServedEngine(world, server), world.worktree(RUN_ID) / "reached"
        setup = [["sh", "-c", STUBBORN.format("reached")]] if activity == "command" else []
        task = served.start(phase("spec", timeout_seconds=3600), setup=setup)
        calls = 2 if activity == "subagent" else 1
        while not (reached.exists() if setup else len(server.received) >= calls):
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.2)  # into the middle of it
        engine = served.open()
        began = time.perf_counter()
        if interrupt == "shutdown":
            task.cancel()
        else:
            await (engine.abort(RUN_ID) if interrupt == "abort" else engine.pause(RUN_ID))
        await asyncio.gather(task, return_exceptions=True)
        took_s = time.perf_counter() - began
        if interrupt != "abort":
            await engine.abort(RUN_ID)  # ends the command, too
        await world.close()
        return took_s


async def main(rounds: int) -> int:
    slowest = 0.0
    for activity in MODELS:
        for interrupt in INTERRUPTS:
            times = [await measure(activity, interrupt) for _ in range(rounds)]
            slowest = max(slowest, *times)
            print(f"{activity:14}{interrupt:10}{statistics.median(times):8.3f} s median{max(times):8.3f} s slowest")
    print(f"slowest of all {slowest:.3f} s; the limit is {LIMIT_S:g} s")
    return int(slowest > LIMIT_S)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(int(sys.argv[1]) if sys.argv[1:] else ROUNDS)))
