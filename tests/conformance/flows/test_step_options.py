"""What can be said about a step: where it runs, how long it may take, which failures are tried again; and the lanes."""

import asyncio
import os
import signal
import threading
import time
from typing import Any

import pytest
from tests.support.flow_stores import FlowStore

from holdfast import Context, cancel_flow, run_flow, step_key
from holdfast.errors import RunCancelled, StepTimeout
from holdfast.runtime.checkpoint import InMemoryCheckpointer
from holdfast.runtime.step import RetryPolicy

# -- threads ----------------------------------------------------------------------------------------------------------


async def test_plain_functions_beside_each_other_run_at_the_same_time(flows: FlowStore) -> None:
    together = threading.Barrier(3)

    def call(name: str) -> list[str]:
        together.wait()  # for ever, if they ran one after the other
        return [name, step_key()]

    async def flow(ctx: Context) -> Any:
        return await ctx.gather(*(ctx.step("call", call, name) for name in "abc"))

    assert await run_flow(flow, run_id="r", store=flows.named) == [
        ["a", "r:g1.1/call"],
        ["b", "r:g1.2/call"],
        ["c", "r:g1.3/call"],
    ]


async def test_where_a_plain_function_runs() -> None:
    def here() -> bool:
        return threading.current_thread() is threading.main_thread()

    async def flow(ctx: Context) -> list[Any]:
        async def lane() -> list[bool]:
            inner = await ctx.gather(ctx.step("inner", here))
            return [*inner, await ctx.step("a", here), await ctx.step.options(thread=False)("b", here)]

        return [
            await ctx.step("alone", here),
            await ctx.step.options(thread=True)("asked", here),
            await ctx.gather(ctx.step("only", here)),
            await ctx.gather(lane(), lane()),
        ]

    assert await run_flow(flow, store=InMemoryCheckpointer()) == [True, False, [True], [[False, False, True]] * 2]


async def test_a_lambda_that_makes_a_coroutine_is_awaited_on_the_loop() -> None:
    async def work(number: int) -> int:
        await asyncio.sleep(0)
        return number

    async def flow(ctx: Context) -> list[int]:
        return await ctx.gather(*(ctx.step("n", lambda n=n: work(n)) for n in range(3)))

    assert await run_flow(flow, store=InMemoryCheckpointer()) == [0, 1, 2]


@pytest.mark.parametrize("by_person", [False, True])
async def test_whoever_is_cancelled_waits_for_a_function_in_a_thread_and_its_result_is_kept(
    flows: FlowStore, by_person: bool
) -> None:
    has_begun, may_end, calls = threading.Event(), threading.Event(), []

    def slow() -> str:
        calls.append("slow")
        has_begun.set()
        may_end.wait()
        return "done"

    async def flow(ctx: Context) -> list[Any]:
        return await ctx.gather(ctx.step("slow", slow), ctx.step("quick", asyncio.sleep, 0))

    task = asyncio.create_task(run_flow(flow, run_id="r", store=flows.named))
    await asyncio.to_thread(has_begun.wait)
    if by_person:
        await cancel_flow("r", store=flows.named)
    else:
        task.cancel()
    done, _ = await asyncio.wait({task}, timeout=0.05)
    assert not done or by_person  # a request may take a moment to be seen
    may_end.set()
    with pytest.raises(RunCancelled if by_person else asyncio.CancelledError):
        await task

    assert [event.payload["result"] for event in flows.events() if event.payload.get("key") == "g1.1/slow"] == ["done"]
    if not by_person:
        assert await run_flow(flow, run_id="r", store=flows.named) == ["done", None]
    assert calls == ["slow"]


async def test_more_functions_than_there_are_threads() -> None:
    def call(number: int) -> int:
        time.sleep(0.001)
        return number

    async def flow(ctx: Context) -> list[int]:
        return await ctx.gather(*(ctx.step("n", call, number) for number in range(200)))

    assert await run_flow(flow, store=InMemoryCheckpointer()) == list(range(200))


# -- time limits ------------------------------------------------------------------------------------------------------


async def _waits() -> None:
    await asyncio.Event().wait()


_never = threading.Event()


