"""A program that drives flows in its background, on SQLite and Postgres: started, woken, limited, shut down, killed."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.flow_stores import FlowStore, new_flow_store
from tests.support.progress_limit import until
from tests.support.stores import finish, start_python

from holdfast import Context, Runtime, decide, flow, get_flow, retry_flow, run_flow, send_event, start_flow
from holdfast.enums import RunStatus
from holdfast.errors import (
    ConfigInvalid,
    EventTimeout,
    HoldfastError,
    Nondeterminism,
    RunCancelled,
    RunNotFound,
    RunNotInState,
)
from holdfast.runtime import flow_rows
from holdfast.runtime.checkpoint import InMemoryCheckpointer
from holdfast.runtime.events import EventKind
from holdfast.runtime.stores import open_journal
from holdfast.testing import skip_time


@pytest.fixture(params=["path", "postgres"])
def flows(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FlowStore]:
    with new_flow_store(request.param, tmp_path, lambda: request.getfixturevalue("postgres_url")) as store:
        yield store


@flow("double")
async def double(ctx: Context, number: int) -> int:
    return await ctx.step("double", lambda: number * 2)


@flow("asks")
async def asks(ctx: Context) -> str:
    return str(await ctx.approval("go", show="well?"))


@flow("naps")
async def naps(ctx: Context, seconds: float) -> str:
    await ctx.sleep(seconds)
    return await ctx.step("after", lambda: "awake")


@flow("breaks")
async def breaks(ctx: Context) -> None:
    raise LookupError("no such thing")


def note_call(log: Path) -> None:
    with log.open("a") as file:
        file.write("called\n")


@flow("mended")
async def mended(ctx: Context, sign: str) -> str:
    await ctx.step("before", note_call, Path(sign).with_suffix(".log"))
    return await ctx.step("read", lambda: Path(sign).read_text())


@flow("mends a child")
async def mends_a_child(ctx: Context, sign: str) -> str:
    return await ctx.run_flow(mended, sign)


async def test_a_failed_run_goes_on_at_the_failed_step_when_it_is_retried(flows: FlowStore, tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    async with Runtime(flows.target, flows=[mended]) as runtime:
        handle = await runtime.start(mended, str(sign), run_id="r")
        with pytest.raises(FileNotFoundError):
            await handle.result()
        await handle.retry(by="ann")
        with pytest.raises(FileNotFoundError):
            await handle.result()
        sign.write_text("green")
    # Nobody drives it: the request waits, and two are one.
    await asyncio.gather(handle.retry(), retry_flow("r", store=flows.target))
    assert await handle.status() is RunStatus.PENDING
    async with Runtime(flows.target, flows=[mended]):
        assert await handle.result() == "green"

    assert sign.with_suffix(".log").read_text() == "called\n"
    requests = [event for event in flows.events() if event.kind == EventKind.RUN_RESUME_REQUESTED]
    assert [event.payload["by"] for event in requests] == ["ann", ""]
    with pytest.raises(RunNotInState, match="completed"):
        await handle.retry()
    with pytest.raises(RunNotFound):
        await retry_flow("nobody", store=flows.target)


async def test_a_failed_child_is_retried_with_the_run_that_began_it(flows: FlowStore, tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    async with Runtime(flows.target, flows=[mended, mends_a_child]) as runtime:
        handle = await runtime.start(mends_a_child, str(sign), run_id="r")
        with pytest.raises(FileNotFoundError):
            await handle.result()
        (started,) = [event for event in flows.events() if event.kind == EventKind.CHILD_STARTED]
        with pytest.raises(RunNotInState, match="begun by run r") as refused:
            await retry_flow(str(started.payload["child"]), store=flows.target)
        assert "holdfast retry r" in refused.value.hint
        sign.write_text("green")

        await handle.retry()

        assert await handle.result() == "green"


async def test_what_is_started_is_run_and_a_second_start_changes_nothing(flows: FlowStore) -> None:
    before = await start_flow("double", 21, run_id="r", store=flows.target, tags={"who": "me"})
    assert await before.status() is RunStatus.PENDING

    async with Runtime(flows.target, flows=[double]):
        again = await start_flow(double, 21, run_id="r", store=flows.target)
        assert await asyncio.gather(before.result(), again.result()) == [42, 42]
        other = await start_flow("double", 1, store=flows.target)
        assert await other.result() == 2

    assert flows.kinds() == ["run.created", "run.started", "step.completed", "run.completed"]
    assert [event.seq async for event in get_flow("r", store=flows.target).events()] == [1, 2, 3, 4]
    assert await run_flow(double, 21, run_id="r", store=flows.target) == 42
    with pytest.raises(Nondeterminism):
        await start_flow("double", 22, run_id="r", store=flows.target)
    with pytest.raises(ConfigInvalid, match="'double'"):
        await start_flow("asks", run_id="r", store=flows.target)


async def test_a_failure_is_raised_by_the_handle_and_a_cancelled_run_is_a_refusal(flows: FlowStore) -> None:
    async with Runtime(flows.target, flows=["breaks", "naps"]):
        with pytest.raises(LookupError, match="no such thing"):
            await (await start_flow("breaks", store=flows.target)).result()
        sleeper = await start_flow("naps", 3600, store=flows.target)
        await until(lambda: "timer.started" in flows.kinds(sleeper.run_id), "the flow to sleep")
        await sleeper.cancel("enough")
        with pytest.raises(RunCancelled):
            await sleeper.result()
    assert await sleeper.status() is RunStatus.CANCELLED
    with pytest.raises(RunNotFound):
        await get_flow("nobody", store=flows.target).result()


async def test_an_answer_wakes_a_run_by_itself(flows: FlowStore) -> None:
    async with Runtime(flows.target, flows=[asks]) as runtime:
        handle = await runtime.start("asks", run_id="r")
        await until(lambda: "run.paused" in flows.kinds() and not runtime.driven, "the flow to pause")
        await decide("r", "go", "approve", store=flows.target)
        assert await handle.result() == "approve"


async def test_a_sleeping_flow_holds_no_place_and_is_woken_in_time(flows: FlowStore) -> None:
    async with Runtime(flows.target, flows=[naps], max_parallel=1, park_after_s=0) as runtime:
        slow = await runtime.start("naps", 3600)
        await until(lambda: "timer.started" in flows.kinds(slow.run_id), "the first to sleep")
        started = time.time()
        quick = await runtime.start("naps", 0.3)
        assert await quick.result() == "awake"
        assert time.time() - started >= 0.3
        await until(lambda: not runtime.driven, "the place to be given back")
    assert flows.kinds(quick.run_id).count("run.resumed") == 1
    assert await slow.status() is RunStatus.RUNNING


async def test_no_more_runs_at_a_time_than_the_runtime_and_the_flow_allow(flows: FlowStore) -> None:
    now: dict[str, int] = {"wide": 0, "narrow": 0}
    most: dict[str, int] = {"wide": 0, "narrow": 0, "all": 0}
    side_by_side = asyncio.Event()

    async def work(name: str) -> None:
        now[name] += 1
        most[name] = max(most[name], now[name])
        most["all"] = max(most["all"], sum(now.values()))
        if most["all"] > 1:
            side_by_side.set()
        await side_by_side.wait()
        await asyncio.sleep(0.01)
        now[name] -= 1

    @flow("wide")
    async def wide(ctx: Context) -> None:
        await ctx.step("work", work, "wide")

    @flow("narrow", max_parallel=1)
    async def narrow(ctx: Context) -> None:
        await ctx.step("work", work, "narrow")

    handles = [await start_flow(each, store=flows.target) for each in (wide, narrow) for _ in range(6)]
    async with Runtime(flows.target, flows=[wide, narrow], max_parallel=3):
        await asyncio.gather(*(handle.result() for handle in handles))
    assert most["narrow"] == 1
    assert most["all"] <= 3


async def test_a_flow_that_is_not_known_is_left_alone(flows: FlowStore) -> None:
    stranger = await start_flow("of another program", 1, store=flows.target)
    async with Runtime(flows.target, flows=[double]) as runtime:
        assert await (await runtime.start("double", 1)).result() == 2
    assert flows.kinds(stranger.run_id) == ["run.created"]


async def test_a_step_in_flight_ends_and_is_recorded_before_the_runtime_does(flows: FlowStore) -> None:
    is_in_step, may_end = asyncio.Event(), asyncio.Event()
    calls: list[str] = []

    async def slow() -> str:
        is_in_step.set()
        await may_end.wait()
        calls.append("slow")
        return "done"

    @flow("shut down")
    async def shut_down(ctx: Context) -> str:
        await ctx.step("slow", slow, on_unknown="fail")
        return await ctx.step("next", lambda: calls.append("next") or "end", on_unknown="fail")

    async with contextlib.AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(Runtime(flows.target, flows=[shut_down]))
        handle = await runtime.start("shut down", run_id="r")
        await is_in_step.wait()
        asyncio.get_running_loop().call_later(0.05, may_end.set)
    assert calls == ["slow"]
    assert flows.kinds()[-2:] == ["step.started", "step.completed"]
    assert await handle.status() is RunStatus.RUNNING

    async with Runtime(flows.target, flows=[shut_down]):
        assert await handle.result() == "end"
    assert calls == ["slow", "next"]


SERVICE = """
import asyncio, os, sys, time
from pathlib import Path

