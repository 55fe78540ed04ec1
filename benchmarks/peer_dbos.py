"""DBOS: a workflow of steps, with its defaults, on its default SQLite database and on Postgres."""

import asyncio
import os
import time
from typing import Any

from dbos import DBOS, DBOSConfig, SetWorkflowID

from benchmarks.measure import RUNS, Place, Reading, payload, reading

_calls = 0
_replayed: list[float] = []


@DBOS.step()
def _step(number: int) -> dict[str, Any]:
    global _calls
    _calls += 1
    return payload(number)


@DBOS.step()
async def _async_step(number: int) -> dict[str, Any]:
    return payload(number)


@DBOS.workflow()
def _workflow(steps: int) -> int:
    for number in range(steps):
        _step(number)
    return steps


@DBOS.workflow()
async def _async_workflow(steps: int) -> int:
    for number in range(steps):
        await _async_step(number)
    return steps


@DBOS.workflow()
def _workflow_that_dies(steps: int) -> int:
    started = time.perf_counter()
    for number in range(steps):
        _step(number)
    if _calls:
        os._exit(0)
    _replayed.append(time.perf_counter() - started)
    return steps


def _launch(url: str) -> None:
    config: DBOSConfig = {"name": "bench", "system_database_url": url, "log_level": "ERROR"}
    DBOS(config=config)
    DBOS.launch()


def _sqlite(place: Place) -> str:
    return f"sqlite:///{place.db}"


def one_run_sqlite(place: Place) -> Reading:
    """With synchronous steps, its faster way for one run."""
    _launch(_sqlite(place))
    _workflow(20)
    with reading() as found:
        _workflow(place.steps)
    DBOS.destroy()
    return found


def many_runs_sqlite(place: Place) -> Reading:
    return asyncio.run(_many_runs(place, _sqlite(place)))


def many_runs_postgres(place: Place) -> Reading:
    return asyncio.run(_many_runs(place, place.url))


async def _many_runs(place: Place, url: str) -> Reading:
    _launch(url)
    await asyncio.gather(*(_async_workflow(1) for _ in range(8)))
    with reading() as found:
        await asyncio.gather(*(_async_workflow(place.steps // RUNS) for _ in range(RUNS)))
    DBOS.destroy()
    return found


def fill_replay(place: Place) -> Reading:
    _launch(_sqlite(place))
    with SetWorkflowID("replayed"):
        _workflow_that_dies(place.steps)
    raise AssertionError("it should have died")


def replay(place: Place) -> Reading:
    """From the first line of the recovered workflow to its last; launching and finding it are left out."""
    _launch(_sqlite(place))
    while not _replayed:
        time.sleep(0.01)
    DBOS.destroy()
    return Reading(_replayed[0])
