"""Code that changes while runs are under way: markers, what a difference looks like, and the check before a deploy."""

import asyncio
from typing import Any

import pytest
from tests.support.flow_stores import FlowStore
from tests.support.progress_limit import until

from holdfast import Context, RunPaused, SyncContext, decide, run_flow
from holdfast.errors import Nondeterminism
from holdfast.flows.replay_check import check_flow
from holdfast.runtime.checkpoint import InMemoryCheckpointer


class Program:
    """One flow over its versions."""

    version = 1

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def flow(self, ctx: Context) -> list[Any]:
        ways: list[Any] = [await ctx.step("begin", self.call, "begin")]
        if self.version == 1:
            ways.append(await ctx.step("old", self.call, "old"))
        elif self.version == 2:
            if await ctx.changed("better"):
                ways.append(await ctx.step("new", self.call, "new"))
            else:
                ways.append(await ctx.step("old", self.call, "old"))
        else:
            ways.append(await ctx.step("new", self.call, "new"))
        await ctx.approval("go")
        if self.version == 2:
            ways.append(await ctx.changed("better"))
        return ways

    def call(self, what: str) -> str:
        self.calls.append(what)
        return what


async def pause(program: Any, run_id: str, store: Any) -> None:
    with pytest.raises(RunPaused):
        await run_flow(program, run_id=run_id, store=store)


async def test_runs_from_before_a_change_keep_the_old_way_and_new_ones_take_the_new(flows: FlowStore) -> None:
    program = Program()
    await pause(program.flow, "before", flows.named)
    program.version = 2
    await pause(program.flow, "after", flows.named)
    for run_id in ("before", "after"):
        await decide(run_id, "go", "approve", store=flows.named)

    assert await run_flow(program.flow, run_id="before", store=flows.named) == ["begin", "old", False]
    assert await run_flow(program.flow, run_id="after", store=flows.named) == ["begin", "new", True]
    assert program.calls == ["begin", "old", "begin", "new"]
    marked = [event.payload for event in flows.events("before") if event.kind == "version.marked"]
    assert marked == [{"key": "better", "result": False}]


async def test_a_marker_can_be_removed_once_all_open_runs_have_the_new_way(flows: FlowStore) -> None:
    program = Program()
    program.version = 2
    await pause(program.flow, "r", flows.named)
    program.version = 3
    await decide("r", "go", "approve", store=flows.named)

    assert await run_flow(program.flow, run_id="r", store=flows.named) == ["begin", "new"]


async def test_a_marker_before_lanes_holds_for_all_of_them(flows: FlowStore) -> None:
    is_new = False

    async def lane(ctx: Context, name: str) -> Any:
        way = await ctx.changed("lanes") if is_new else False
        return [way, await ctx.step(name, lambda: name)]

    async def flow(ctx: Context) -> Any:
        if is_new:
            await ctx.changed("lanes")
        lanes = await ctx.gather(lane(ctx, "a"), lane(ctx, "b"))
        await ctx.approval("go")
        return lanes

    await pause(flow, "r", flows.named)
    is_new = True
    await decide("r", "go", "approve", store=flows.named)

    assert await run_flow(flow, run_id="r", store=flows.named) == [[False, "a"], [False, "b"]]


async def test_a_difference_shows_both_sequences_and_the_line_that_asks() -> None:
    store = InMemoryCheckpointer()
    names = ["a", "b", "c", "d"]

    async def flow(ctx: Context) -> None:
        for name in names:
            await ctx.step(name, lambda: 1)
        await ctx.approval("go")

    await pause(flow, "r", store)
    names[2] = "x"
    await decide("r", "go", "approve", store=store)

    with pytest.raises(Nondeterminism, match=r"ctx\.changed") as raised:
        await run_flow(flow, run_id="r", store=store)

    facts = raised.value.facts
    assert facts["recorded_around"] == ["step 'a'", "step 'b'", "step 'c'", "step 'd'", "approval 'go'"]
    assert facts["code_around"] == ["step 'a'", "step 'b'", "step 'x'"]
    assert facts["file"] == __file__
    assert f"test_versions.py:{facts['line']}" in raised.value.message
    assert "[step 'c'] → step 'd'" in raised.value.message


