"""Mistakes that users make: each is refused at once, by a sentence that says what to write instead."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import Context, Runtime, SyncContext, run_flow, start_flow
from holdfast.errors import ConfigInvalid, Nondeterminism
from holdfast.testing import memory_store


async def double(number: int) -> int:
    return number * 2


async def call_in_place(ctx: Any) -> None:
    await ctx.step("double", double(1))


async def function_first(ctx: Any) -> None:
    await ctx.step(double, 1)


async def gather_a_list(ctx: Any) -> None:
    await ctx.gather([ctx.step("a", double, 1), ctx.step("b", double, 2)])


async def gather_a_function(ctx: Any) -> None:
    await ctx.gather(ctx.step("a", double, 1), double)


async def child_of_no_name(ctx: Any) -> None:
    await ctx.run_flow("nobody's")


async def child_of_no_kind(ctx: Any) -> None:
    await ctx.run_flow(7)


def plain_child_of_no_name(ctx: SyncContext) -> None:
    ctx.run_flow("nobody's")


def steps_in_own_threads(ctx: SyncContext) -> list[int]:
    with ThreadPoolExecutor(1) as pool:
        return list(pool.map(lambda number: ctx.step("double", abs, number), range(2)))


async def cut_off(ctx: Any) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0):
            await ctx.step("long", asyncio.Event().wait)
    await ctx.step("after", double, 1)


async def bare_compensation(ctx: Any) -> None:
    ctx.compensate(double, 1)
    with contextlib.suppress(Exception):
        await ctx.step("next", double, 1)


async def compensation_in_a_lane(ctx: Any) -> None:
    async def lane() -> None:
        block = ctx.compensate(double, 1)
        await ctx.step("next", double, 1)
        del block

    await ctx.gather(lane(), ctx.step("beside", double, 1))


def plain_bare_compensation(ctx: SyncContext) -> None:
    ctx.compensate(double, 1)


async def start_in_place(ctx: Any) -> None:
    with contextlib.suppress(Exception):
        await start_flow("other", store="nowhere.db")


async def run_in_place(ctx: Any) -> None:
    await run_flow(order, 1, store="nowhere.db")


MISTAKES: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (call_in_place, TypeError, r"not its call: write ctx\.step\('double', double, …\), not double\(…\)"),
    (function_first, TypeError, r"its key comes first, ctx\.step\('key', …\)"),
    (gather_a_list, TypeError, r"write ctx\.gather\(\*items\)"),
    (gather_a_function, TypeError, r"takes awaitables, such as ctx\.step\(…\).*not <function double"),
    (child_of_no_name, ConfigInvalid, 'No flow is registered as "nobody\'s"'),
    (child_of_no_kind, TypeError, "takes a flow or its name, not 7"),
    (steps_in_own_threads, Nondeterminism, r"in a thread that is not the flow's\. .*ctx\.gather"),
    (cut_off, Nondeterminism, r"step 'long' was cancelled before its end.*ctx\.step\.options\(timeout=5\)"),
    (start_in_place, Nondeterminism, r"start_flow in the code of a flow would start another run at every resume"),
    (run_in_place, Nondeterminism, r"run_flow in the code of a flow.*Use ctx\.run_flow\(child, …\)"),
    (bare_compensation, TypeError, r"never entered.*write `async with ctx\.compensate\(double, …\):`"),
    (compensation_in_a_lane, TypeError, r"compensate\(double, …\) was never entered"),
    (plain_bare_compensation, TypeError, r"compensate\(double, …\) was never entered"),
    (plain_child_of_no_name, ConfigInvalid, 'No flow is registered as "nobody\'s"'),
]


@pytest.mark.parametrize(("flow", "error", "message"), MISTAKES)
async def test_a_mistake_is_refused_with_what_to_write(
    flow: Callable[[Any], Awaitable[Any]], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        await run_flow(flow, store=memory_store())  # type: ignore[call-overload]


async def test_a_run_whose_compensation_was_never_entered_goes_on_once_it_is() -> None:
    async def booked(ctx: Context) -> int:
        block = ctx.compensate(double, 1)
        if is_right:
            async with block:
                pass
        del block
        return await ctx.step("next", double, 1)

    is_right, store = False, memory_store()
    with pytest.raises(TypeError):
        await run_flow(booked, run_id="r", store=store)
    is_right = True
    assert await run_flow(booked, run_id="r", store=store) == 2


async def test_a_flow_that_is_called_in_place_is_refused() -> None:
    with pytest.raises(TypeError, match=r"not its call: write run_flow\(double, …\), not double\(…\)"):
        await run_flow(double(1), store=memory_store())  # type: ignore[call-overload]


@pytest.mark.parametrize("flows", [double, "double"])
def test_one_flow_is_no_list_of_flows(flows: Any) -> None:
    with pytest.raises(TypeError, match=r"write flows=\[…\]"):
        Runtime(memory_store(), flows=flows)


async def order(ctx: Context, number: int, note: str = "") -> int:
    return await ctx.step("double", double, number)


async def test_a_step_may_start_a_run_and_so_may_a_flow_that_names_it() -> None:
    async def starting(ctx: Context) -> list[str]:
        named = await start_flow("other", run_id="named", store=store)
        return [named.run_id, await ctx.step("start", start_other)]

    async def start_other() -> str:
        return (await start_flow("other", store=store)).run_id

    store = memory_store()
    assert set(await run_flow(starting, run_id="r", store=store)) | {"r"} == set(store.list_runs())


async def test_other_arguments_are_refused_with_both() -> None:
    store = memory_store()
    await run_flow(order, 1, run_id="r", store=store)

    with pytest.raises(Nondeterminism, match=r"other kwargs than now: \(1\) then, \(1, note=\"x+…\) now") as raised:
        await run_flow(order, 1, note="x" * 500, run_id="r", store=store)  # type: ignore[call-overload]

    assert "another id" in raised.value.hint
