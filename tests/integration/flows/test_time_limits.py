"""Flows with a time limit for the whole run: cancelled wherever they stand, once, with what they have to undo."""

import asyncio
import contextlib
from datetime import timedelta
from typing import Any

import pytest
from tests.support.flow_stores import FlowStore

from holdfast import Context, RunCancelled, RunPaused, Runtime, flow, get_flow, list_flows, run_flow, start_flow
from holdfast.enums import RunStatus
from holdfast.errors import ConfigInvalid
from holdfast.flows.service.flow_registry import list_definitions
from holdfast.flows.service.flow_times import LimitedFlows
from holdfast.flows.service.start import start_scheduled_flow
from holdfast.runtime.flow_rows import FlowOptions
from holdfast.testing import SimulatedCrash, crash_at, memory_store, skip_time

pytestmark = pytest.mark.usefixtures("own_registry")


def list_requests(flows: FlowStore, run_id: str) -> list[Any]:
    return [event.payload["reason"] for event in flows.events(run_id) if event.kind == "run.cancel.requested"]


async def test_a_run_is_cancelled_in_the_middle_of_a_step_and_undoes_what_it_has_done(flows: FlowStore) -> None:
    undone: list[str] = []

    @flow("booked", timeout=3600)
    async def booked(ctx: Context, what: str) -> None:
        async with ctx.compensate(undone.append, what):
            await ctx.step("wait", wait)

    async def wait() -> None:
        clock.advance(3601)
        await asyncio.Event().wait()

    @flow("quick", timeout=timedelta(hours=2))
    async def quick(ctx: Context) -> str:
        return await ctx.step("do", lambda: "done")

    with skip_time() as clock:
        async with Runtime(flows.target, flows=[booked, quick], poll_s=0.05) as runtime:
            handle = await runtime.start(booked, "room", run_id="r")
            assert await (await runtime.start(quick)).result() == "done"
            with pytest.raises(RunCancelled):
                await handle.result()

    assert undone == ["room"]
    assert list_requests(flows, "r") == ["It was not over 3600 s after its start."]


async def test_runs_that_wait_without_a_process_are_cancelled_too_by_one_of_several(flows: FlowStore) -> None:
    @flow("limited", timeout=3600)
    async def limited(ctx: Context, kind: str) -> None:
        await (ctx.approval("go") if kind == "asks" else ctx.sleep(7200))

    with skip_time() as clock:
        with pytest.raises(RunPaused):
            await run_flow(limited, "asks", run_id="asks", store=flows.target)
        await start_flow(limited, "sleeps", run_id="never begun", store=flows.target)
        looks = [LimitedFlows(flows.target, list_definitions()) for _ in range(3)]
        await asyncio.gather(*(each.end_late() for each in looks))
        assert {run.status for run in await list_flows(store=flows.target)} == {RunStatus.PAUSED, RunStatus.PENDING}
        clock.advance(3601)
        await start_flow(limited, "sleeps", run_id="new", store=flows.target)
        await asyncio.gather(*(each.end_late() for each in looks))

    found = {run.run_id: run.status for run in await list_flows(store=flows.target)}
    assert found == {"asks": RunStatus.CANCELLED, "never begun": RunStatus.CANCELLED, "new": RunStatus.PENDING}
    assert len(list_requests(flows, "asks")) == len(list_requests(flows, "never begun")) == 1


async def test_what_a_run_stands_in_line_counts_for_no_limit(flows: FlowStore) -> None:
    @flow("limited", timeout=3600)
    async def limited(ctx: Context, kind: str) -> str:
        await ctx.step("work", lambda: None if kind == "by hand" else clock.advance(3000))
        await ctx.step("rest", wait if kind == "slow" else str)
        return "in time"

    async def wait() -> None:
        clock.advance(3601)
        await asyncio.Event().wait()

    with skip_time() as clock:
        for run_id, kind in (("never begun", "quick"), ("b", "quick"), ("c", "by hand"), ("d", "slow")):
            options = FlowOptions(schedule="often", is_in_line=True)
            await start_scheduled_flow("limited", [kind], {}, run_id=run_id, store=flows.target, options=options)
        looks = LimitedFlows(flows.target, list_definitions())
        clock.advance(7200)
        await looks.end_late()
        assert await run_flow(limited, "by hand", run_id="c", store=flows.target) == "in time"
        async with Runtime(flows.target, flows=[limited], poll_s=0.02):
            assert await get_flow("b", store=flows.target).result() == "in time"
            for run_id in ("never begun", "d"):
                with pytest.raises(RunCancelled):
                    await get_flow(run_id, store=flows.target).result()