@pytest.mark.parametrize("function", [_waits, _never.wait], ids=["async", "thread"])
async def test_a_time_limit_is_a_failure_that_is_recorded_and_replayed(flows: FlowStore, function: Any) -> None:
    calls, seen = [], []

    async def flow(ctx: Context) -> str:
        try:
            calls.append(1)
            await ctx.step.options(timeout=0.02)("slow", function)
        except TimeoutError as error:
            seen.append([type(error), str(error), error.facts])  # type: ignore[attr-defined]
        if is_broken:
            raise RuntimeError
        return await ctx.step("after", lambda: "went on")

    is_broken = True
    with pytest.raises(RuntimeError):
        await run_flow(flow, run_id="r", store=flows.named)
    is_broken = False

    assert await run_flow(flow, run_id="r", store=flows.named) == "went on"
    assert seen[0] == seen[1]
    assert seen[0][0] is StepTimeout
    assert seen[0][2] == {"key": "slow", "timeout_s": 0.02}


async def test_each_try_has_the_whole_time_and_its_own_time_out_is_not_ours(flows: FlowStore) -> None:
    tries: list[int] = []

    async def call() -> str:
        tries.append(1)
        if len(tries) == 1:
            await asyncio.Event().wait()
        if len(tries) == 2:
            raise TimeoutError("of the service")
        return "third"

    async def flow(ctx: Context) -> str:
        return await ctx.step.options(timeout=0.5 if len(tries) else 0.02, retries=2, backoff_s=0)("a", call)

    assert await run_flow(flow, run_id="r", store=flows.named) == "third"
    errors = [event.payload["error"]["type"] for event in flows.events() if event.kind == "step.failed"]
    assert errors == ["holdfast.errors.StepTimeout", "builtins.TimeoutError"]


async def test_a_function_that_gets_no_thread_in_time_is_never_called() -> None:
    may_end, calls = threading.Event(), []

    async def flow(ctx: Context) -> Any:
        async def lane(number: int) -> str:
            if number < 64:
                await ctx.step("hold", may_end.wait)
                return "held"
            try:
                await ctx.step.options(timeout=0.05)("late", calls.append, 1)
            except TimeoutError:
                may_end.set()
                return "too late"
            return "called"

        return await ctx.gather(*(lane(number) for number in range(65)))

    assert (await run_flow(flow, store=InMemoryCheckpointer()))[-1] == "too late"
    assert calls == []


async def dies_in_its_time_limit(ctx: Context, folder: str) -> str:
    marker = os.path.join(folder, "has died")

    async def call() -> str:
        if not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return "second process"

    return await ctx.step.options(timeout=30, retries=1, on_unknown=_look_it_up)("call", call)


async def _look_it_up(key: str) -> Any:
    from holdfast import NotDone

    return NotDone()


async def test_a_kill_within_a_time_limit_is_an_unknown_outcome(disk_flows: FlowStore, tmp_path: Any) -> None:
    code = (
        "from tests.conformance.flows.test_step_options import dies_in_its_time_limit\n"
        "asyncio.run(run_flow(dies_in_its_time_limit, args[0], run_id='r', store=store))\n"
    )
    with disk_flows.start_process(code, tmp_path) as process:
        assert process.wait() == -9

    result = await run_flow(dies_in_its_time_limit, str(tmp_path), run_id="r", store=disk_flows.named)
    assert result == "second process"


# -- which failures, after how long -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "tries"),
    [
        ({"retry_on": KeyError}, 1),
        ({"retry_on": (KeyError, OSError)}, 3),
        ({"retry_on": OSError, "no_retry_on": ConnectionError}, 1),
        ({"no_retry_on": KeyError}, 3),
        ({}, 3),
    ],
)
async def test_which_failures_are_tried_again(options: Any, tries: int) -> None:
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        raise ConnectionResetError("gone")

    async def flow(ctx: Context) -> None:
        await ctx.step.options(retries=2, backoff_s=0, **options)("a", fail)

    with pytest.raises(ConnectionResetError):
        await run_flow(flow, store=InMemoryCheckpointer())
    assert len(calls) == tries


def test_waits_double_up_to_a_cap_and_jitter_stays_in_its_part() -> None:
    policy = RetryPolicy(retries=10_000, backoff_s=1, max_backoff_s=5, jitter=0)
    assert [policy.wait_s(attempt, ValueError()) for attempt in (1, 2, 3, 4, 9_999)] == [1, 2, 4, 5, 5]
    waits = [RetryPolicy(1, 1.0, jitter=0.5).wait_s(1, ValueError()) or 0 for _ in range(200)]
    assert min(waits) >= 0.5
    assert max(waits) <= 1.5
    assert max(waits) - min(waits) > 0.5


