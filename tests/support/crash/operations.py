"""Flows that die: one with every operation beside steps, one that is cancelled with children and compensations, one
that a `Runtime` drives, of decorated steps with options, one without `async`, and one to which everything is done from
outside."""

import asyncio
import contextlib
import json
from datetime import UTC, datetime
from typing import Any

from tests.support.crash.flow_child import EFFECTS, RUN_ID, Job, Trace, happen, read_lines

from holdfast import (
    Context,
    Done,
    EventTimeout,
    NotDone,
    RunCancelled,
    RunPaused,
    Runtime,
    SyncContext,
    cancel_flow,
    flow,
    fork_flow,
    get_flow,
    run_flow,
    send_event,
    start_flow,
    step,
    step_key,
)
from holdfast.flows.service.flow_registry import list_definitions
from holdfast.flows.service.flow_schedule import ScheduledFlows
from holdfast.runtime.checkpoint import Checkpointer
from holdfast.testing import skip_time


class Errand:
    """Flows whose steps leave a line each, and which send and cancel themselves what others would."""

    def __init__(self, job: Job, trace: Trace, store: Checkpointer) -> None:
        self._effects = job.path / EFFECTS
        self._trace = trace
        self._store = store

    async def flow(self, ctx: Context) -> dict[str, Any]:
        ctx.set_status("beginning")
        moment, number, name = await ctx.now(), await ctx.random(), await ctx.uuid()
        await ctx.step("use", self.act, f"{moment} {number} {name}")
        is_new = await ctx.changed("version")
        await ctx.step("send", self.send)
        data = await ctx.wait_for("go", timeout=3600)
        try:
            await ctx.wait_for("never", timeout=0.01)
            missed = False
        except EventTimeout:
            missed = True
        ctx.log("read", data=data)
        child = await ctx.run_flow(self.child, 3)
        lanes = await ctx.gather(ctx.run_flow(self.child, 4), ctx.random())
        try:
            async with ctx.compensate(self.act, "undone outside"), ctx.compensate(self.act, "undone inside"):
                await ctx.step("break", self.fail)
        except ValueError as error:
            broken = str(error)
        ctx.emit("nearly there")
        return {"steps": [is_new, data, missed, child, lanes[0], broken]}

    async def served(self, ctx: Context, number: int) -> dict[str, Any]:
        """Make steps by decorators and with every option, and waits that give the place back."""
        reserve = step("reserve", retries=3, backoff_s=0.01, retry_on=ConnectionError, jitter=0.5)(self.fail_at_first)
        refuse = step(retries=3, no_retry_on=ValueError, max_backoff_s=0.01)(self.fail)
        reserved = await reserve(ctx)
        await ctx.sleep(0.02)
        try:
            await refuse(ctx)
            refused = False
        except ValueError:
            refused = True
        try:
            await ctx.approval("go", timeout=0.01)
            is_late = False
        except EventTimeout:
            is_late = True
        slow = ctx.step.options(timeout=3600, thread=True)("slow", self.act_in_thread, number)
        careful = ctx.step.options(on_unknown=self.look)("careful", self.act, "careful")
        lanes = await ctx.gather(slow, careful, ctx.run_flow(self.child, 2))
        return {"steps": [reserved, refused, is_late, *lanes]}

    def plain(self, ctx: SyncContext) -> dict[str, Any]:
        """Make the calls of a flow without `async`, whose steps run in threads."""
        first = ctx.step("first", self.act_in_thread, 1)
        ctx.step("use", self.note, f"{ctx.now()} {ctx.random()}")
        careful = ctx.step.options(on_unknown=self.look)("careful", self.note, "careful")
        lanes = ctx.gather(
            lambda: ctx.step("left", self.act_in_thread, 2), lambda: ctx.step("right", self.act_in_thread, 3)
        )
        ctx.sleep(0.01)
        return {"steps": [first, careful, *lanes, ctx.run_flow(self.child, 4)]}

    async def mended(self, ctx: Context) -> dict[str, Any]:
        """Wait for one of two events, and fail until somebody has asked for another try."""
        await ctx.step("send", self.send)
        came = await ctx.wait_for_any("stop", "go", timeout=3600)
        mended = await ctx.step("mend", self.fail_until_retried)
        return {"steps": [*came, mended]}

    async def nightly(self, ctx: Context, at: datetime) -> str:
        return await ctx.step("tidy", self.act, f"{at:%Y}")

    async def limited(self, ctx: Context) -> None:
        async with ctx.compensate(self.act, "undone late"):
            await ctx.run_flow(self.endless)

    async def endless(self, ctx: Context) -> None:
        async with ctx.compensate(self.act, "undone below"):
            await ctx.step("wait", asyncio.Event().wait)

    async def child(self, ctx: Context, number: int) -> int:
        return len(await ctx.step("count", self.act, "x" * number))

    async def cancelled(self, ctx: Context) -> None:
        async with ctx.compensate(self.act, "undone outside"):
            await ctx.step("first", self.act, "first")
            async with ctx.compensate(self.act, "undone inside"):
                await ctx.run_flow(self.to_be_cancelled)

    async def to_be_cancelled(self, ctx: Context) -> None:
        async with ctx.compensate(self.act, "undone below"):
            await ctx.step("cancel", self.cancel)
            await ctx.sleep(3600)

    async def act(self, what: str) -> str:
        await asyncio.sleep(0)
        return happen(self._effects, self._trace, what)

    def act_in_thread(self, number: int) -> int:
        happen(self._effects, self._trace, f"in a thread {number}")
        return number

    def note(self, what: str) -> str:
        return happen(self._effects, self._trace, what)

    async def look(self, key: str) -> Done | NotDone:
        results = [line["result"] for line in map(json.loads, read_lines(self._effects)) if line["key"] == key]
        return Done(results[0]) if results else NotDone()

    async def fail_at_first(self) -> str:
        """Fail until a failure is on record: what is tried again after a kill fails again, as it did before."""
        if not any(event.kind == "step.failed" for event in self._store.list_events(RUN_ID)):
            raise ConnectionError("not yet")
        return happen(self._effects, self._trace, "reserved")

    async def fail_until_retried(self) -> str:
        if not any(event.kind == "run.resume.requested" for event in self._store.list_events(RUN_ID)):
            raise ValueError("broken")
        return happen(self._effects, self._trace, "mended")

    async def fail(self) -> None:
        happen(self._effects, self._trace, "broken")
        raise ValueError("broken")

    async def send(self) -> str:
        await send_event(RUN_ID, "go", {"sent": 1}, store=self._store, dedup_id=step_key())
        return happen(self._effects, self._trace, "sent")

    async def cancel(self) -> None:
        if not any(event.kind == "run.cancel.requested" for event in self._store.list_events(RUN_ID)):
            await cancel_flow(RUN_ID, reason="enough", store=self._store)


