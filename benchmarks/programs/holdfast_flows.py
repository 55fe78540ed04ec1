"""The ten programs as flows of holdfast, driven by a runtime in the program."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.programs.work import (
    BACK_OFF_S,
    CHECK_EVERY_S,
    CHECKS,
    CHILD_STEPS,
    CHILDREN,
    FLAKY,
    SEQUENCE,
    SLEEP_S,
    WAIT_S,
    WIDTH,
    Refused,
    act,
    flaky,
    is_new_code,
    refuse,
)
from holdfast import Context, Runtime, decide, flow, send_event, start_flow
from holdfast.errors import ApprovalNotFound, EventTimeout

_store = ""


# == sequence
@flow
async def sequence(ctx: Context, run: str) -> None:
    for number in range(SEQUENCE):
        await ctx.step("act", act, run, f"step {number}")


# == fan_out
@flow
async def fan_out(ctx: Context, run: str) -> None:
    await ctx.gather(*(ctx.step("item", act, run, f"item {number}") for number in range(WIDTH)))
    await ctx.step("sum", act, run, "sum")


# == retry
@flow
async def retry(ctx: Context, run: str) -> None:
    for number in range(FLAKY):
        await ctx.step("part", flaky, run, f"part {number}", retries=4, backoff_s=BACK_OFF_S)


# == timer
@flow
async def timer(ctx: Context, run: str) -> None:
    await ctx.step("before", act, run, "before")
    await ctx.sleep(SLEEP_S)
    await ctx.step("after", act, run, "after")


# == event
@flow
async def event(ctx: Context, run: str) -> str:
    await ctx.step("order", act, run, "order")
    try:
        paid = await ctx.wait_for("paid", timeout=WAIT_S)
    except EventTimeout:
        return "not paid"
    await ctx.step("ship", act, run, "ship")
    return str(paid)


# == approval
@flow
async def approval(ctx: Context, run: str) -> None:
    draft = await ctx.step("draft", act, run, "draft")
    await ctx.approval("publish", show=draft)
    await ctx.step("publish", act, run, "publish")


# == child
@flow
async def child(ctx: Context, run: str) -> None:
    for number in range(CHILDREN):
        await ctx.run_flow(one_child, run, number)


@flow
async def one_child(ctx: Context, run: str, number: int) -> None:
    for step in range(CHILD_STEPS):
        await ctx.step("act", act, run, f"child {number} step {step}")


# == saga
@flow
async def saga(ctx: Context, run: str) -> str:
    try:
        await ctx.step("flight", act, run, "flight")
        async with ctx.compensate(act, run, "cancel flight"):
            await ctx.step("hotel", act, run, "hotel")
            async with ctx.compensate(act, run, "cancel hotel"):
                await ctx.step("car", refuse, run, "car")
    except Refused:
        return "undone"
    return "booked"


# == poll
@flow
async def poll(ctx: Context, run: str) -> None:
    for number in range(CHECKS):
        if number:
            await ctx.sleep(CHECK_EVERY_S)
        await ctx.step("check", act, run, f"check {number}")


# == change
@flow
async def change(ctx: Context, run: str) -> None:
    await ctx.step("reserve", act, run, "reserve")
    if is_new_code() and await ctx.changed("check the address"):
        await ctx.step("check", act, run, "check")
    await ctx.step("charge", act, run, "charge")
    await ctx.step("ship", act, run, "ship")
    await ctx.step("mail", act, run, "mail")


# == set-up
@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[None]:
    global _store
    _store = str(folder / "holdfast.db")
    async with Runtime(_store):
        yield


async def go(program: str, run: str) -> None:
    """Start a run, or find the one of this id, and wait for its end."""
    handle = await start_flow(program, run, run_id=run, store=_store)
    await handle.result()


async def nudge(program: str, run: str) -> None:
    if program == "event":
        await send_event(run, "paid", 40, store=_store)
        return None
    while True:
        try:
            return await decide(run, "publish", "approve", store=_store)
        except ApprovalNotFound:  # it has not come to the question yet
            await asyncio.sleep(0.005)
