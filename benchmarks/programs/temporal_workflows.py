"""The ten programs as workflows of Temporal: a worker in the program, its development server beside it."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy, WorkflowIDConflictPolicy
from temporalio.exceptions import ActivityError
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
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
        act,
        flaky,
        is_new_code,
        refuse,
    )

TIME_OUT = timedelta(seconds=5)
_client: Client


@activity.defn
async def do(run: str, name: str) -> dict[str, str]:
    return act(run, name)


async def step(run: str, name: str) -> dict[str, str]:
    return await workflow.execute_activity(do, args=[run, name], start_to_close_timeout=TIME_OUT)


# == sequence
@workflow.defn(name="sequence")
class Sequence:
    @workflow.run
    async def run(self, run: str) -> None:
        for number in range(SEQUENCE):
            await step(run, f"step {number}")


# == fan_out
@workflow.defn(name="fan_out")
class FanOut:
    @workflow.run
    async def run(self, run: str) -> None:
        await asyncio.gather(*(step(run, f"item {number}") for number in range(WIDTH)))
        await step(run, "sum")


# == retry
@activity.defn
async def do_flaky(run: str, name: str) -> dict[str, str]:
    return flaky(run, name)


@workflow.defn(name="retry")
class Retry:
    @workflow.run
    async def run(self, run: str) -> None:
        policy = RetryPolicy(initial_interval=timedelta(seconds=BACK_OFF_S), maximum_attempts=5)
        for number in range(FLAKY):
            await workflow.execute_activity(
                do_flaky, args=[run, f"part {number}"], start_to_close_timeout=TIME_OUT, retry_policy=policy
            )


# == timer
@workflow.defn(name="timer")
class Timer:
    @workflow.run
    async def run(self, run: str) -> None:
        await step(run, "before")
        await workflow.sleep(SLEEP_S)
        await step(run, "after")


# == event
@workflow.defn(name="event")
class Event:
    def __init__(self) -> None:
        self.amount: int | None = None

    @workflow.signal
    def paid(self, amount: int) -> None:
        self.amount = amount

    @workflow.run
    async def run(self, run: str) -> str:
        await step(run, "order")
        try:
            await workflow.wait_condition(lambda: self.amount is not None, timeout=WAIT_S)
        except TimeoutError:
            return "not paid"
        await step(run, "ship")
        return str(self.amount)


# == approval
@workflow.defn(name="approval")
class Approval:
    def __init__(self) -> None:
        self.draft: dict[str, str] = {}
        self.is_approved = False

    @workflow.signal
    def approve(self) -> None:
        self.is_approved = True

    @workflow.query
    def show(self) -> dict[str, str]:
        return self.draft

    @workflow.run
    async def run(self, run: str) -> None:
        self.draft = await step(run, "draft")
        await workflow.wait_condition(lambda: self.is_approved)
        await step(run, "publish")


# == child
@workflow.defn(name="child")
class Child:
    @workflow.run
    async def run(self, run: str) -> None:
        for number in range(CHILDREN):
            await workflow.execute_child_workflow(OneChild.run, args=[run, number])


@workflow.defn
class OneChild:
    @workflow.run
    async def run(self, run: str, number: int) -> None:
        for number_of_step in range(CHILD_STEPS):
            await step(run, f"child {number} step {number_of_step}")


# == saga
@activity.defn
async def do_refuse(run: str, name: str) -> dict[str, str]:
    return refuse(run, name)


@workflow.defn(name="saga")
class Saga:
    @workflow.run
    async def run(self, run: str) -> str:
        undo: list[str] = []
        try:
            await step(run, "flight")
            undo.append("cancel flight")
            await step(run, "hotel")
            undo.append("cancel hotel")
            await workflow.execute_activity(
                do_refuse,
                args=[run, "car"],
                start_to_close_timeout=TIME_OUT,
                retry_policy=RetryPolicy(non_retryable_error_types=["Refused"]),
            )
        except ActivityError:
            for name in reversed(undo):
                await step(run, name)
            return "undone"
        return "booked"


# == poll
@workflow.defn(name="poll")
class Poll:
    @workflow.run
    async def run(self, run: str) -> None:
        for number in range(CHECKS):
            if number:
                await workflow.sleep(CHECK_EVERY_S)
            await step(run, f"check {number}")


# == change
@workflow.defn(name="change")
class Change:
    @workflow.run
    async def run(self, run: str) -> None:
        await step(run, "reserve")
        if is_new_code() and workflow.patched("check the address"):
            await step(run, "check")
        await step(run, "charge")
        await step(run, "ship")
        await step(run, "mail")


# == set-up
WORKFLOWS = [Sequence, FanOut, Retry, Timer, Event, Approval, Child, OneChild, Saga, Poll, Change]


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[None]:
    global _client
    _client = await Client.connect(os.environ["TEMPORAL_ADDRESS"])
    async with Worker(_client, task_queue=folder.name, workflows=WORKFLOWS, activities=[do, do_flaky, do_refuse]):
        yield


async def go(program: str, run: str) -> None:
    """Start a run, or find the one of this id, and wait for its end."""
    queue = _queue()
    handle = await _client.start_workflow(
        program,
        run,
        id=f"{queue} {run}",
        task_queue=queue,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
    )
    await handle.result()


async def nudge(program: str, run: str) -> None:
    handle = _client.get_workflow_handle(f"{_queue()} {run}")
    await (handle.signal("paid", 40) if program == "event" else handle.signal("approve"))


def _queue() -> str:
    return Path(os.environ["PROGRAMS_FOLDER"]).name
