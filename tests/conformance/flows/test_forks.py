"""A new run from where another stood before a step, on every store."""

from typing import Any

import pytest
from tests.support.flow_stores import FlowStore

from holdfast import Context, RunPaused, decide, fork_flow, run_flow, send_event, start_flow
from holdfast.errors import ConfigInvalid, RunNotFound

calls: list[str] = []


def call(name: str) -> str:
    calls.append(name)
    return name


async def child(ctx: Context, name: str) -> str:
    return await ctx.step("work", call, name)


async def errand(ctx: Context, number: int) -> list[Any]:
    first = await ctx.step("first", call, "first")
    data = await ctx.wait_for("data")
    lanes = await ctx.gather(ctx.step("left", call, "left"), ctx.run_flow(child, "right"))
    ctx.log("in the middle")
    decision = await ctx.approval("go", show=number)
    return [first, data, *lanes, str(decision), await ctx.step("last", call, "last")]


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


async def run_errand(flows: FlowStore) -> list[Any]:
    await start_flow(errand, 7, run_id="r", store=flows.named)
    await send_event("r", "other", 1, store=flows.named)
    await send_event("r", "data", {"n": 1}, store=flows.named)
    with pytest.raises(RunPaused):
        await run_flow(errand, 7, run_id="r", store=flows.named)
    await decide("r", "go", "approve", store=flows.named)
    return await run_flow(errand, 7, run_id="r", store=flows.named)


@pytest.mark.parametrize(
    ("before", "repeated"),
    [
        ("last", ["last"]),
        ("go", ["last"]),
        ("g1.2/child", ["last", "right"]),
        ("first", ["first", "last", "left", "right"]),
    ],
)
async def test_a_fork_does_what_comes_from_the_step_on_and_nothing_before_it(
    flows: FlowStore, before: str, repeated: list[str]
) -> None:
    result = await run_errand(flows)
    untouched = flows.kinds()
    calls.clear()

    handle = await fork_flow("r", before, new_id="f", store=flows.named)

    assert (handle.run_id, await handle.status()) == ("f", "pending")
    if before == "first":
        await send_event("f", "data", {"n": 1}, store=flows.named)
    if before != "last":
        with pytest.raises(RunPaused):
            await run_flow(errand, 7, run_id="f", store=flows.named)
        await decide("f", "go", "approve", store=flows.named)
    assert await run_flow(errand, 7, run_id="f", store=flows.named) == result
    # In which order the lanes' first appends come is theirs: what began after the step is done again.
    assert sorted(calls) in (repeated, sorted([*repeated, "left"]))
    assert flows.kinds() == untouched


async def test_the_same_id_again_is_the_same_fork_and_another_run_is_not(flows: FlowStore) -> None:
    await run_errand(flows)
    for _ in range(2):
        await fork_flow("r", "last", new_id="f", store=flows.named)

    with pytest.raises(ConfigInvalid, match="'f' is there already"):
        await fork_flow("r", "go", new_id="f", store=flows.named)
    with pytest.raises(ConfigInvalid, match="has no step 'lost'") as raised:
        await fork_flow("r", "lost", store=flows.named)
    assert "'first'" in raised.value.hint
    with pytest.raises(RunNotFound):
        await fork_flow("nobody", "first", store=flows.named)
    assert await run_flow(errand, 7, run_id="f", store=flows.named)


async def test_a_failed_run_is_forked_before_the_step_that_failed_and_calls_it_again(flows: FlowStore) -> None:
    outcomes = ["broken", "mended"]

    async def fragile(ctx: Context) -> str:
        await ctx.step("first", call, "first")

        def work() -> str:
            if (outcome := outcomes.pop(0)) == "broken":
                raise ValueError(outcome)
            return outcome

        return await ctx.step("work", work)

    with pytest.raises(ValueError, match="broken"):
        await run_flow(fragile, run_id="r", store=flows.named)

    await fork_flow("r", "work", new_id="f", store=flows.named)

    assert await run_flow(fragile, run_id="f", store=flows.named) == "mended"
    assert calls == ["first"]