async def test_a_plain_flow_shows_its_line_too() -> None:
    store = InMemoryCheckpointer()
    name = "a"

    def flow(ctx: SyncContext) -> None:
        ctx.step(name, lambda: 1)
        ctx.approval("go")

    await pause(flow, "r", store)
    name = "x"
    await decide("r", "go", "approve", store=store)

    with pytest.raises(Nondeterminism) as raised:
        await run_flow(flow, run_id="r", store=store)
    assert raised.value.facts["file"] == __file__


async def test_the_check_says_which_open_runs_would_break_and_writes_and_calls_nothing(flows: FlowStore) -> None:
    program = Program()
    await pause(program.flow, "old", flows.named)
    program.version = 3
    await pause(program.flow, "new", flows.named)
    program.version = 1
    await decide("old", "go", "approve", store=flows.named)
    before = {run_id: flows.events(run_id) for run_id in ("old", "new")}
    calls = list(program.calls)

    outcomes = {}
    for version in (1, 2, 3):
        program.version = version
        checks = await check_flow(program.flow, store=flows.named)
        outcomes[version] = {check.run_id: check.outcome for check in checks}
        assert all(bool(check.message) == (check.outcome == "breaks") for check in checks)

    assert outcomes == {
        1: {"old": "fits", "new": "breaks"},
        2: {"old": "fits", "new": "breaks"},
        3: {"old": "breaks", "new": "fits"},
    }
    assert {run_id: flows.events(run_id) for run_id in before} == before
    assert program.calls == calls


async def test_the_check_does_not_call_the_step_that_comes_next() -> None:
    calls: list[str] = []

    async def flow(ctx: Context) -> None:
        await ctx.approval("go")
        await ctx.step("next", calls.append, "next")

    store = InMemoryCheckpointer()
    await pause(flow, "r", store)
    await decide("r", "go", "approve", store=store)

    assert [check.outcome for check in await check_flow(flow, store=store)] == ["fits"]
    assert calls == []


SIGNS = {
    "step": "human.approval.requested",
    "sleep": "timer.started",
    "wait": "wait.started",
    "child": "child.started",
    "lanes": "wait.started",
    "scope": "timer.started",
    "over": "human.approval.requested",
}


async def test_the_check_stops_at_whatever_is_not_recorded_and_leaves_runs_that_are_over_alone() -> None:
    store = InMemoryCheckpointer()
    calls: list[str] = []

    async def child(ctx: Context) -> None:
        await ctx.step("call", calls.append, "child")
        await ctx.sleep(3600)

    async def flow(ctx: Context, what: str) -> None:
        if what == "step":
            await ctx.step("call", calls.append, "step")
        elif what == "sleep":
            await ctx.sleep(3600)
        elif what == "wait":
            await ctx.wait_for("go", timeout=3600)
        elif what == "child":
            await ctx.run_flow(child)
        elif what == "lanes":
            await ctx.gather(ctx.sleep(3600), ctx.wait_for("go"))
        elif what == "scope":
            async with ctx.compensate(calls.append, "undone"):
                await ctx.sleep(3600)
        ctx.log("passed")
        await ctx.approval("go")

    for what, sign in SIGNS.items():
        running = asyncio.create_task(run_flow(flow, what, run_id=what, store=store))
        await until(lambda what=what, sign=sign: sign in [event.kind for event in store.list_events(what)])
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await decide("over", "go", "approve", store=store)
    await run_flow(flow, "over", run_id="over", store=store)
    before = list(calls)

    checks = await check_flow(flow, store=store)

    assert {check.run_id for check in checks} == {"step", "sleep", "wait", "child", "lanes", "scope"}
    assert {check.outcome for check in checks} == {"fits"}
    assert calls == before
