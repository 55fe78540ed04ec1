"""What watchers see of a run, tags, and flows without `async`, on every store."""

import asyncio
import threading
from typing import Any

import pytest
from tests.support.flow_stores import FlowStore
from tests.support.progress_limit import until

from holdfast import Context, RunCancelled, RunPaused, SyncContext, cancel_flow, decide, follow, run_flow
from holdfast.errors import PayloadInvalid, RunNotFound


async def talk(ctx: Context) -> str:
    ctx.set_status("beginning")
    for number in range(3):
        await ctx.step("work", lambda: None)
        ctx.log("worked", number=number)
        ctx.emit({"part": number})
    await ctx.approval("go")
    ctx.set_status("at the end")
    return "done"


async def test_notes_are_written_once_however_often_the_flow_replays(flows: FlowStore) -> None:
    for _ in range(2):
        with pytest.raises(RunPaused):
            await run_flow(talk, run_id="r", store=flows.named)
        await asyncio.gather(run_flow(talk, run_id="r", store=flows.named), return_exceptions=True)
    await decide("r", "go", "approve", store=flows.named)
    await run_flow(talk, run_id="r", store=flows.named, tags={"team": "late"})

    notes = [event for event in flows.events() if event.kind in ("log.written", "status.set", "partial.emitted")]
    assert [str(event.visibility) for event in notes] == ["public"] * 8
    assert [event.payload["fields"] for event in notes if event.kind == "log.written"] == [
        {"number": number} for number in range(3)
    ]
    assert [event.payload["text"] for event in notes if event.kind == "status.set"] == ["beginning", "at the end"]


async def test_a_note_can_be_added_to_code_whose_runs_are_under_way(flows: FlowStore) -> None:
    is_talkative = False

    async def flow(ctx: Context) -> str:
        await ctx.step("a", lambda: 1)
        if is_talkative:
            ctx.log("between")
        await ctx.step("b", lambda: 1)
        await ctx.approval("go")
        if is_talkative:
            ctx.log("after")
        return "done"

    with pytest.raises(RunPaused):
        await run_flow(flow, run_id="r", store=flows.named)
    is_talkative = True
    await decide("r", "go", "approve", store=flows.named)
    await run_flow(flow, run_id="r", store=flows.named)

    assert [event.payload["message"] for event in flows.events() if event.kind == "log.written"] == ["after"]


async def test_what_is_no_json_data_cannot_be_said() -> None:
    async def flow(ctx: Context) -> None:
        ctx.emit({1, 2})

    with pytest.raises(PayloadInvalid, match=r"partial\.emitted"):
        await run_flow(flow, run_id="r", store=_memory())


def _memory() -> Any:
    from holdfast.runtime.checkpoint import InMemoryCheckpointer

    return InMemoryCheckpointer()


async def test_a_follower_sees_every_event_live_and_ends_with_the_run(flows: FlowStore) -> None:
    with pytest.raises(RunNotFound):
        await anext(follow("r", store=flows.named))

    async def watch() -> list[int]:
        return [event.seq async for event in follow("r", store=flows.named)]

    with pytest.raises(RunPaused):
        await run_flow(talk, run_id="r", store=flows.named)
    watching = [asyncio.create_task(watch()) for _ in range(2)]
    await decide("r", "go", "approve", store=flows.named)
    await run_flow(talk, run_id="r", store=flows.named)

    for numbers in await asyncio.gather(*watching):
        assert numbers == list(range(1, len(flows.events()) + 1))
    last = flows.events()[-1].seq
    assert [event.seq async for event in follow("r", store=flows.named, after=last - 1)] == [last]


async def test_tags_are_recorded_with_the_run(flows: FlowStore) -> None:
    async def flow(ctx: Context) -> None: ...

    await run_flow(flow, run_id="r", store=flows.named, tags={"team": "x"})

    assert flows.events()[0].payload["tags"] == {"team": "x"}
    with pytest.raises(TypeError, match="tags are texts"):
        await run_flow(flow, run_id="s", store=flows.named, tags={"n": 1})  # type: ignore[dict-item]


# -- flows without async ----------------------------------------------------------------------------------------------


async def test_a_plain_function_is_a_flow_in_a_thread_of_its_own(flows: FlowStore) -> None:
    threads: set[str] = set()
    calls: list[str] = []

    def work(name: str) -> str:
        threads.add(threading.current_thread().name)
        calls.append(name)
        return name

    async def child(ctx: Context, number: int) -> int:
        return number + 1

    def flow(ctx: SyncContext, start: int) -> list[Any]:
        threads.add(threading.current_thread().name)
        first = ctx.step("first", work, "first")
        lanes = ctx.gather(lambda: ctx.step("lane", work, "a"), lambda: ctx.step("lane", work, "b"))
        ctx.log("in a thread")
        number = ctx.run_flow(child, start)
        ctx.sleep(0.001)
        with ctx.compensate(work, "undone"):
            ctx.approval("go")
        return [first, lanes, number, str(ctx.uuid()), ctx.changed("x")]

    with pytest.raises(RunPaused):
        await run_flow(flow, 1, run_id="r", store=flows.named)
    await decide("r", "go", "approve", store=flows.named)
    result = await run_flow(flow, 1, run_id="r", store=flows.named)

    assert result[:3] == ["first", ["a", "b"], 2]
    assert sorted(calls) == ["a", "b", "first"]
    assert threading.main_thread().name not in threads
    assert flows.kinds().count("log.written") == 1


async def test_a_plain_flow_is_cancelled_at_its_calls_and_undoes(flows: FlowStore) -> None:
    undone: list[str] = []

    def flow(ctx: SyncContext) -> None:
        with ctx.compensate(undone.append, "flight"):
            ctx.wait_for("go")

    running = asyncio.create_task(run_flow(flow, run_id="r", store=flows.named))
    await until(lambda: "wait.started" in flows.kinds())
    await cancel_flow("r", store=flows.named)

    with pytest.raises(RunCancelled):
        await running
    assert undone == ["flight"]


async def test_a_plain_flow_that_fails_raises_its_own_error_and_goes_on_at_the_failed_step() -> None:
    store = _memory()
    is_broken = True

    def call() -> str:
        if is_broken:
            raise LookupError("gone")
        return "there"

    def flow(ctx: SyncContext) -> str:
        return ctx.step("call", call)

    with pytest.raises(LookupError, match="gone"):
        await run_flow(flow, run_id="r", store=store)
    is_broken = False

    assert await run_flow(flow, run_id="r", store=store) == "there"