@pytest.mark.parametrize(
    "options",
    [
        {"retries": -1},
        {"retries": True},
        {"retries": "3"},
        {"timeout": -1},
        {"timeout": float("nan")},
        {"timeout": "5"},
        {"jitter": 2},
        {"backoff_s": None},
        {"retry_on": "ValueError"},
        {"no_retry_on": BaseException},
        {"thread": "yes"},
        {"on_unknown": "maybe"},
        {"retires": 3},
    ],
)
async def test_wrong_options_are_refused_before_anything_is_recorded(options: Any) -> None:
    store = InMemoryCheckpointer()

    async def flow(ctx: Context) -> None:
        await ctx.step.options(**options)("a", lambda: 1)

    with pytest.raises((TypeError, ValueError)):
        await run_flow(flow, run_id="r", store=store)
    assert [str(event.kind) for event in store.list_events("r")] == ["run.created", "run.started", "run.failed"]


async def test_options_do_not_take_keywords_from_the_function(flows: FlowStore) -> None:
    def fetch(url: str, *, timeout: int, retries: int, key: str, fn: str) -> list[Any]:
        return [url, timeout, retries, key, fn]

    async def flow(ctx: Context) -> list[Any]:
        return await ctx.step.options(retries=1)("fetch", fetch, "u", timeout=3, retries=4, key="k", fn="f")

    assert await run_flow(flow, run_id="r", store=flows.named) == ["u", 3, 4, "k", "f"]


# -- lanes ------------------------------------------------------------------------------------------------------------


async def test_failures_can_be_returned_in_their_places_and_are_replayed(flows: FlowStore) -> None:
    calls: list[str] = []

    async def call(name: str) -> str:
        calls.append(name)
        if name == "b":
            raise KeyError(name)
        return name

    async def flow(ctx: Context) -> list[str]:
        found = await ctx.gather(*(ctx.step("n", call, name) for name in "abc"), return_exceptions=True)
        if is_broken:
            raise RuntimeError
        return [repr(item) for item in found]

    is_broken = True
    with pytest.raises(RuntimeError):
        await run_flow(flow, run_id="r", store=flows.named)
    is_broken = False

    assert await run_flow(flow, run_id="r", store=flows.named) == ["'a'", "KeyError('b')", "'c'"]
    assert sorted(calls) == ["a", "b", "c"]


async def test_no_more_lanes_run_at_a_time_than_the_limit(flows: FlowStore) -> None:
    running, most = 0, 0

    async def call(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return number

    async def flow(ctx: Context) -> list[int]:
        return await ctx.gather(*(ctx.step("n", call, number) for number in range(12)), limit=3)

    assert await run_flow(flow, run_id="r", store=flows.named) == list(range(12))
    assert most == 3


async def dies_between_lanes(ctx: Context, folder: str) -> list[int]:
    def call(number: int) -> int:
        with open(os.path.join(folder, f"{number}-{os.getpid()}"), "w"):
            pass
        if number == 4 and not os.path.exists(os.path.join(folder, "has died")):
            open(os.path.join(folder, "has died"), "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    return await ctx.gather(*(ctx.step("n", call, number) for number in range(6)), limit=1)


async def test_limited_lanes_go_on_after_a_kill_with_those_that_are_left(disk_flows: FlowStore, tmp_path: Any) -> None:
    code = (
        "from tests.conformance.flows.test_step_options import dies_between_lanes\n"
        "asyncio.run(run_flow(dies_between_lanes, args[0], run_id='r', store=store))\n"
    )
    with disk_flows.start_process(code, tmp_path) as process:
        assert process.wait() == -9

    assert await run_flow(dies_between_lanes, str(tmp_path), run_id="r", store=disk_flows.named) == list(range(6))
    calls = sorted(name.partition("-")[0] for name in os.listdir(tmp_path) if name[0].isdigit())
    assert calls == ["0", "1", "2", "3", "4", "4", "5"]


async def test_lanes_that_wait_for_their_turn_can_be_cancelled() -> None:
    has_begun = asyncio.Event()

    async def call() -> None:
        has_begun.set()
        await asyncio.Event().wait()

    async def flow(ctx: Context) -> Any:
        return await ctx.gather(*(ctx.step("n", call) for _ in range(3)), limit=1)

    task = asyncio.create_task(run_flow(flow, store=InMemoryCheckpointer()))
    await has_begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
