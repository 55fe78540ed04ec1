"""holdfast's flows through the public API. Opening the store, creating the run and ending it are measured too."""

import asyncio
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from benchmarks.measure import MESSAGE, TEXT, Place, Reading, payload, reading, stored_bytes
from holdfast import Context, run_flow

_calls = 0


async def work(number: int) -> dict[str, Any]:
    global _calls
    _calls += 1
    return payload(number)


async def flow(ctx: Context, steps: int) -> int:
    """Give steps their arguments, as the README does."""
    for number in range(steps):
        await ctx.step("step", work, number)
    return steps


async def closing_flow(ctx: Context, steps: int) -> int:
    """Let steps close over their arguments, of which nothing is recorded then."""
    for number in range(steps):
        await ctx.step("step", lambda number=number: work(number))
    return steps


@dataclass
class Parcel:
    number: int
    at: datetime
    text: str


def pack(number: int) -> Parcel:
    global _calls
    _calls += 1
    return Parcel(number, datetime.fromtimestamp(number, UTC), TEXT)


async def _typed_flow_that_dies(ctx: Context, steps: int) -> int:
    for number in range(steps):
        await ctx.step("step", pack, number)
    if _calls:
        os._exit(0)
    return steps


def one_run_sqlite(place: Place) -> Reading:
    return asyncio.run(_one_run(place, place.db))


def one_run_postgres(place: Place) -> Reading:
    return asyncio.run(_one_run(place, place.url))


async def _one_run(place: Place, store: str) -> Reading:
    await run_flow(flow, 50, store=store)
    with reading() as found:
        await run_flow(flow, place.steps, store=store)
    return found


async def _flow_that_dies(ctx: Context, steps: int) -> int:
    done = await flow(ctx, steps)
    if _calls:
        os._exit(0)  # the process that made the calls never sees the end
    return done


def fill_replay(place: Place) -> Reading:
    """Leave a run behind whose process died after its last step."""
    asyncio.run(run_flow(_flow_that_dies, place.steps, run_id="replayed", store=place.db))
    raise AssertionError("it should have died")


def replay(place: Place) -> Reading:
    async def go() -> Reading:
        with reading() as found:
            await run_flow(_flow_that_dies, place.steps, run_id="replayed", store=place.db)
        return found

    return asyncio.run(go())


def fill_typed_replay(place: Place) -> Reading:
    """Leave a run behind as `fill_replay` does, whose steps return a dataclass."""
    asyncio.run(run_flow(_typed_flow_that_dies, place.steps, run_id="replayed", store=place.db))
    raise AssertionError("it should have died")


def typed_replay(place: Place) -> Reading:
    async def go() -> Reading:
        with reading() as found:
            await run_flow(_typed_flow_that_dies, place.steps, run_id="replayed", store=place.db)
        return found

    return asyncio.run(go())


async def _conversation(ctx: Context, messages: int) -> int:
    for number in range(messages):
        await ctx.step("message", lambda number=number: {"role": "assistant", "content": f"{number} {MESSAGE}"})
    return messages


def messages(place: Place) -> Reading:
    with reading() as found:
        asyncio.run(run_flow(_conversation, place.steps, store=place.db))
    found.extra["bytes"] = stored_bytes(place)
    return found
