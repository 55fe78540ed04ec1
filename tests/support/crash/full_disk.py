"""A disk without room: a limit on the size of this process's files."""

import asyncio
import resource
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.support.stores import open_store

from holdfast import Context, run_flow
from holdfast.errors import StoreFull


def fill_disk(target: str) -> None:
    """From now on no file of the store can grow, nor be written where it holds but zeros that keep room."""
    files = [path for path in Path(target).parent.rglob("*") if path.is_file() and not path.name.endswith("-shm")]
    _limit(max(len(path.read_bytes().rstrip(b"\0")) for path in files))


def make_room() -> None:
    _limit(resource.RLIM_INFINITY)


def _limit(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def fill_and_go_on(kind: str, target: str, outcome: Connection) -> None:
    """Run a flow whose disk is full after its second step, make room, and run it again on the same store."""
    store = open_store(kind, target)
    effects: Counter[str] = Counter()

    def act(name: str) -> str:
        effects[name] += 1
        if name == "two" and effects[name] == 1:
            fill_disk(target)
        return name

    async def flow(ctx: Context) -> list[str]:
        return [await ctx.step(name, act, name) for name in ("one", "two", "three")]

    def run() -> Any:
        return asyncio.run(run_flow(flow, run_id="r", store=store))

    try:
        run()
    except StoreFull:
        kinds = [str(event.kind) for event in store.list_events("r")]
        make_room()
        result = run()
        outcome.send((dict(effects), kinds, result))
