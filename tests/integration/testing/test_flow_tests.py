"""What users test their flows with: skipped time, simulated crashes, replays of recorded journals, fixtures."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Runtime, flow, run_flow, start_flow
from holdfast.errors import ConfigInvalid, Nondeterminism, RunPaused
from holdfast.runtime.checkpoint import SQLiteCheckpointer
from holdfast.testing import SimulatedCrash, VirtualClock, crash_at, memory_store, replay, skip_time

DAY_S = 86_400.0


async def test_sleeps_are_skipped_in_the_order_of_their_ends(
    holdfast_store: SQLiteCheckpointer, holdfast_clock: VirtualClock
) -> None:
    order: list[str] = []

    async def one(ctx: Context, name: str, days: float) -> None:
        await ctx.sleep(days * DAY_S)
        await ctx.step(name, lambda: order.append(name))

    async def sleeper(ctx: Context) -> None:
        await ctx.gather(one(ctx, "late", 30), one(ctx, "early", 1), one(ctx, "between", 7))

    started = holdfast_clock.now()
    await run_flow(sleeper, store=holdfast_store)
    assert order == ["early", "between", "late"]
    assert holdfast_clock.now() - started == pytest.approx(30 * DAY_S, abs=1)
    assert holdfast_clock.skipped_s == pytest.approx(30 * DAY_S, abs=1)


async def test_retries_are_made_at_once() -> None:
    tries: list[float] = []

    with skip_time(start=1000.0) as clock:

        def broken() -> None:
            tries.append(clock.now())
            raise OSError("away")

        async def stubborn(ctx: Context) -> None:
            await ctx.step("call", broken, retries=3, backoff_s=100)

        with pytest.raises(OSError, match="away"):
            await run_flow(stubborn, store=memory_store())
    assert len(tries) == 4
    assert tries[-1] - tries[0] > 140  # three times the longest wait of a minute, less what is left to chance


async def test_a_runtime_wakes_parked_flows_in_skipped_time(holdfast_clock: VirtualClock) -> None:
    store = memory_store()

    @flow("reminder")
    async def reminder(ctx: Context) -> str:
        await ctx.sleep(90 * DAY_S)
        return "hello again"

    async with Runtime(store, flows=[reminder]):
        handles = [await start_flow("reminder", store=store) for _ in range(3)]
        assert await asyncio.gather(*(handle.result() for handle in handles)) == ["hello again"] * 3
    assert holdfast_clock.skipped_s >= 90 * DAY_S


@pytest.mark.parametrize(("moment", "calls"), [("before", 1), ("after", 2), ("recorded", 1)])
async def test_a_run_goes_on_after_a_crash_at_each_moment(moment: Any, calls: int) -> None:
    store, made = memory_store(), []

    async def order(ctx: Context) -> str:
        await ctx.step("charge", lambda: made.append("charge"))
        return await ctx.step("ship", lambda: "shipped")

    with crash_at("charge", moment) as point, pytest.raises(SimulatedCrash, match=moment):
        await run_flow(order, run_id="r", store=store)
    assert point.has_crashed
    assert await run_flow(order, run_id="r", store=store) == "shipped"
    assert made == ["charge"] * calls


async def test_after_a_crash_in_one_lane_no_lane_records_anything_and_the_flow_cannot_swallow_it() -> None:
    store = memory_store()

    async def lane(ctx: Context, name: str) -> None:
        try:
            await ctx.step(name, lambda: name, on_unknown="ask")
        except BaseException:
            return

    async def careless(ctx: Context) -> None:
        await ctx.gather(lane(ctx, "a"), lane(ctx, "b"))

    with crash_at("a", "after"), pytest.raises(SimulatedCrash):
        await run_flow(careless, run_id="r", store=store)
    assert "run.completed" not in [event.kind for event in store.list_events("r")]
    with pytest.raises(RunPaused):
        await run_flow(careless, run_id="r", store=store)


async def test_a_crash_that_never_happens_fails_the_test() -> None:
    async def empty(ctx: Context) -> None: ...

    with pytest.raises(AssertionError, match="'nowhere'"), crash_at("nowhere"):
        await run_flow(empty, store=memory_store())


async def record(folder: Path, store: SQLiteCheckpointer, run_id: str = "r") -> Path:
    path = folder / "journal.jsonl"
    path.write_text("".join(json.dumps(event.to_dict()) + "\n" for event in store.list_events(run_id)))
    return path


async def test_a_recorded_journal_is_replayed_without_calling_anything(tmp_path: Path) -> None:
    store, calls = memory_store(), []

    async def greet(ctx: Context, name: str) -> str:
        await ctx.sleep(0.01)
        return await ctx.step("greet", lambda: calls.append(name) or f"hello {name}")

    await run_flow(greet, "you", run_id="r", store=store)
    journal = await record(tmp_path, store)
    found = await replay(journal, greet)
    assert (found.result, found.is_finished, calls) == ("hello you", True, ["you"])

    async def shouts(ctx: Context, name: str) -> str:
        return (await greet(ctx, name)).upper()

    async def asks_more(ctx: Context, name: str) -> str:
        greeting = await greet(ctx, name)
        await ctx.step("log", lambda: None)
        return greeting

    async def asks_otherwise(ctx: Context, name: str) -> str:
        return await ctx.step("welcome", lambda: "hi")

    for changed in (shouts, asks_more, asks_otherwise):
        with pytest.raises(Nondeterminism):
            await replay(journal, changed)


async def test_an_unfinished_journal_is_replayed_up_to_its_end_and_a_failed_one_to_its_failure(tmp_path: Path) -> None:
    store = memory_store()

    async def asks(ctx: Context) -> None:
        await ctx.step("first", lambda: 1)
        await ctx.approval("go")

    def fail() -> None:
        raise LookupError("nothing there")

    async def fails(ctx: Context) -> None:
        await ctx.step("look", fail)

    with pytest.raises(RunPaused):
        await run_flow(asks, run_id="r", store=store)
    assert not (await replay(await record(tmp_path, store), asks)).is_finished
    with pytest.raises(LookupError):
        await run_flow(fails, run_id="f", store=store)
    assert isinstance((await replay(await record(tmp_path, store, "f"), fails)).error, LookupError)


@pytest.mark.parametrize("content", ["", "no json", "[]", '{"kind": "run.created"}', "\x00"])
async def test_a_file_that_is_no_journal_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "journal.jsonl").write_text(content)
    with pytest.raises(ConfigInvalid):
        await replay(tmp_path / "journal.jsonl", test_a_file_that_is_no_journal_is_refused)


def test_the_plugin_loads_nothing_that_no_test_asks_for() -> None:
    code = "import sys, holdfast.testing.pytest_plugin; print([m for m in sys.modules if m.startswith('holdfast.')])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(eval(found.stdout)) <= {"holdfast.testing", "holdfast.testing.pytest_plugin"}
