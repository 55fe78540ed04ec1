"""The ten programs as workflows of DBOS, with its defaults, on its SQLite database."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from dbos import DBOS, DBOSConfig, SetWorkflowID

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


@DBOS.step()
async def do(run: str, name: str) -> dict[str, str]:
    return act(run, name)


# == sequence
@DBOS.workflow()
async def sequence(run: str) -> None:
    for number in range(SEQUENCE):
        await do(run, f"step {number}")


# == fan_out
@DBOS.workflow()
async def fan_out(run: str) -> None:
    await asyncio.gather(*(do(run, f"item {number}") for number in range(WIDTH)))
    await do(run, "sum")


# == retry
@DBOS.step(retries_allowed=True, max_attempts=5, interval_seconds=BACK_OFF_S)
async def do_flaky(run: str, name: str) -> dict[str, str]:
    return flaky(run, name)


@DBOS.workflow()
async def retry(run: str) -> None:
    for number in range(FLAKY):
        await do_flaky(run, f"part {number}")


# == timer
@DBOS.workflow()
async def timer(run: str) -> None:
    await do(run, "before")
    await DBOS.sleep_async(SLEEP_S)
    await do(run, "after")


# == event
@DBOS.workflow()
async def event(run: str) -> str:
    await do(run, "order")
    paid = await DBOS.recv_async("paid", timeout_seconds=WAIT_S)
    if paid is None:
        return "not paid"
    await do(run, "ship")
    return str(paid)


# == approval
@DBOS.workflow()
async def approval(run: str) -> None:
    draft = await do(run, "draft")
    await DBOS.set_event_async("draft", draft)
    if await DBOS.recv_async("publish", timeout_seconds=WAIT_S) != "approve":
        raise Refused("publish")
    await do(run, "publish")


# == child
@DBOS.workflow()
async def child(run: str) -> None:
    for number in range(CHILDREN):
        await one_child(run, number)


@DBOS.workflow()
async def one_child(run: str, number: int) -> None:
    for step in range(CHILD_STEPS):
        await do(run, f"child {number} step {step}")


# == saga
@DBOS.step()
async def do_refuse(run: str, name: str) -> dict[str, str]:
    return refuse(run, name)


@DBOS.workflow()
async def saga(run: str) -> str:
    undo: list[str] = []
    try:
        await do(run, "flight")
        undo.append("cancel flight")
        await do(run, "hotel")
        undo.append("cancel hotel")
        await do_refuse(run, "car")
    except Refused:
        for name in reversed(undo):
            await do(run, name)
        return "undone"
    return "booked"


# == poll
@DBOS.workflow()
async def poll(run: str) -> None:
    for number in range(CHECKS):
        if number:
            await DBOS.sleep_async(CHECK_EVERY_S)
        await do(run, f"check {number}")


# == change
@DBOS.workflow()
async def change(run: str) -> None:
    await do(run, "reserve")
    if is_new_code() and await DBOS.patch_async("check the address"):
        await do(run, "check")
    await do(run, "charge")
    await do(run, "ship")
    await do(run, "mail")


# == set-up
@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[None]:
    url = f"sqlite:///{folder / 'dbos.db'}"
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": url,
        "log_level": "ERROR",
        "enable_patching": True,
        "run_admin_server": False,
    }
    DBOS(config=config)
    DBOS.launch()
    yield
    DBOS.destroy()


async def go(program: str, run: str) -> None:
    """Start a run, or find the one of this id, and wait for its end."""
    with SetWorkflowID(run):
        handle = await DBOS.start_workflow_async(globals()[program], run)
    await handle.get_result()


async def nudge(program: str, run: str) -> None:
    await DBOS.send_async(run, *((40, "paid") if program == "event" else ("approve", "publish")))