async def run(job: Job, trace: Trace, store: Checkpointer) -> Any:
    """Run the flow that a job names, as far as it goes."""
    errand = Errand(job, trace, store)
    if job.program == "served":
        return await _serve(errand, store, has_rows=job.kind != "jsonl")
    if job.program == "mended":
        return await _mend(errand, store)
    chosen: Any = {"errand": errand.flow, "cancelled": errand.cancelled, "plain": errand.plain}[job.program]
    return await run_flow(chosen, run_id=RUN_ID, store=store)


async def _serve(errand: Errand, store: Checkpointer, *, has_rows: bool) -> Any:
    """Start the flow and drive it in the background; where a store has no index of flows, run it."""

    @flow("served")
    async def served(ctx: Context, number: int) -> dict[str, Any]:
        return await errand.served(ctx, number)

    while not has_rows:
        with contextlib.suppress(RunPaused):  # until the approval is late
            return await run_flow(served, 7, run_id=RUN_ID, store=store)
    async with Runtime(store, flows=[served], park_after_s=0.0, poll_s=0.05):
        handle = await start_flow("served", 7, run_id=RUN_ID, store=store)
        return await handle.result()


async def _mend(errand: Errand, store: Checkpointer) -> Any:
    """Have a flow retried and forked, another started by its schedule, and a third ended by its time limit."""

    @flow("mended")
    async def mended(ctx: Context) -> dict[str, Any]:
        return await errand.mended(ctx)

    @flow("nightly", cron="0 0 1 1 *")
    async def nightly(ctx: Context, at: datetime) -> str:
        return await errand.nightly(ctx, at)

    @flow("limited", timeout=0.2)
    async def limited(ctx: Context) -> None:
        await errand.limited(ctx)

    with skip_time(datetime(2020, 1, 1, 0, 0, 30, tzinfo=UTC).timestamp()):
        await ScheduledFlows(store, list_definitions(), poll_s=1.0).fire_due()
    async with Runtime(store, flows=[mended, nightly], poll_s=0.05):
        handle = await start_flow("mended", run_id=RUN_ID, store=store)
        try:
            result = await handle.result()
        except ValueError:
            await handle.retry()
            result = await handle.result()
        forked = await fork_flow(RUN_ID, "mend", new_id="fork", store=store)
        tidied = await get_flow("nightly@2020-01-01T0000Z", store=store).result()
        result["steps"] += [await forked.result() == {"steps": result["steps"]}, tidied]
    try:
        await run_flow(limited, run_id="limited", store=store)
    except RunCancelled:
        result["steps"].append("too late")
    return result
