"""`ctx.gather`: lanes that run beside each other, each in an order of its own."""

import asyncio
from typing import Any

import pytest
from tests.support.flow_stores import FlowStore

from holdfast import Context, SyncContext, run_flow, step_key
from holdfast.errors import Nondeterminism
from holdfast.runtime.checkpoint import InMemoryCheckpointer


async def test_results_come_in_the_order_of_the_arguments(flows: FlowStore) -> None:
    turns = [asyncio.Event() for _ in range(4)]
    turns[-1].set()

    async def call(number: int) -> int:
        await turns[number].wait()
        turns[number - 1].set()
        return number

    async def flow(ctx: Context) -> list[int]:
        return await ctx.gather(*(ctx.step("call", call, number) for number in range(4)))

    assert await run_flow(flow, run_id="r", store=flows.named) == [0, 1, 2, 3]


async def test_lanes_number_their_steps_on_their_own_and_are_replayed_by_lane(flows: FlowStore) -> None:
    calls: list[str] = []

    def call() -> str:
        calls.append(step_key())
        return step_key()

    async def flow(ctx: Context) -> list[Any]:
        async def lane() -> list[str]:
            return [await ctx.step("a", call), await ctx.step("a", call)]

        results = [await ctx.gather(lane(), lane()), await ctx.step("a", call), await ctx.gather(lane())]
        if is_broken:
            raise ValueError
        return results

    is_broken = True
    with pytest.raises(ValueError):
        await run_flow(flow, run_id="r", store=flows.named)
    is_broken = False

    assert await run_flow(flow, run_id="r", store=flows.named) == [
        [["r:g1.1/a", "r:g1.1/a#2"], ["r:g1.2/a", "r:g1.2/a#2"]],
        "r:a",
        [["r:g2.1/a", "r:g2.1/a#2"]],
    ]
    assert len(calls) == len(set(calls)) == 7


async def test_lanes_can_hold_lanes_and_anything_else_that_can_be_awaited(flows: FlowStore) -> None:
    async def flow(ctx: Context) -> list[Any]:
        async def inner(name: str) -> list[str]:
            return await ctx.gather(*(ctx.step(name, step_key) for _ in range(2)))

        return await ctx.gather(inner("a"), ctx.sleep(0), asyncio.sleep(0, "plain"), inner("b"), ctx.gather())

    assert await run_flow(flow, run_id="r", store=flows.named) == [
        ["r:g1.1/g1.1/a", "r:g1.1/g1.2/a"],
        None,
        "plain",
        ["r:g1.4/g1.1/b", "r:g1.4/g1.2/b"],
        [],
    ]


async def test_gathering_nothing_is_an_empty_list_and_records_nothing(flows: FlowStore) -> None:
    async def flow(ctx: Context) -> list[Any]:
        return await ctx.gather()

    assert await run_flow(flow, run_id="r", store=flows.named) == []
    assert flows.kinds() == ["run.created", "run.started", "run.completed"]


async def test_all_lanes_come_to_their_end_before_the_first_failure_is_raised(flows: FlowStore) -> None:
    calls: list[str] = []
    broken = {"b", "d"}

    async def call(name: str) -> str:
        calls.append(name)
        await asyncio.sleep(0)
        if name in broken:
            raise ValueError(name)
        return name

    async def flow(ctx: Context) -> list[str]:
        async def lane(name: str) -> str:
            await asyncio.sleep(0)
            return await ctx.step(name, call, name) + await ctx.step("after", call, f"{name}!")

        return await ctx.gather(*(lane(name) for name in "abcd"))

    with pytest.raises(ValueError, match="b"):
        await run_flow(flow, run_id="r", store=flows.named)
    assert sorted(calls) == ["a", "a!", "b", "c", "c!", "d"]
    calls.clear()
    broken.remove("b")
    with pytest.raises(ValueError, match="d"):
        await run_flow(flow, run_id="r", store=flows.named)
    broken.clear()

    assert await run_flow(flow, run_id="r", store=flows.named) == ["aa!", "bb!", "cc!", "dd!"]
    # "d" is tried again only when it is its failure that ends the run.
    assert sorted(calls) == ["b", "b!", "d", "d!"]


async def test_a_failure_in_a_lane_can_be_caught_and_is_replayed(flows: FlowStore) -> None:
    calls: list[str] = []

    async def flow(ctx: Context) -> str:
        try:
            await ctx.gather(ctx.step("a", lambda: calls.append("a")), ctx.step("b", lambda: {}["missing"]))
        except KeyError:
            result = await ctx.step("c", lambda: "caught")
        if is_broken:
            raise ValueError
        return result

    is_broken = True
    with pytest.raises(ValueError):
        await run_flow(flow, run_id="r", store=flows.named)
    is_broken = False

    assert await run_flow(flow, run_id="r", store=flows.named) == "caught"
    assert calls == ["a"]