async def test_a_plain_run_flow_keeps_the_limit_itself_and_hands_the_end_down(flows: FlowStore) -> None:
    undone: list[str] = []

    @flow("booked", timeout=3600)
    async def booked(ctx: Context) -> None:
        async with ctx.compensate(undone.append, "trip"):
            await ctx.run_flow(room)

    async def room(ctx: Context) -> None:
        async with ctx.compensate(undone.append, "room"):
            await ctx.step("wait", wait)

    async def wait() -> None:
        clock.advance(3601)
        await asyncio.Event().wait()

    with skip_time() as clock:
        for _ in range(2):
            with pytest.raises(RunCancelled, match=r"cancelled: It was not over 3600 s after its start\.$"):
                await run_flow(booked, run_id="r", store=flows.target)
    with pytest.raises(RunCancelled, match=r"3600 s after its start\."):
        await get_flow("r", store=flows.target).result()

    assert undone == ["room", "trip"]
    assert list_requests(flows, "r") == ["It was not over 3600 s after its start."]


@pytest.mark.parametrize("kind", ["asks", "dies"])
async def test_the_limit_of_a_plain_run_flow_counts_on_from_the_first_start(kind: str) -> None:
    began: list[str] = []

    @flow("limited", timeout=3600)
    async def limited(ctx: Context) -> None:
        began.append("again")
        await (ctx.approval("go") if kind == "asks" else ctx.step("first", lambda: began.append("first")))
        await ctx.step("second", lambda: began.append("second"))

    store, crash = memory_store(), contextlib.nullcontext() if kind == "asks" else crash_at("second", "before")
    with skip_time() as clock:
        with pytest.raises(RunPaused if kind == "asks" else SimulatedCrash), crash:
            await run_flow(limited, run_id="r", store=store)
        began.clear()
        clock.advance(3601)
        for _ in range(2):
            with pytest.raises(RunCancelled):
                await run_flow(limited, run_id="r", store=store)

    assert not began


async def test_a_test_that_skips_time_meets_the_limit_on_the_way_and_is_not_hurried_there() -> None:
    @flow("limited", timeout=3600)
    async def limited(ctx: Context, hours: float) -> str:
        await ctx.step("work", asyncio.to_thread, sum, range(100_000))
        await ctx.sleep(timedelta(hours=hours))
        return "in time"

    with skip_time() as clock:
        assert await run_flow(limited, 0.9, store=memory_store()) == "in time"
        assert clock.skipped_s == pytest.approx(0.9 * 3600)
        with pytest.raises(RunCancelled):
            await run_flow(limited, 1.1, store=memory_store())
        assert clock.skipped_s == pytest.approx(1.9 * 3600)


async def test_a_child_that_takes_too_long_is_an_error_in_its_parent(flows: FlowStore) -> None:
    @flow("slow", timeout=0.2)
    async def slow(ctx: Context) -> None:
        await ctx.sleep(3600)

    @flow("parent")
    async def parent(ctx: Context) -> str:
        try:
            await ctx.run_flow(slow)
        except RunCancelled:
            return await ctx.step("instead", lambda: "something else")
        return "in time"

    async with Runtime(flows.target, flows=[parent, slow], poll_s=0.05, park_after_s=0.0) as runtime:
        assert await (await runtime.start(parent)).result() == "something else"


async def test_a_run_that_failed_in_time_and_is_tried_again_has_no_limit_any_more() -> None:
    @flow("mended", timeout=3600)
    async def mended(ctx: Context) -> str:
        return await ctx.step("read", lambda: texts.pop())

    texts: list[str] = []
    store = memory_store()
    with skip_time() as clock:
        with pytest.raises(IndexError):
            await run_flow(mended, run_id="r", store=store)
        clock.advance(7200)
        texts.append("green")
        await get_flow("r", store=store).retry()
        await LimitedFlows(store, list_definitions()).end_late()
        async with Runtime(store, flows=[mended], poll_s=0.05):
            assert await get_flow("r", store=store).result() == "green"


@pytest.mark.parametrize("timeout", [0, -1, "1h", timedelta(0)])
def test_a_limit_that_is_none_is_refused(timeout: Any) -> None:
    with pytest.raises(ConfigInvalid, match="a time above 0"):
        flow("f", timeout=timeout)
