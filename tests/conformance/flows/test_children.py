"""Child flows: a run of its own within another, on every store."""

import asyncio
from typing import Any

import pytest
from tests.support.flow_stores import FlowStore
from tests.support.progress_limit import until

from holdfast import Context, RunCancelled, RunPaused, cancel_flow, decide, run_flow
from holdfast.errors import Nondeterminism


def child_of(flows: FlowStore, run_id: str = "r") -> str:
    return next(event.payload["child"] for event in flows.events(run_id) if event.kind == "child.started")


async def test_a_child_is_a_run_of_its_own_linked_both_ways(flows: FlowStore) -> None:
    calls: list[int] = []

    async def square(ctx: Context, number: int) -> int:
        return await ctx.step("square", lambda: calls.append(number) or number**2)

    async def flow(ctx: Context) -> list[int]:
        results = [await ctx.run_flow(square, 3), *await ctx.gather(ctx.run_flow(square, 4), ctx.run_flow(square, 5))]
        await ctx.approval("go")
        return results

    with pytest.raises(RunPaused):
        await run_flow(flow, run_id="r", store=flows.named)
    await decide("r", "go", "approve", store=flows.named)

    assert await run_flow(flow, run_id="r", store=flows.named) == [9, 16, 25]
    assert sorted(calls) == [3, 4, 5]
    child = child_of(flows)
    created = flows.events(child)[0].payload
    assert created["parent"] == {"run_id": "r", "key": "square"}
    assert flows.kinds(child)[-1] == "run.completed"
    assert await run_flow(square, 3, run_id=child, store=flows.named) == 9


async def test_a_child_with_an_id_of_the_users_choice_is_found_under_it(flows: FlowStore) -> None:
    async def child(ctx: Context, name: str) -> str:
        return name.upper()

    async def flow(ctx: Context) -> str:
        return await ctx.run_flow(child, "x", run_id="mine")

    assert await run_flow(flow, run_id="r", store=flows.named) == "X"
    assert flows.kinds("mine")[-1] == "run.completed"


async def test_an_error_comes_up_and_running_the_parent_again_tries_the_child_again(flows: FlowStore) -> None:
    is_broken = True
    tries: list[str] = []

    def call() -> str:
        tries.append("call")
        if is_broken:
            raise KeyError("lost")
        return "found"

    async def child(ctx: Context) -> str:
        await ctx.step("before", lambda: tries.append("before"))
        return await ctx.step("call", call)

    async def flow(ctx: Context) -> str:
        return await ctx.run_flow(child)

    with pytest.raises(KeyError, match="lost"):
        await run_flow(flow, run_id="r", store=flows.named)
    is_broken = False

    assert await run_flow(flow, run_id="r", store=flows.named) == "found"
    assert tries == ["before", "call", "call"]


async def test_an_error_that_the_parent_catches_is_the_same_on_a_replay(flows: FlowStore) -> None:
    calls: list[str] = []

    async def child(ctx: Context) -> None:
        await ctx.step("call", lambda: calls.append("call") or {}["missing"])

    async def flow(ctx: Context) -> list[str]:
        try:
            await ctx.run_flow(child)
        except KeyError as error:
            caught = [type(error).__name__, *error.args]
        await ctx.approval("go")
        return caught

    with pytest.raises(RunPaused):
        await run_flow(flow, run_id="r", store=flows.named)
    await decide("r", "go", "approve", store=flows.named)

    assert await run_flow(flow, run_id="r", store=flows.named) == ["KeyError", "missing"]
    assert calls == ["call"]


async def test_a_child_that_waits_for_a_person_pauses_its_parent(flows: FlowStore) -> None:
    async def child(ctx: Context) -> str:
        return await ctx.approval("review", show="text")

    async def flow(ctx: Context) -> str:
        return await ctx.run_flow(child)

    for _ in range(2):
        with pytest.raises(RunPaused, match="waits for its child") as raised:
            await run_flow(flow, run_id="r", store=flows.named)
    assert (raised.value.run_id, raised.value.key) == (child_of(flows), "review")
    assert flows.events()[-1].payload["reason"] == "child"
    await decide(raised.value.run_id, raised.value.key, "approve", store=flows.named)

    assert await run_flow(flow, run_id="r", store=flows.named) == "approve"


async def test_cancelling_the_parent_cancels_the_child_that_runs(flows: FlowStore) -> None:
    async def child(ctx: Context) -> None:
        await ctx.sleep(3600)

    async def flow(ctx: Context) -> None:
        await ctx.run_flow(child)

    running = asyncio.create_task(run_flow(flow, run_id="r", store=flows.named))
    await until(lambda: "child.started" in flows.kinds() and "timer.started" in flows.kinds(child_of(flows)))
    await cancel_flow("r", reason="enough", store=flows.named)

    with pytest.raises(RunCancelled):
        await running
    assert flows.kinds()[-1] == flows.kinds(child_of(flows))[-1] == "run.cancelled"
    assert flows.events(child_of(flows))[-1].payload["reason"] == "enough"


async def test_cancelling_a_parent_that_nobody_drives_cancels_its_children_too(flows: FlowStore) -> None:
    async def grandchild(ctx: Context) -> None:
        await ctx.approval("review")

    async def child(ctx: Context) -> None:
        await ctx.run_flow(grandchild)

    async def flow(ctx: Context) -> None:
        await ctx.run_flow(child)

    with pytest.raises(RunPaused) as raised:
        await run_flow(flow, run_id="r", store=flows.named)
    await cancel_flow("r", store=flows.named)

    for run_id in ("r", child_of(flows), raised.value.run_id):
        assert flows.kinds(run_id)[-1] == "run.cancelled"


async def test_another_child_in_its_place_is_refused(flows: FlowStore) -> None:
    async def one(ctx: Context) -> str:
        return await ctx.approval("review")

    async def other(ctx: Context) -> str:
        return "other"

    chosen: Any = one

    async def flow(ctx: Context) -> str:
        return await ctx.run_flow(chosen)

    with pytest.raises(RunPaused):
        await run_flow(flow, run_id="r", store=flows.named)
    chosen = other

    with pytest.raises(Nondeterminism, match=r"child flow 'one' .* child flow 'other'"):
        await run_flow(flow, run_id="r", store=flows.named)