async def test_a_slow_lane_beside_a_failed_step_keeps_what_it_did_after_it(flows: FlowStore) -> None:
    calls: list[str] = []
    has_failed = asyncio.Event()

    def fail() -> str:
        if not has_failed.is_set():
            has_failed.set()
            raise ValueError("once")
        return "mended"

    async def slow() -> str:
        await has_failed.wait()
        calls.append("slow")
        return "slow"

    async def flow(ctx: Context) -> list[str]:
        return await ctx.gather(ctx.step("fail", fail), ctx.step("slow", slow))

    with pytest.raises(ValueError):
        await run_flow(flow, run_id="r", store=flows.named)

    assert await run_flow(flow, run_id="r", store=flows.named) == ["mended", "slow"]
    assert calls == ["slow"]


@pytest.mark.parametrize("catches", [False, True])
async def test_plain_gather_over_steps_is_refused_clearly(flows: FlowStore, catches: bool) -> None:
    async def flow(ctx: Context) -> str:
        await asyncio.gather(
            ctx.step("a", asyncio.sleep, 0), ctx.step("b", asyncio.sleep, 0), return_exceptions=catches
        )
        return "went on"

    with pytest.raises(Nondeterminism, match="'b' was asked for while step 'a' of lane 'main' runs") as raised:
        await run_flow(flow, run_id="r", store=flows.named)
    assert "ctx.gather" in raised.value.hint
    assert "run.completed" not in flows.kinds()

    async def mended(ctx: Context) -> str:
        await ctx.step("a", asyncio.sleep, 0)
        return "one after the other"

    assert await run_flow(mended, run_id="r", store=flows.named) == "one after the other"


async def tasks_in_gather(ctx: Context) -> None:
    await ctx.gather(*(asyncio.create_task(ctx.step(name, asyncio.sleep, 0)) for name in "ab"))


async def gathers_at_once(ctx: Context) -> None:
    await asyncio.gather(ctx.gather(ctx.step("a", asyncio.sleep, 0)), ctx.gather(ctx.step("b", asyncio.sleep, 0)))


async def a_task_group(ctx: Context) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.step("a", asyncio.sleep, 0))
        group.create_task(ctx.step("b", asyncio.sleep, 0))


@pytest.mark.parametrize("flow", [tasks_in_gather, gathers_at_once, a_task_group])
async def test_every_other_way_to_run_steps_at_once_is_refused_too(flow: Any) -> None:
    store = InMemoryCheckpointer()

    with pytest.raises(Nondeterminism) as raised:
        await run_flow(flow, run_id="r", store=store)

    assert "ctx.gather" in raised.value.hint


async def test_a_lane_that_is_no_longer_there_is_refused(flows: FlowStore) -> None:
    async def flow(ctx: Context) -> None:
        await ctx.gather(*(ctx.step("a", lambda: 1) for _ in range(lanes)))
        raise ValueError

    lanes = 3
    with pytest.raises(ValueError):
        await run_flow(flow, run_id="r", store=flows.named)
    lanes = 2

    async def shorter(ctx: Context) -> None:
        await ctx.gather(*(ctx.step("a", lambda: 1) for _ in range(lanes)))

    with pytest.raises(Nondeterminism, match=r"g1\.3/a"):
        await run_flow(shorter, run_id="r", store=flows.named)
    lanes = 3
    await run_flow(shorter, run_id="r", store=flows.named)


async def test_cancelling_the_task_cancels_every_lane_and_the_run_can_go_on(flows: FlowStore) -> None:
    started: list[int] = []
    ended: list[int] = []
    all_started = asyncio.Event()

    async def call(number: int) -> int:
        started.append(number)
        if len(started) == 3:
            all_started.set()
        if len(started) <= 3:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(number)
        return number

    async def flow(ctx: Context) -> list[int]:
        return await ctx.gather(*(ctx.step("call", call, number) for number in range(3)))

    task = asyncio.create_task(run_flow(flow, run_id="r", store=flows.named))
    await all_started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(ended) == [0, 1, 2]

    assert await run_flow(flow, run_id="r", store=flows.named) == [0, 1, 2]


async def test_hundreds_of_lanes(flows: FlowStore) -> None:
    count = 50 if flows.kind in ("postgres", "jsonl") else 300

    async def flow(ctx: Context) -> list[int]:
        return await ctx.gather(*(ctx.step("n", lambda number=number: number) for number in range(count)))

    assert await run_flow(flow, run_id="r", store=flows.named) == list(range(count))


async def test_a_plain_flow_limits_its_lanes_and_gets_failures_as_results(flows: FlowStore) -> None:
    def fail() -> int:
        raise LookupError("nothing there")

    def flow(ctx: SyncContext) -> list[str]:
        found = ctx.gather(
            lambda: ctx.step("a", lambda: 1), lambda: ctx.step("b", fail), limit=1, return_exceptions=True
        )
        with pytest.raises(TypeError, match="limit of"):
            ctx.gather(lambda: 1, limit=0)
        return [str(each) for each in found]

    assert await run_flow(flow, run_id="r", store=flows.named) == ["1", "nothing there"]