from holdfast import Context, Runtime, flow

@flow("slow")
async def slow(ctx: Context, folder: str) -> str:
    gate = Path(folder)

    def work() -> str:
        (gate / "reached").touch()
        while not (gate / "open").exists():
            time.sleep(0.01)
        return "done"

    first = await ctx.step.options(thread=True)("first", work)
    return first + await ctx.step("second", lambda: " twice")

async def main() -> None:
    async with Runtime(sys.argv[1], flows=[slow]) as runtime:
        print("ready", flush=True)
        await runtime.serve()
    print("left", flush=True)

asyncio.run(main())
"""


async def test_a_program_that_is_terminated_records_its_step_in_flight_and_the_run_goes_on(
    flows: FlowStore, tmp_path: Path
) -> None:
    service = start_python(SERVICE, flows.target)
    try:
        assert service.stdout is not None
        assert await asyncio.to_thread(service.stdout.readline) == "ready\n"
        handle = await start_flow("slow", str(tmp_path), run_id="r", store=flows.target)
        await until((tmp_path / "reached").exists, "the step to be in flight")
        service.send_signal(signal.SIGTERM)
        # The step that is in flight has its time; whether another one begins depends on which of both is seen first.
        await until(lambda: (tmp_path / "open").touch() or service.poll() is not None, "the program to end")
        assert (service.returncode, service.stdout.read()) == (0, "left\n")
    finally:
        service.kill()
        service.communicate()
    assert flows.kinds()[:3] == ["run.created", "run.started", "step.completed"]

    definition: dict[str, Any] = {}
    exec(SERVICE.partition("async def main")[0], definition)
    async with Runtime(flows.target, flows=[definition["slow"]]):
        assert await handle.result() == "done twice"
    assert flows.kinds().count("step.completed") == 2


async def test_what_does_not_end_in_the_grace_time_is_given_up_and_goes_on_elsewhere(flows: FlowStore) -> None:
    is_in_step = asyncio.Event()

    @flow("endless")
    async def endless(ctx: Context, is_endless: bool = True) -> str:
        return await ctx.step("wait", wait)

    async def wait() -> str:
        if not is_in_step.is_set():
            is_in_step.set()
            await asyncio.Event().wait()
        return "at last"

    async with Runtime(flows.target, flows=[endless], grace_s=0.01) as runtime:
        handle = await runtime.start("endless")
        await is_in_step.wait()
    async with Runtime(flows.target, flows=[endless]):
        assert await handle.result() == "at last"


async def test_a_run_with_arguments_that_are_not_recorded_waits_for_its_caller(flows: FlowStore) -> None:
    @flow("with an object")
    async def with_object(ctx: Context, thing: Any) -> None:
        await ctx.approval("go")

    with pytest.raises(HoldfastError):
        await run_flow(with_object, object(), run_id="r", store=flows.target)
    with pytest.raises(HoldfastError):
        await start_flow(with_object, object(), store=flows.target)
    async with Runtime(flows.target, flows=[with_object]) as runtime:
        await decide("r", "go", "approve", store=flows.target)
        await until(lambda: runtime.find_reason("r") is not None, "the runtime to have tried")
    assert await get_flow("r", store=flows.target).status() is RunStatus.PAUSED


async def test_two_runtimes_share_the_work_and_drive_nothing_twice(flows: FlowStore) -> None:
    async with Runtime(flows.target, flows=[double], max_parallel=4), other_loop(flows) as child:
        handles = [await start_flow("double", n, run_id=f"r{n}", store=flows.target) for n in range(30)]
        assert await asyncio.gather(*(handle.result() for handle in handles)) == [n * 2 for n in range(30)]
        child.terminate()
    for n in range(30):
        assert flows.kinds(f"r{n}").count("step.completed") == 1


@contextlib.asynccontextmanager
async def other_loop(flows: FlowStore) -> AsyncIterator[Any]:
    """A second process with a runtime on the same store."""
    process = flows.start_process(_OTHER)
    assert process.stdout is not None
    await asyncio.to_thread(process.stdout.readline)
    try:
        yield process
    finally:
        process.kill()
        await asyncio.to_thread(process.communicate)


_OTHER = """
@flow("double")
async def double(ctx, number):
    return await ctx.step("double", lambda: number * 2)

