"""Recorded values, timers, and events from outside, on every store."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.support.flow_stores import FlowStore
from tests.support.progress_limit import until
from tests.support.stores import finish

from holdfast import Context, EventTimeout, RunPaused, decide, run_flow, send_event
from holdfast.errors import PayloadInvalid, RunAlreadyTerminal, RunNotFound
from holdfast.runtime.checkpoint import InMemoryCheckpointer
from holdfast.runtime.events import EventKind, create_event
from holdfast.runtime.records import Records
from holdfast.runtime.run_log import RunLog
from holdfast.runtime.step import Parked
from holdfast.runtime.stores import open_journal


async def test_time_chance_and_ids_are_the_same_on_every_replay(flows: FlowStore) -> None:
    seen: list[tuple[datetime, float, UUID, UUID]] = []

    async def flow(ctx: Context) -> str:
        seen.append((await ctx.now(), await ctx.random(), await ctx.uuid(), await ctx.uuid()))
        return await ctx.approval("go")

    with pytest.raises(RunPaused):
        await run_flow(flow, run_id="r", store=flows.named)
    await decide("r", "go", "approve", store=flows.named)
    await run_flow(flow, run_id="r", store=flows.named)

    assert seen[0] == seen[1]
    moment, number, first, second = seen[0]
    assert abs(datetime.now(UTC) - moment) < timedelta(hours=1)
    assert 0 <= number < 1
    assert first != second
    assert flows.kinds().count("value.recorded") == 4


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda ctx: ctx.sleep("soon"), TypeError, "ctx.sleep takes a number of seconds or a timedelta"),
        (lambda ctx: ctx.sleep(float("nan")), TypeError, "ctx.sleep"),
        (lambda ctx: ctx.sleep_until(datetime(2030, 1, 1)), ValueError, "time zone .*tzinfo=UTC"),
        (lambda ctx: ctx.sleep_until(5), TypeError, "ctx.sleep_until takes a datetime"),
        (lambda ctx: ctx.wait_for(""), TypeError, "key of a wait"),
        (lambda ctx: ctx.wait_for("a", timeout="x"), TypeError, "timeout of ctx.wait_for"),
        (lambda ctx: ctx.changed(3), TypeError, "key of a version marker"),
        (lambda ctx: ctx.compensate("x"), TypeError, "needs a function"),
    ],
)
async def test_wrong_arguments_are_refused_with_advice(call: Any, error: type[Exception], match: str) -> None:
    async def flow(ctx: Context) -> None:
        await call(ctx)

    with pytest.raises(error, match=match):
        await run_flow(flow, run_id="r", store=InMemoryCheckpointer())


async def test_a_sleep_takes_a_timedelta_or_a_moment(flows: FlowStore) -> None:
    async def flow(ctx: Context) -> str:
        await ctx.sleep(timedelta(milliseconds=5))
        await ctx.sleep_until(await ctx.now() + timedelta(milliseconds=5))
        await ctx.sleep_until(datetime(2020, 1, 1, tzinfo=UTC))
        return "awake"

    assert await run_flow(flow, run_id="r", store=flows.named) == "awake"
    timers = [event.payload for event in flows.events() if event.kind == "timer.started"]
    assert [timer["key"] for timer in timers] == ["sleep", "sleep#2", "sleep#3"]
    assert timers[2]["seconds"] == 0


# -- events -----------------------------------------------------------------------------------------------------------


async def test_events_that_came_before_are_read_in_order_and_later_ones_end_the_wait(flows: FlowStore) -> None:
    async def flow(ctx: Context) -> list[Any]:
        await ctx.approval("go")
        return [await ctx.wait_for("paid"), await ctx.wait_for("paid"), await ctx.wait_for("sent")]

    with pytest.raises(RunPaused):
        await run_flow(flow, run_id="r", store=flows.named)
    await send_event("r", "paid", {"amount": 1}, store=flows.named)
    await send_event("r", "paid", [2], store=flows.named)
    await decide("r", "go", "approve", store=flows.named)
    running = asyncio.create_task(run_flow(flow, run_id="r", store=flows.named))
    await until(lambda: "wait.started" in flows.kinds())
    await send_event("r", "sent", store=flows.named)

    assert await running == [{"amount": 1}, [2], None]
    assert flows.kinds().count("wait.started") == 1


async def test_another_process_sends_what_this_one_waits_for(disk_flows: FlowStore) -> None:
    async def flow(ctx: Context) -> Any:
        return await ctx.wait_for("go", timeout=timedelta(hours=1))

    running = asyncio.create_task(run_flow(flow, run_id="r", store=disk_flows.named))
    await until(lambda: "wait.started" in disk_flows.kinds())
    child = disk_flows.start_process('asyncio.run(send_event("r", "go", "from afar", store=store))')

    if disk_flows.kind == "jsonl":  # a plain store hears nothing of other processes: the next append, or resume, does
        finish(child)
        await send_event("r", "other", store=disk_flows.named)
    assert await running == "from afar"
    if disk_flows.kind != "jsonl":
        finish(child)


async def test_an_event_sent_again_with_its_dedup_id_counts_once(flows: FlowStore) -> None:
    async def flow(ctx: Context) -> list[Any]:
        await ctx.approval("go")
        first = await ctx.wait_for("paid")
        try:
            return [first, await ctx.wait_for("paid", timeout=0)]
        except EventTimeout:
            return [first]

    with pytest.raises(RunPaused):
        await run_flow(flow, run_id="r", store=flows.named)
    await asyncio.gather(*(send_event("r", "paid", n, store=flows.named, dedup_id="p1") for n in (1, 2, 3)))
    await send_event("r", "paid", 4, store=flows.named, dedup_id="p1")
    # Two senders at once may both have looked before either wrote.
    flows.open_beside().save_event(create_event("r", EventKind.EVENT_RECEIVED, name="paid", data=5, dedup_id="p1"))
    await decide("r", "go", "approve", store=flows.named)

    assert len(await run_flow(flow, run_id="r", store=flows.named)) == 1
    # Whoever sends it again, a program that was killed or a webhook, does not know that the first one has arrived.
    await send_event("r", "paid", 1, store=flows.named, dedup_id="p1")
    with pytest.raises(RunAlreadyTerminal):
        await send_event("r", "paid", 1, store=flows.named, dedup_id="p2")


async def test_a_time_out_is_recorded_and_a_replay_takes_the_same_branch(flows: FlowStore) -> None:
    async def flow(ctx: Context) -> list[Any]:
        try:
            answer = await ctx.wait_for("answer", timeout=0.01)
        except EventTimeout as error:
            answer = [error.code, isinstance(error, TimeoutError)]
        await ctx.approval("go")
        return [answer, await ctx.wait_for("answer")]

    with pytest.raises(RunPaused):
        await run_flow(flow, run_id="r", store=flows.named)
    await send_event("r", "answer", "late", store=flows.named)
    await decide("r", "go", "approve", store=flows.named)

    assert await run_flow(flow, run_id="r", store=flows.named) == [["event_timeout", True], "late"]


async def test_lanes_that_wait_for_one_name_get_an_event_each(flows: FlowStore) -> None:
    async def flow(ctx: Context) -> list[Any]:
        return await ctx.gather(ctx.wait_for("job"), ctx.wait_for("job"), ctx.step("beside", lambda: "done"))

    running = asyncio.create_task(run_flow(flow, run_id="r", store=flows.named))
    await until(lambda: flows.kinds().count("wait.started") == 2)
    await asyncio.gather(*(send_event("r", "job", n, store=flows.named) for n in (1, 2)))

    first, second, beside = await running
    assert ({first, second}, beside) == ({1, 2}, "done")


async def test_sending_to_nobody_or_to_the_past_is_refused_and_writes_nothing(flows: FlowStore) -> None:
    async def flow(ctx: Context) -> str:
        return "over"

    await run_flow(flow, run_id="r", store=flows.named)
    before = flows.events()

    with pytest.raises(RunNotFound):
        await send_event("nobody", "go", 1, store=flows.named)
    with pytest.raises(RunAlreadyTerminal, match="completed"):
        await send_event("r", "go", 1, store=flows.named)
    with pytest.raises(PayloadInvalid, match="data of event 'go'"):
        await send_event("r", "go", {1}, store=flows.named)
    assert flows.events() == before
    assert flows.events("nobody") == []


# -- a place that is given back ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "key", "wakes"),
    [
        (lambda ctx: ctx.sleep(3600), "sleep", True),
        (lambda ctx: ctx.wait_for("go"), "go", False),
        (lambda ctx: ctx.wait_for("go", timeout=3600), "go", True),
        (lambda ctx: ctx.gather(ctx.wait_for("go"), ctx.sleep(3600), ctx.sleep(7200)), "g1.2/sleep", True),
    ],
)
async def test_a_long_wait_gives_its_place_back_where_that_is_wanted(call: Any, key: str, wakes: bool) -> None:
    async with open_journal(InMemoryCheckpointer()) as journal:
        context = Context(RunLog(journal, await journal.claim("r"), Records()), journal, park_after_s=0.02)

        with pytest.raises(Parked) as raised:
            await context.run(lambda: call(context))

    assert (raised.value.key, raised.value.run_ids) == (key, ("r",))
    assert (raised.value.wake_at is not None) is wakes


async def test_the_first_of_several_events_is_read_and_the_same_one_on_every_replay(flows: FlowStore) -> None:
    seen: list[list[tuple[str, Any]]] = []

    async def flow(ctx: Context) -> list[tuple[str, Any]]:
        await ctx.step("begin", lambda: None)
        if not seen:
            for name, data in (("void", 1), ("paid", 2), ("other", 3)):
                await send_event("r", name, data, store=flows.named)
        read = [await ctx.wait_for_any("paid", "void"), await ctx.wait_for_any("paid", "void")]
        seen.append(read)
        with pytest.raises(EventTimeout, match="paid or void"):
            await ctx.wait_for_any("paid", "void", timeout=0.01)
        await ctx.approval("go")
        return [*read, ("other", await ctx.wait_for("other"))]

    with pytest.raises(RunPaused):
        await run_flow(flow, run_id="r", store=flows.named)
    await decide("r", "go", "approve", store=flows.named)
    result = await run_flow(flow, run_id="r", store=flows.named)

    assert result == [("void", 1), ("paid", 2), ("other", 3)]
    assert seen == [[("void", 1), ("paid", 2)]] * 2
