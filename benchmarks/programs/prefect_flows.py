"""The ten programs as flows of Prefect: results are kept by their inputs, so that a flow run anew finds them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.cache_policies import INPUTS
from prefect.flow_runs import pause_flow_run, resume_flow_run
from prefect.runtime import flow_run

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

_paused: dict[str, Any] = {}


@task(persist_result=True, cache_policy=INPUTS)
async def do(run: str, name: str) -> dict[str, str]:
    return act(run, name)


# == sequence
@flow
async def sequence(run: str) -> None:
    for number in range(SEQUENCE):
        await do(run, f"step {number}")


# == fan_out
@flow
async def fan_out(run: str) -> None:
    futures = [do.submit(run, f"item {number}") for number in range(WIDTH)]
    for future in futures:
        future.result()
    await do(run, "sum")


# == retry
@task(persist_result=True, cache_policy=INPUTS, retries=4, retry_delay_seconds=BACK_OFF_S)
async def do_flaky(run: str, name: str) -> dict[str, str]:
    return flaky(run, name)


@flow
async def retry(run: str) -> None:
    for number in range(FLAKY):
        await do_flaky(run, f"part {number}")


# == timer
@flow
async def timer(run: str) -> None:
    await do(run, "before")
    await asyncio.sleep(SLEEP_S)
    await do(run, "after")


# == event
@flow
async def event(run: str) -> str:
    await do(run, "order")
    _paused[run] = flow_run.id
    try:
        paid = await pause_flow_run(wait_for_input=int, timeout=WAIT_S, poll_interval=1)
    except TimeoutError:
        return "not paid"
    await do(run, "ship")
    return str(paid)


# == approval
@flow
async def approval(run: str) -> None:
    await do(run, "draft")
    _paused[run] = flow_run.id
    await pause_flow_run(timeout=WAIT_S, poll_interval=1)
    await do(run, "publish")


# == child
@flow
async def child(run: str) -> None:
    for number in range(CHILDREN):
        await one_child(run, number)


@flow
async def one_child(run: str, number: int) -> None:
    for step in range(CHILD_STEPS):
        await do(run, f"child {number} step {step}")


# == saga
@task
async def do_refuse(run: str, name: str) -> dict[str, str]:
    return refuse(run, name)


@flow
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
@flow
async def poll(run: str) -> None:
    for number in range(CHECKS):
        if number:
            await asyncio.sleep(CHECK_EVERY_S)
        await do(run, f"check {number}")


# == change
@flow
async def change(run: str) -> None:
    await do(run, "reserve")
    if is_new_code():
        await do(run, "check")
    await do(run, "charge")
    await do(run, "ship")
    await do(run, "mail")


# == set-up
@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[None]:
    yield


async def go(program: str, run: str) -> None:
    """Run the flow; after a crash that is a new run, which finds what the old one has kept."""
    await globals()[program](run)


async def nudge(program: str, run: str) -> None:
    while run not in _paused:
        await asyncio.sleep(0.02)
    while True:
        try:
            return await resume_flow_run(_paused[run], run_input={"value": 40} if program == "event" else None)
        except Exception:  # it is not paused yet
            await asyncio.sleep(0.1)