@flow("naps")
async def naps(ctx, seconds):
    print("sleeps", flush=True)
    await ctx.sleep(seconds)
    return await ctx.step("after", lambda: "awake")

async def main():
    async with Runtime(args[0] if args else sys.argv[2], park_after_s=3600):
        print("ready", flush=True)
        await asyncio.sleep(3600)
asyncio.run(main())
"""


async def test_a_killed_process_is_taken_over_by_another(flows: FlowStore) -> None:
    async with other_loop(flows) as child:
        handle = await start_flow("naps", 0.5, run_id="r", store=flows.target)
        assert await asyncio.to_thread(child.stdout.readline) == "sleeps\n"
        child.kill()
        await asyncio.to_thread(child.wait)
    async with Runtime(flows.target, flows=[naps], poll_s=0.05):
        assert await handle.result() == "awake"
    assert flows.kinds().count("timer.started") == 1


async def test_a_plain_store_is_refused_with_what_to_use() -> None:
    with pytest.raises(HoldfastError, match="due") as caught:
        async with Runtime(InMemoryCheckpointer(), flows=[double]):
            pass
    assert caught.value.code == "store_unsupported"


async def test_an_event_wakes_a_parked_run_and_a_question_of_a_child_its_parent(flows: FlowStore) -> None:
    async def child(ctx: Context) -> str:
        data = await ctx.wait_for("paid")
        await ctx.approval("ship")
        return str(data)

    @flow("parent of one")
    async def parent(ctx: Context) -> str:
        return "child said " + str(await ctx.run_flow(child))

    def child_id() -> str:
        return next(str(event.payload["child"]) for event in flows.events() if event.kind == EventKind.CHILD_STARTED)

    async with Runtime(flows.target, flows=[parent], park_after_s=0) as runtime:
        handle = await runtime.start("parent of one", run_id="r")
        await until(lambda: "child.started" in flows.kinds() and not runtime.driven, "parent and child to be parked")
        await send_event(child_id(), "paid", 40, store=flows.target)
        await until(lambda: flows.kinds()[-1] == "run.paused" and not runtime.driven, "the child to ask")
        await decide(child_id(), "ship", "approve", store=flows.target)
        assert await handle.result() == "child said 40"
    assert await get_flow(child_id(), store=flows.target).status() is RunStatus.COMPLETED


async def test_an_answer_between_the_question_and_the_pause_is_not_slept_over(flows: FlowStore) -> None:
    """The answer is written as soon as the question is: often before the pause, sometimes after it."""
    handles = []
    async with Runtime(flows.target, flows=[asks], poll_s=3600) as runtime:
        for number in range(10):
            handles.append(await runtime.start("asks", run_id=f"r{number}"))
            question = aiter(handles[-1].events())
            while (await anext(question)).kind != EventKind.HUMAN_APPROVAL_REQUESTED:
                pass
            await decide(f"r{number}", "go", "approve", store=flows.target)
        assert [await handle.result() for handle in handles] == ["approve"] * 10


WRONG_CLOCK = """
import asyncio, sys, time
real_time, wrong_by_s = time.time, float(sys.argv[2])
time.time = lambda: real_time() + wrong_by_s

