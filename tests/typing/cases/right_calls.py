"""Calls that type checkers accept, with the types they find."""

import asyncio
from datetime import datetime, timedelta
from typing import assert_type

from holdfast import (
    Context,
    Done,
    FlowDetails,
    FlowHandle,
    FlowSummary,
    NotDone,
    Runtime,
    SyncContext,
    flow,
    list_flows,
    register_codec,
    run_flow,
    start_flow,
    step,
)
from holdfast.runtime.checkpoint import InMemoryCheckpointer


def write_notes(version: str, copies: int = 1) -> str:
    return version * copies


async def publish(notes: str, *, tag: str = "", retries: int = 0) -> datetime:
    return datetime.fromisoformat(notes + tag) + timedelta(retries)


async def is_published(key: str) -> Done | NotDone:
    return NotDone()


class Mailer:
    def send(self, to: str) -> bool:
        return bool(to)


async def release(ctx: Context, version: str, copies: int = 1) -> datetime:
    notes = await ctx.step("notes", write_notes, version)
    assert_type(notes, str)
    assert_type(await ctx.step("more", write_notes, version, copies=3), str)
    assert_type(await ctx.step("retried", write_notes, version, 3, retries=2, backoff_s=1), str)
    assert_type(await ctx.step("asked", publish, notes, on_unknown="ask"), datetime)
    assert_type(await ctx.step("looked up", publish, notes, on_unknown=is_published), datetime)
    assert_type(await ctx.step("keywords", publish, notes, tag="x"), datetime)
    assert_type(await ctx.step.options(timeout=3, retry_on=OSError)("o", publish, notes, retries=4), datetime)
    assert_type(await ctx.step("lambda", lambda: len(notes)), int)
    assert_type(await ctx.step("nothing", asyncio.sleep, 0), None)
    assert_type(await ctx.step("method", Mailer().send, "a"), bool)
    assert_type(await ctx.step("class", dict[str, int]), dict[str, int])
    pair = await ctx.gather(ctx.step("a", write_notes, notes), ctx.step("b", publish, notes))
    assert_type(pair, tuple[str, datetime])
    assert_type(await ctx.gather(*(ctx.step("n", publish, notes) for _ in range(3)), limit=2), list[datetime])
    several = await ctx.gather(*(ctx.step("n", publish, notes) for _ in range(3)), return_exceptions=True)
    assert_type(several, list[datetime | Exception])
    return await ctx.step("publish", publish, notes)


def plainly(ctx: SyncContext, version: str) -> int:
    notes = ctx.step("notes", write_notes, version, retries=2)
    assert_type(notes, str)
    assert_type(ctx.step("publish", publish, notes, tag="x"), datetime)
    assert_type(ctx.step.options(timeout=3)("publish", publish, notes, retries=4), datetime)
    assert_type(ctx.run_flow(release, version, 2), datetime)
    assert_type(ctx.run_flow(release, version, run_id="r"), datetime)
    assert_type(ctx.run_flow(plainly, version), int)
    assert_type(send(ctx, version, copies=2), bool)
    return len(version)


@step("send", retries=3, timeout=5)
async def send(to: str, copies: int = 1) -> bool:
    return bool(to)


async def parent(ctx: Context, version: str) -> bool:
    assert_type(await ctx.run_flow(release, version, copies=2), datetime)
    assert_type(await ctx.run_flow(release, version, run_id="child"), datetime)
    assert_type(await ctx.run_flow(plainly, version), int)
    assert_type(await ctx.run_flow(plainly, version, run_id="child"), int)
    assert_type(await ctx.gather(send(ctx, version), send(ctx, version)), tuple[bool, bool])
    return await send(ctx, version, copies=2)


@flow("nightly", cron="30 2 * * *", zone="Europe/Berlin", missed="once", overlap="queue")
async def nightly(ctx: Context, at: datetime) -> str:
    return await ctx.step("day", at.isoformat)


class Money:
    cents = 3


register_codec(Money, encode=lambda money: money.cents, decode=lambda cents: Money())


async def main() -> None:
    assert_type(await run_flow(release, "1.4"), datetime)
    assert_type(await run_flow(release, "1.4", run_id="release-1.4"), datetime)
    assert_type(await run_flow(release, "1.4", 2, run_id="r", store=InMemoryCheckpointer()), datetime)
    assert_type(await run_flow(release, version="1.4", copies=2), datetime)
    assert_type(await run_flow(release, "1.4", run_id="r", tags={"team": "x"}), datetime)
    assert_type(await run_flow(plainly, "1.4", run_id="r"), int)
    handle = await start_flow(release, "1.4", 2, run_id="r", store="other.db", tags={"team": "x"})
    assert_type(handle, FlowHandle[datetime])
    assert_type(await handle.result(), datetime)
    assert_type(await handle.describe(), FlowDetails)
    assert_type(await list_flows(flow="release", status="failed", tags={"team": "x"}), list[FlowSummary])
    assert_type(await run_flow(nightly, datetime.now()), str)
    assert_type(await (await start_flow(release, version="1.4")).result(), datetime)
    assert_type(await (await start_flow(plainly, "1.4", run_id="r")).result(), int)
    named = await start_flow("release", "1.4", run_id="r", copies=2)
    named.run_id.upper()
    async with Runtime("holdfast.db", flows=[release, plainly]) as runtime:
        assert_type(await (await runtime.start(release, "1.4", run_id="r")).result(), datetime)
        assert_type(await (await runtime.start(plainly, version="1.4")).result(), int)
        (await runtime.start("release", "1.4")).run_id.upper()
