"""Two flows that die: one with every operation beside steps, one that is cancelled with children and compensations."""

import asyncio
from typing import Any

from tests.support.crash.flow_child import EFFECTS, RUN_ID, Job, Trace, happen

from holdfast import Context, EventTimeout, cancel_flow, run_flow, send_event, step_key
from holdfast.runtime.checkpoint import Checkpointer


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
    flow: Any = errand.flow if job.program == "errand" else errand.cancelled
    return await run_flow(flow, run_id=RUN_ID, store=store)
