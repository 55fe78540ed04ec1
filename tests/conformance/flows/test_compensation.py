"""What was done is undone when a flow fails or is cancelled, on every store."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.flow_stores import FlowStore
from tests.support.progress_limit import until

from holdfast import Context, RunCancelled, RunPaused, cancel_flow, decide, run_flow, send_event
from holdfast.runtime.checkpoint import InMemoryCheckpointer
from holdfast.runtime.events import Event, EventKind, create_event
from holdfast.runtime.records import Records
from holdfast.runtime.run_log import RunLog
from holdfast.runtime.stores import open_journal


class Booking:
    """A flow that books two things, each of which can be undone, and then does something else."""

    def __init__(self, then: Callable[[Context], Any], *, undo_takes_s: float = 0.0) -> None:
        self.done: list[str] = []
        self.then = then
        self.is_stuck = False
        self._undo_takes_s = undo_takes_s

    async def flow(self, ctx: Context) -> str:
        await ctx.step("flight", self.done.append, "flight")
        async with ctx.compensate(self.undo, "flight"):
            await ctx.step("hotel", self.done.append, "hotel")
            async with ctx.compensate(self.undo, "hotel"):
                await self.then(ctx)
        return await ctx.step("thank", lambda: "booked")

    async def undo(self, what: str) -> None:
        if self._undo_takes_s:
            await asyncio.sleep(self._undo_takes_s)
        self.done.append(f"no {what}")
        if self.is_stuck and what == "hotel":
            await asyncio.sleep(3600)


_LONGER_THAN_UNWATCHED_S = 0.3  # requests are looked for in the middle of what takes longer than a tenth of a second
UNDONE = ["flight", "hotel", "no hotel", "no flight"]


def fail() -> None:
    raise ValueError("full")


async def test_nothing_is_undone_where_all_goes_well(flows: FlowStore) -> None:
    booking = Booking(lambda ctx: ctx.approval("go"))

    with pytest.raises(RunPaused):
        await run_flow(booking.flow, run_id="r", store=flows.named)
    await decide("r", "go", "approve", store=flows.named)

    assert await run_flow(booking.flow, run_id="r", store=flows.named) == "booked"
    assert booking.done == ["flight", "hotel"]


async def test_a_failure_undoes_from_the_inside_out_and_running_it_again_does_nothing_more(flows: FlowStore) -> None:
    booking = Booking(lambda ctx: ctx.step("pay", fail))

    for _ in range(2):
        with pytest.raises(ValueError, match="full"):
            await run_flow(booking.flow, run_id="r", store=flows.named)

    assert booking.done == UNDONE
    undone = [event.payload["key"] for event in flows.events() if event.payload.get("key", "").startswith("undo:")]
    assert undone == ["undo:undo", "undo:undo#2"]


async def test_a_compensation_that_fails_is_made_again_when_the_run_is_and_the_others_are_not() -> None:
    store = InMemoryCheckpointer()
    done: list[str] = []
    is_broken = True

    def give_back(what: str) -> None:
        if what == "hotel" and is_broken:
            raise ConnectionError("later")
        done.append(what)

    async def flow(ctx: Context) -> None:
        async with ctx.compensate(give_back, "flight"), ctx.compensate(give_back, "hotel"):
            await ctx.step("pay", fail)

    with pytest.raises(ConnectionError, match="later") as raised:
        await run_flow(flow, run_id="r", store=store)
    assert isinstance(raised.value.__cause__, ValueError)
    assert done == ["flight"]
    is_broken = False
    with pytest.raises(ValueError, match="full"):
        await run_flow(flow, run_id="r", store=store)

    assert done == ["flight", "hotel"]


@pytest.mark.parametrize(
    ("then", "sign"),
    [
        (lambda ctx: ctx.sleep(3600), "timer.started"),
        (lambda ctx: ctx.wait_for("go"), "wait.started"),
        (lambda ctx: ctx.gather(ctx.sleep(3600), ctx.step("beside", lambda: 1)), "timer.started"),
        (lambda ctx: asyncio.sleep(3600), "scope.opened"),
        (lambda ctx: ctx.step("long", asyncio.sleep, 3600, on_unknown="fail"), "step.started"),
    ],
)
async def test_a_cancellation_undoes_wherever_it_comes(then: Any, sign: str) -> None:
    store = InMemoryCheckpointer()
    booking = Booking(then)
    running = asyncio.create_task(run_flow(booking.flow, run_id="r", store=store))
    await until(lambda: sign in [event.kind for event in store.list_events("r")] and len(booking.done) == 2)

    await cancel_flow("r", reason="rain", by="ann", store=store)

    with pytest.raises(RunCancelled):
        await running
    assert running.cancelling() == 0
    assert booking.done == UNDONE
    assert store.list_events("r")[-1].payload == {"reason": "rain", "by": "ann"}


async def test_a_run_that_nobody_drives_is_cancelled_by_its_own_code(flows: FlowStore) -> None:
    booking = Booking(lambda ctx: ctx.approval("go"))
    with pytest.raises(RunPaused):
        await run_flow(booking.flow, run_id="r", store=flows.named)

    await cancel_flow("r", reason="rain", store=flows.named)
    assert flows.kinds()[-1] == "run.cancel.requested"
    with pytest.raises(RunCancelled):
        await run_flow(booking.flow, run_id="r", store=flows.named)

    assert booking.done == UNDONE
    assert flows.kinds()[-1] == "run.cancelled"


async def test_a_long_compensation_is_not_cut_off_by_the_request_that_began_it(flows: FlowStore) -> None:
    async def cancel() -> None:
        await cancel_flow("met", store=flows.named)

    met = Booking(lambda ctx: ctx.step("cancel", cancel), undo_takes_s=_LONGER_THAN_UNWATCHED_S)
    found = Booking(lambda ctx: ctx.approval("go"), undo_takes_s=_LONGER_THAN_UNWATCHED_S)
    with pytest.raises(RunPaused):
        await run_flow(found.flow, run_id="found", store=flows.named)
    await cancel_flow("found", store=flows.named)

    for booking, run_id in ((met, "met"), (found, "found")):
        with pytest.raises(RunCancelled):
            await run_flow(booking.flow, run_id=run_id, store=flows.named)

        assert booking.done == UNDONE
        assert "unfinished" not in flows.events(run_id)[-1].payload


async def test_a_request_that_is_read_twice_at_the_same_time_is_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_journal(InMemoryCheckpointer()) as journal:
        log = RunLog(journal, await journal.claim("r"), Records())
        await journal.append("r", [create_event("r", EventKind.RUN_CANCEL_REQUESTED)])
        read, readers = journal.read, asyncio.Barrier(2)

        async def read_together(run_id: str, since_seq: int) -> list[Event]:
            events = await read(run_id, since_seq)
            await readers.wait()
            return events

        monkeypatch.setattr(journal, "read", read_together)
        await asyncio.gather(log.catch_up(), log.catch_up())

    assert log.records.cancel_requests == 1


async def test_a_childs_long_compensation_ends_before_its_cancelled_parent_does(flows: FlowStore) -> None:
    booking = Booking(lambda ctx: ctx.wait_for("never"), undo_takes_s=_LONGER_THAN_UNWATCHED_S)

    async def parent(ctx: Context) -> None:
        async with ctx.compensate(booking.done.append, "no journey"):
            await ctx.run_flow(booking.flow, run_id="child")

    running = asyncio.create_task(run_flow(parent, run_id="r", store=flows.named))
    await until(lambda: "wait.started" in flows.kinds("child"))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await cancel_flow("r", store=flows.named)

    with pytest.raises(RunCancelled):
        await run_flow(parent, run_id="r", store=flows.named)

    assert booking.done == [*UNDONE, "no journey"]
    assert flows.kinds("child")[-1] == "run.cancelled"
    assert "unfinished" not in flows.events("child")[-1].payload


async def test_an_answer_that_aborts_undoes_as_well(flows: FlowStore) -> None:
    booking = Booking(lambda ctx: ctx.approval("go"))
    with pytest.raises(RunPaused):
        await run_flow(booking.flow, run_id="r", store=flows.named)
    await decide("r", "go", "abort", comment="too dear", by="ann", store=flows.named)

    with pytest.raises(RunCancelled):
        await run_flow(booking.flow, run_id="r", store=flows.named)

    assert booking.done == UNDONE
    assert flows.events()[-1].payload == {"reason": "too dear", "by": "ann"}


async def test_a_second_request_ends_what_compensates_and_the_journal_says_so(flows: FlowStore) -> None:
    booking = Booking(lambda ctx: ctx.sleep(3600))
    booking.is_stuck = True
    running = asyncio.create_task(run_flow(booking.flow, run_id="r", store=flows.named))
    await until(lambda: "timer.started" in flows.kinds())
    await cancel_flow("r", store=flows.named)
    await until(lambda: booking.done[-1] == "no hotel")

    await cancel_flow("r", store=flows.named)

    with pytest.raises(RunCancelled):
        await running
    assert booking.done == ["flight", "hotel", "no hotel"]
    assert flows.events()[-1].payload["unfinished"] == ["undo", "undo#2"]


async def test_a_shutdown_in_the_middle_undoes_nothing_and_the_run_goes_on(flows: FlowStore) -> None:
    booking = Booking(lambda ctx: ctx.wait_for("go", timeout=3600))
    running = asyncio.create_task(run_flow(booking.flow, run_id="r", store=flows.named))
    await until(lambda: "wait.started" in flows.kinds())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert booking.done == ["flight", "hotel"]
    await send_event("r", "go", store=flows.named)

    assert await run_flow(booking.flow, run_id="r", store=flows.named) == "booked"
    assert booking.done == ["flight", "hotel"]


async def test_a_shutdown_while_a_compensation_runs_leaves_the_rest_to_the_next_process(flows: FlowStore) -> None:
    booking = Booking(lambda ctx: ctx.sleep(3600))
    booking.is_stuck = True
    running = asyncio.create_task(run_flow(booking.flow, run_id="r", store=flows.named))
    await until(lambda: "timer.started" in flows.kinds())
    await cancel_flow("r", store=flows.named)
    await until(lambda: booking.done[-1] == "no hotel")

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert flows.kinds()[-1] == "cancel.delivered"
    booking.is_stuck = False
    with pytest.raises(RunCancelled):
        await run_flow(booking.flow, run_id="r", store=flows.named)

    assert booking.done == ["flight", "hotel", "no hotel", "no hotel", "no flight"]
    assert flows.kinds()[-1] == "run.cancelled"


async def test_a_lane_that_undoes_already_is_not_cut_off_when_the_others_are_cancelled() -> None:
    store = InMemoryCheckpointer()
    undone: list[str] = []

    async def undo(name: str) -> None:
        await asyncio.sleep(_LONGER_THAN_UNWATCHED_S)
        undone.append(name)

    async def meet(ctx: Context) -> None:
        async with ctx.compensate(undo, "met"):
            await ctx.step("cancel", cancel_flow, "r", store=store)

    async def sleep(ctx: Context) -> None:
        async with ctx.compensate(undo, "interrupted"):
            await ctx.sleep(3600)

    async def flow(ctx: Context) -> None:
        await ctx.gather(sleep(ctx), meet(ctx))

    with pytest.raises(RunCancelled):
        await run_flow(flow, run_id="r", store=store)

    assert sorted(undone) == ["interrupted", "met"]
    assert "unfinished" not in store.list_events("r")[-1].payload


async def test_lanes_undo_their_own_and_a_cancellation_reaches_each_of_them(flows: FlowStore) -> None:
    undone: list[str] = []

    async def lane(ctx: Context, name: str) -> None:
        async with ctx.compensate(undone.append, name):
            await ctx.wait_for(name)

    async def flow(ctx: Context) -> None:
        async with ctx.compensate(undone.append, "all"):
            await ctx.gather(lane(ctx, "a"), lane(ctx, "b"), ctx.step("beside", lambda: 1))

    running = asyncio.create_task(run_flow(flow, run_id="r", store=flows.named))
    await until(lambda: flows.kinds().count("wait.started") == 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await cancel_flow("r", store=flows.named)
    with pytest.raises(RunCancelled):
        await run_flow(flow, run_id="r", store=flows.named)

    assert (sorted(undone[:2]), undone[2:]) == (["a", "b"], ["all"])
    assert flows.kinds().count("cancel.delivered") == 3


async def test_a_block_after_a_failure_that_is_tried_again_has_its_place_anew() -> None:
    store = InMemoryCheckpointer()
    done: list[str] = []
    is_broken = True

    def call() -> None:
        if is_broken:
            raise ValueError("first")

    async def flow(ctx: Context) -> str:
        try:
            await ctx.step("a", call)
        except ValueError:
            async with ctx.compensate(done.append, "unused"):
                await ctx.step("b", done.append, "b")
            raise
        async with ctx.compensate(done.append, "unused"):
            await ctx.step("b", done.append, "b")
            await ctx.approval("go")
        return "done"

    with pytest.raises(ValueError, match="first"):
        await run_flow(flow, run_id="r", store=store)
    is_broken = False
    with pytest.raises(RunPaused):
        await run_flow(flow, run_id="r", store=store)
    await decide("r", "go", "approve", store=store)

    assert await run_flow(flow, run_id="r", store=store) == "done"
    assert "unused" not in done
    assert [event.payload.get("again") for event in store.list_events("r") if event.kind == "scope.opened"] == [
        None,
        True,
    ]