from holdfast import Context, Runtime, flow, get_flow, start_flow

@flow("naps")
async def naps(ctx: Context, seconds: float) -> str:
    await ctx.sleep(seconds)
    return await ctx.step("after", lambda: "awake")

async def main() -> None:
    await start_flow("naps", 7200.0, run_id="long", store=sys.argv[1])
    await start_flow("naps", 0.1, run_id="short", store=sys.argv[1])
    async with Runtime(sys.argv[1], flows=[naps], park_after_s=0.0):
        assert await get_flow("short", store=sys.argv[1]).result() == "awake"
        async for event in get_flow("long", store=sys.argv[1]).events():
            if event.kind == "timer.started":
                break
    await start_flow("naps", 0.1, run_id="later", store=sys.argv[1])

asyncio.run(main())
"""


@pytest.mark.parametrize("wrong_by_s", [3600.0, -3600.0])
async def test_a_machine_whose_clock_is_wrong_wakes_nothing_early_or_late(
    wrong_by_s: float, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with new_flow_store("postgres", tmp_path, lambda: request.getfixturevalue("postgres_url")) as flows:
        await asyncio.to_thread(finish, start_python(WRONG_CLOCK, flows.target, wrong_by_s))

        async with open_journal(flows.target) as journal:
            row = await journal.query(lambda store: flow_rows.read_row(store, "long"))
        assert row is not None and row.wake_at is not None  # noqa: PT018
        assert 7000 < row.wake_at - time.time() < 7300
        async with Runtime(flows.target, flows=[naps], park_after_s=0.0):
            assert await get_flow("later", store=flows.target).result() == "awake"  # what it has written is due now
            assert await get_flow("long", store=flows.target).status() is RunStatus.RUNNING


@flow("asks in time")
async def asks_in_time(ctx: Context) -> str:
    try:
        return str(await ctx.approval("go", timeout=3600))
    except EventTimeout:
        return await ctx.step("give up", lambda: "nobody answered")


@flow("waits for one who asks in time")
async def waits_for_asker(ctx: Context) -> str:
    return await ctx.run_flow("asks in time")


@pytest.mark.parametrize("asker", [asks_in_time, waits_for_asker])
async def test_an_approval_that_nobody_answers_in_time_wakes_its_run(flows: FlowStore, asker: Any) -> None:
    with skip_time() as clock:
        async with Runtime(flows.target, flows=[asks_in_time, waits_for_asker]) as runtime:
            handle = await runtime.start(asker, run_id="r")
            assert await handle.result() == "nobody answered"

    assert clock.skipped_s >= 3600
    assert "run.paused" in flows.kinds()


@flow("naps in turns")
async def naps_in_turns(ctx: Context, count: int, seconds: float) -> list[str]:
    return await ctx.gather(*(ctx.run_flow(naps, seconds) for _ in range(count)), limit=2)


async def test_a_lane_that_is_parked_keeps_its_turn(flows: FlowStore) -> None:
    with skip_time():
        async with Runtime(flows.target, flows=[naps, naps_in_turns]) as runtime:
            handle = await runtime.start(naps_in_turns, 5, 3600.0, run_id="r")
            assert await handle.result() == ["awake"] * 5

    open_children, most = set[Any](), 0
    for event in flows.events():
        if event.kind == EventKind.CHILD_STARTED:
            open_children.add(event.payload["key"])
        elif event.kind == EventKind.CHILD_COMPLETED:
            open_children.discard(event.payload["key"])
        most = max(most, len(open_children))
    assert most == 2
