"""One durable step: called once, recorded, replayed; tried again; and what becomes of it when its process dies."""

import asyncio
import contextlib
import functools
import json
import os
import signal
import time
from decimal import Decimal
from typing import Any

import pytest
from tests.support.flow_stores import FlowStore, OwnCheckpointer
from tests.support.progress_limit import until
from tests.support.stores import finish

from holdfast import Context, Done, HoldfastError, NotDone, RunPaused, decide, run_flow, step_key
from holdfast.errors import Nondeterminism, PayloadInvalid, StepFailed, ToolOutcomeUnknown
from holdfast.runtime.checkpoint import InMemoryCheckpointer
from holdfast.runtime.clock import FlowClock, use_clock


def broken() -> RuntimeError:
    return RuntimeError("the flow is broken after its steps")


async def run_twice(flow: Any, store: Any) -> Any:
    """Let a flow fail after its last step, then resume it: what was recorded must be enough."""

    async def fails_at_the_end(ctx: Context) -> Any:
        result = await flow(ctx)
        if is_broken:
            raise broken()
        return result

    is_broken = True
    with pytest.raises(RuntimeError, match="after its steps"):
        await run_flow(fails_at_the_end, run_id="r", store=store)
    is_broken = False
    return await run_flow(fails_at_the_end, run_id="r", store=store)


async def test_a_default_step_is_one_append(flows: FlowStore) -> None:
    async def flow(ctx: Context) -> None:
        before = len(flows.events())
        await ctx.step("a", lambda: 1)
        assert [event.kind for event in flows.events()[before:]] == ["step.completed"]

    await run_flow(flow, run_id="r", store=flows.named)

    assert flows.kinds() == ["run.created", "run.started", "step.completed", "run.completed"]


async def test_any_other_policy_records_the_intent_before_the_call(flows: FlowStore) -> None:
    seen: list[list[str]] = []

    async def flow(ctx: Context) -> None:
        for on_unknown in ("ask", "fail", lambda key: NotDone()):
            await ctx.step("pay", lambda: seen.append(flows.kinds()[2:]), on_unknown=on_unknown)

    await run_flow(flow, run_id="r", store=flows.named)

    pair = ["step.started", "step.completed"]
    assert seen == [[*pair * number, "step.started"] for number in range(3)]
    assert flows.kinds()[2:] == [*pair * 3, "run.completed"]


async def test_a_step_is_recorded_before_its_result_is_handed_out(flows: FlowStore) -> None:
    async def flow(ctx: Context) -> None:
        await ctx.step("a", lambda: 1)
        assert flows.kinds()[-1] == "step.completed"

    await run_flow(flow, run_id="r", store=flows.named)


async def test_functions_of_every_sort_can_be_steps(flows: FlowStore) -> None:
    async def later(number: int, *, plus: int = 0) -> int:
        await asyncio.sleep(0)
        return number + plus

    class Adder:
        async def __call__(self, number: int) -> int:
            return number + 1

    async def flow(ctx: Context) -> list[Any]:
        return [
            await ctx.step("sync", max, 1, 2),
            await ctx.step("async", later, 3, plus=1),
            await ctx.step("partial", functools.partial(later, plus=5), 1),
            await ctx.step("object", Adder(), 1),
            await ctx.step("lambda", lambda: later(7)),
            await ctx.step("thread", asyncio.to_thread, step_key),
            await ctx.step("nothing", lambda: None),
        ]

    assert await run_twice(flow, flows.named) == [2, 4, 6, 2, 7, "r:thread", None]


async def test_a_key_used_again_gets_an_ordinal(flows: FlowStore) -> None:
    async def flow(ctx: Context) -> list[str]:
        return [await ctx.step(name, step_key) for name in ("a", "b", "a", "a", "b")]

    assert await run_twice(flow, flows.named) == ["r:a", "r:b", "r:a#2", "r:a#3", "r:b#2"]


async def test_a_name_that_looks_like_an_ordinal_is_still_its_own_step(flows: FlowStore) -> None:
    async def flow(ctx: Context) -> list[Any]:
        names = ["a", "a", "a#2", "a#3", "a"]
        return [await ctx.step(name, lambda number=number: [number, step_key()]) for number, name in enumerate(names)]

    results = await run_twice(flow, flows.named)

    assert [number for number, _ in results] == [0, 1, 2, 3, 4]
    assert len({key for _, key in results}) == 5


async def test_the_idempotency_key_is_the_same_on_every_try_and_unique_over_runs(flows: FlowStore) -> None:
    seen: list[str] = []

    def call() -> None:
        seen.append(step_key())
        if len(seen) < 3:
            raise ValueError("again")

    async def flow(ctx: Context, name: str) -> None:
        await ctx.step(name, call, retries=5, backoff_s=0)

    for run_id, name in [("a:b", "c"), ("a", "b:c"), ("a%3Ab", "c")]:
        await run_flow(flow, name, run_id=run_id, store=flows.named)

    assert len(seen) == 5
    assert seen[0] == seen[1] == seen[2]
    assert len(set(seen)) == 3


async def test_the_idempotency_key_is_only_known_inside_a_step(flows: FlowStore) -> None:
    async def flow(ctx: Context) -> None:
        with pytest.raises(HoldfastError, match="inside a step"):
            step_key()

    await run_flow(flow, run_id="r", store=flows.named)


@pytest.mark.parametrize(
    "result",
    [{1}, b"x", float("nan"), float("inf"), object(), {1: 2}, {"a": {2, 3}}, "\ud800", Decimal(1), (i for i in ())],
)
async def test_a_result_that_is_no_json_fails_on_the_first_try(result: Any) -> None:
    store, calls = InMemoryCheckpointer(), 0

    def call() -> Any:
        nonlocal calls
        calls += 1
        return result

    async def flow(ctx: Context) -> Any:
        return await ctx.step("a", call, retries=3)

    with pytest.raises(PayloadInvalid, match="the result of step 'a'") as raised:
        await run_flow(flow, run_id="r", store=store)

    assert raised.value.code == "payload_invalid"
    assert calls == 1
    result = 5
    assert await run_flow(flow, run_id="r", store=store) == 5


async def test_a_circular_or_endless_result_is_refused_like_any_other(flows: FlowStore) -> None:
    circle: list[Any] = []
    circle.append(circle)

    async def flow(ctx: Context) -> Any:
        return await ctx.step("a", lambda: circle)

    with pytest.raises(PayloadInvalid):
        await run_flow(flow, run_id="r", store=flows.named)


async def test_the_first_result_is_what_a_replay_returns(flows: FlowStore) -> None:
    value = {"tuple": (1, (2,)), "big": 2**80, "float": 1.0, "text": "ä\n\0", "nested": [{"a": None}]}
    seen: list[Any] = []

    async def flow(ctx: Context) -> None:
        seen.append(await ctx.step("a", lambda: value))

    await run_twice(flow, flows.named)

    assert seen[0] == seen[1] == {**value, "tuple": [1, [2]]}


async def test_big_results_come_back_whole(flows: FlowStore) -> None:
    async def flow(ctx: Context) -> list[Any]:
        return [
            await ctx.step("a", lambda: {"text": "ä" * 600_000, "n": 1}),
            len(await ctx.step("b", lambda: "x" * 40_000)),
        ]

    result = await run_twice(flow, flows.named)

    assert result == [{"text": "ä" * 600_000, "n": 1}, 40_000]


# -- failures ---------------------------------------------------------------------------------------------------------


class Custom(Exception):
    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(code)
        self.detail = detail


class Client:
    class Timeout(Exception):
        """An exception inside a class, as many libraries have them."""


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("fail", "caught"),
    [
        (lambda: _raise(ValueError("bad", 3)), ValueError),
        (lambda: {}["missing"], KeyError),
        (lambda: os.stat("/no/such/file"), FileNotFoundError),
        (lambda: json.loads("{"), json.JSONDecodeError),
        (lambda: b"\xff".decode(), UnicodeDecodeError),
        (lambda: _raise(Custom(7, detail="lost")), Custom),
        (lambda: _raise(Client.Timeout("slow")), Client.Timeout),
        (lambda: _raise(PayloadInvalid("mine")), PayloadInvalid),
        (lambda: _raise(RunPaused("nested", run_id="x", key="y")), RunPaused),
        (lambda: _raise(TimeoutError()), TimeoutError),
        (lambda: _raise(Mute()), Mute),
        (lambda: _raise(ValueError("x" * 1_000_000)), ValueError),
        (lambda: _raise(ValueError("\ud800")), ValueError),
        (lambda: _raise(StopIteration("odd")), RuntimeError),
    ],
)
async def test_a_failure_that_the_flow_caught_is_replayed_as_the_same_type(fail: Any, caught: type[Exception]) -> None:
    seen: list[type] = []
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        fail()

    async def flow(ctx: Context) -> str:
        try:
            await ctx.step("a", call)
        except caught as error:
            seen.append(type(error))
            return await ctx.step("b", lambda: "took the other way")
        return "no failure"

    assert await run_twice(flow, InMemoryCheckpointer()) == "took the other way"
    assert calls == 1
    assert seen == [caught, caught]


async def test_a_failure_keeps_its_arguments_and_says_which_step_it_was_if_its_type_is_gone(flows: FlowStore) -> None:
    class Local(Exception):
        pass

    seen: list[Exception] = []

    async def flow(ctx: Context) -> None:
        for error in (ValueError("bad", 3), Local("nowhere to be found")):
            try:
                await ctx.step("a", lambda error=error: _raise(error))
            except Exception as caught:
                seen.append(caught)

    await run_twice(flow, flows.named)

    assert seen[2].args == ("bad", 3)
    assert isinstance(seen[3], StepFailed)
    assert "a#2" in str(seen[3])
    assert "nowhere to be found" in str(seen[3])


async def test_what_was_done_about_a_failure_does_not_stand_in_the_way_of_its_retry(flows: FlowStore) -> None:
    calls: list[str] = []

    def deploy() -> str:
        calls.append("deploy")
        if is_broken:
            raise ValueError("no deploy")
        return "deployed"

    async def flow(ctx: Context) -> str:
        try:
            await ctx.step("deploy", deploy)
        except ValueError:
            await ctx.step("roll back", calls.append, "roll back")
            raise
        return await ctx.step("announce", lambda: "announced")

    is_broken = True
    with pytest.raises(ValueError, match="no deploy"):
        await run_flow(flow, run_id="r", store=flows.named)
    is_broken = False

    assert await run_flow(flow, run_id="r", store=flows.named) == "announced"
    assert calls == ["deploy", "roll back", "deploy"]


async def test_a_flow_that_goes_another_way_after_a_retry_can_be_resumed_again(flows: FlowStore) -> None:
    calls: list[str] = []
    broken = {"deploy", "end"}

    def call(name: str) -> str:
        calls.append(name)
        if name in broken:
            raise ValueError(name)
        return name

    async def flow(ctx: Context) -> str:
        try:
            await ctx.step("deploy", call, "deploy")
        except ValueError:
            await ctx.step("tidy", call, "tidy up")
            await ctx.gather(ctx.step("roll back", call, "roll back"))
            raise
        await ctx.step("announce", call, "announce")
        await ctx.step("tidy", call, "tidy")
        return await ctx.step("end", call, "end")

    for mended in ("deploy", "end"):
        with pytest.raises(ValueError, match=mended):
            await run_flow(flow, run_id="r", store=flows.named)
        broken.remove(mended)

    assert await run_flow(flow, run_id="r", store=flows.named) == "end"
    assert calls == ["deploy", "tidy up", "roll back", "deploy", "announce", "tidy", "end", "end"]


async def test_when_all_is_tried_before_the_flow_fails_only_the_failures_are_tried_again(flows: FlowStore) -> None:
    calls: list[str] = []
    broken = {"b", "d"}

    def call(name: str) -> str:
        calls.append(name)
        if name in broken:
            raise ValueError(name)
        return name

    async def flow(ctx: Context) -> list[str]:
        results, errors = [], []
        for name in "abcde":
            try:
                results.append(await ctx.step(name, call, name))
            except ValueError as error:
                errors.append(error)
        if errors:
            raise ExceptionGroup("some failed", errors)
        return results

    with pytest.raises(ExceptionGroup):
        await run_flow(flow, run_id="r", store=flows.named)
    broken.clear()

    assert await run_flow(flow, run_id="r", store=flows.named) == list("abcde")
    assert calls == [*"abcde", "b", "d"]


async def test_when_the_fallback_fails_too_only_the_fallback_is_tried_again(flows: FlowStore) -> None:
    calls: list[str] = []

    def call(name: str) -> str:
        calls.append(name)
        if is_broken:
            raise ValueError(name)
        return name

    async def flow(ctx: Context) -> str:
        try:
            return await ctx.step("first choice", call, "first choice")
        except ValueError:
            return await ctx.step("fallback", call, "fallback")

    is_broken = True
    with pytest.raises(ValueError, match="fallback"):
        await run_flow(flow, run_id="r", store=flows.named)
    is_broken = False

    assert await run_flow(flow, run_id="r", store=flows.named) == "fallback"
    assert calls == ["first choice", "fallback", "fallback"]


@pytest.mark.parametrize("is_explicit", [True, False])
async def test_a_failure_in_other_words_is_still_tried_again(flows: FlowStore, is_explicit: bool) -> None:
    calls: list[str] = []

    def call() -> str:
        calls.append("a")
        if len(calls) == 1:
            raise ValueError("inner")
        return "done"

    async def flow(ctx: Context) -> str:
        try:
            return await ctx.step("a", call)
        except ValueError as error:
            raise KeyError("outer") from (error if is_explicit else None)

    with pytest.raises(KeyError, match="outer"):
        await run_flow(flow, run_id="r", store=flows.named)

    assert await run_flow(flow, run_id="r", store=flows.named) == "done"


# -- retries ----------------------------------------------------------------------------------------------------------


async def test_a_failing_step_is_tried_again_as_often_as_asked(flows: FlowStore) -> None:
    calls: list[float] = []

    def call() -> str:
        calls.append(time.monotonic())
        if len(calls) < 3:
            raise ValueError(f"try {len(calls)}")
        return "third time"

    async def flow(ctx: Context) -> str:
        return await ctx.step("a", call, retries=2, backoff_s=0.01)

    assert await run_flow(flow, run_id="r", store=flows.named) == "third time"
    assert flows.kinds()[2:] == ["step.failed", "step.failed", "step.completed", "run.completed"]
    assert all("retry_at" in event.payload for event in flows.events() if event.kind == "step.failed")


async def test_after_the_last_try_its_failure_is_raised_and_a_new_run_starts_counting_anew(flows: FlowStore) -> None:
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        raise ValueError(f"try {calls}")

    async def flow(ctx: Context) -> None:
        await ctx.step("a", call, retries=1, backoff_s=0)

    with pytest.raises(ValueError, match="try 2"):
        await run_flow(flow, run_id="r", store=flows.named)
    with pytest.raises(ValueError, match="try 4"):
        await run_flow(flow, run_id="r", store=flows.named)


async def test_retries_go_on_where_they_were_after_a_kill_in_the_back_off(disk_flows: FlowStore) -> None:
    code = """
def call():
    print("called", flush=True)
    raise ValueError("again")

async def flow(ctx):
    await ctx.step("a", call, retries=2, backoff_s=60)

asyncio.run(run_flow(flow, run_id="r", store=store))
"""
    child = disk_flows.start_process(code)
    assert child.stdout.readline() == "called\n"
    await until(lambda: "step.failed" in disk_flows.kinds())
    child.send_signal(signal.SIGKILL)
    child.communicate()
    failed = disk_flows.events()[-1]
    assert 40 < failed.payload["retry_at"] - failed.ts < 80
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        raise ValueError(f"try {calls + 1}")

    async def flow(ctx: Context) -> None:
        await ctx.step("a", call, retries=2, backoff_s=0)

    class Later(FlowClock):
        def now(self) -> float:
            return super().now() + 100

    with use_clock(Later()), pytest.raises(ValueError, match="try 3"):
        await run_flow(flow, run_id="r", store=disk_flows.named)
    assert calls == 2


async def test_a_clock_set_back_does_not_make_a_sleep_longer(flows: FlowStore, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time
    jump = 0.0

    async def flow(ctx: Context) -> str:
        nonlocal jump
        sleeping = asyncio.ensure_future(ctx.sleep(0.05))
        while "timer.started" not in flows.kinds():
            await asyncio.sleep(0)
        jump = -1000.0
        await sleeping
        return "awake"

    monkeypatch.setattr(time, "time", lambda: now() + jump)

    assert await run_flow(flow, run_id="r", store=flows.named) == "awake"


# -- a process that dies in the middle --------------------------------------------------------------------------------

DIES = """
def call():
    print("called", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

def reconcile(key):
    raise AssertionError

policy = args[0] if args[0] in ("rerun", "ask", "fail") else reconcile

async def flow(ctx):
    await ctx.step("before", lambda: 1)
    return await ctx.step("pay", call, on_unknown=policy)

asyncio.run(run_flow(flow, run_id="r", store=store))
"""


def die_in_step(flows: FlowStore, policy: str) -> None:
    child = flows.start_process(DIES, policy)
    out, err = child.communicate()
    assert (out, child.returncode) == ("called\n", -signal.SIGKILL), err


def paying(on_unknown: Any, calls: list[str]) -> Any:
    async def flow(ctx: Context) -> Any:
        await ctx.step("before", lambda: 1)
        return await ctx.step("pay", lambda: calls.append(step_key()) or "paid", on_unknown=on_unknown)

    return flow


async def test_an_unknown_outcome_is_run_again_by_default(disk_flows: FlowStore) -> None:
    die_in_step(disk_flows, "rerun")
    calls: list[str] = []

    assert await run_flow(paying("rerun", calls), run_id="r", store=disk_flows.named) == "paid"
    assert calls == ["r:pay"]


@pytest.mark.parametrize(
    ("action", "options"), [("rerun", {}), ("approve", {}), ("done", {"result": {"receipt": 7}}), ("reject", {})]
)
async def test_an_unknown_outcome_can_wait_for_a_person(flows: FlowStore, action: str, options: Any) -> None:
    await leave_in_doubt(flows, "ask")
    calls: list[str] = []
    flow = paying("ask", calls)

    for _ in range(2):
        with pytest.raises(RunPaused, match="pay") as raised:
            await run_flow(flow, run_id="r", store=flows.named)
        assert (raised.value.run_id, raised.value.key) == ("r", "pay")
    assert flows.kinds().count("human.approval.requested") == 1
    await decide("r", "pay", action, store=flows.named, **options)

    if action == "reject":
        with pytest.raises(ToolOutcomeUnknown):
            await run_flow(flow, run_id="r", store=flows.named)
        assert calls == []
    else:
        assert await run_flow(flow, run_id="r", store=flows.named) == options.get("result", "paid")
        assert calls == ([] if action == "done" else ["r:pay"])


async def test_an_unknown_outcome_can_fail_and_be_settled_by_a_person_afterwards(disk_flows: FlowStore) -> None:
    die_in_step(disk_flows, "fail")
    calls: list[str] = []
    flow = paying("fail", calls)

    for _ in range(2):
        with pytest.raises(ToolOutcomeUnknown, match="'pay'") as raised:
            await run_flow(flow, run_id="r", store=disk_flows.named)
        assert raised.value.code == "tool_outcome_unknown"
    await decide("r", "pay", "done", result="paid before", store=disk_flows.named)

    assert await run_flow(flow, run_id="r", store=disk_flows.named) == "paid before"
    assert calls == []


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("outcome", [Done({"receipt": 1}), NotDone()])
async def test_an_unknown_outcome_can_be_asked_of_the_destination(
    flows: FlowStore, outcome: Done | NotDone, is_async: bool
) -> None:
    calls: list[str] = []
    keys: list[str] = []

    async def later(key: str) -> Done | NotDone:
        return reconcile(key)

    def reconcile(key: str) -> Done | NotDone:
        keys.append(key)
        return outcome

    policy = later if is_async else reconcile
    await leave_in_doubt(flows, policy)

    result = await run_flow(paying(policy, calls), run_id="r", store=flows.named)

    assert result == (outcome.result if isinstance(outcome, Done) else "paid")
    assert keys == ["r:pay"]
    assert calls == ([] if isinstance(outcome, Done) else ["r:pay"])
    assert await run_flow(paying(policy, calls), run_id="r", store=flows.named) == result
    assert len(keys) == 1


async def leave_in_doubt(flows: FlowStore, policy: Any) -> None:
    """As a kill would, cheaply: the task is cancelled in the middle of the call."""
    is_in_step = asyncio.Event()

    async def call() -> None:
        is_in_step.set()
        await asyncio.sleep(60)

    async def flow(ctx: Context) -> None:
        await ctx.step("before", lambda: 1)
        await ctx.step("pay", call, on_unknown=policy)

    task = asyncio.create_task(run_flow(flow, run_id="r", store=flows.named))
    await is_in_step.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_reconciler_that_answers_something_else_fails_the_flow_and_nothing_is_called(flows: FlowStore) -> None:
    calls: list[str] = []
    await leave_in_doubt(flows, lambda key: True)

    with pytest.raises(TypeError, match="Done"):
        await run_flow(paying(lambda key: True, calls), run_id="r", store=flows.named)

    assert calls == []


async def test_a_kill_does_not_give_a_step_more_tries_than_it_has(flows: FlowStore) -> None:
    calls = 0
    is_in_step = asyncio.Event()

    async def call() -> None:
        nonlocal calls
        calls += 1
        if calls == 2 and not is_in_step.is_set():
            is_in_step.set()
            await asyncio.sleep(60)
        raise ValueError(f"call {calls}")

    async def flow(ctx: Context) -> None:
        await ctx.step("a", call, retries=2, backoff_s=0, on_unknown=lambda key: NotDone())

    task = asyncio.create_task(run_flow(flow, run_id="r", store=flows.named))
    await is_in_step.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    with pytest.raises(ValueError, match="call 4"):
        await run_flow(flow, run_id="r", store=flows.named)


# -- sleep ------------------------------------------------------------------------------------------------------------


async def test_a_sleep_ends_by_the_clock_however_often_its_process_dies(disk_flows: FlowStore) -> None:
    code = """
async def flow(ctx):
    await ctx.sleep(0.5)

asyncio.run(run_flow(flow, run_id="r", store=store))
"""
    child = disk_flows.start_process(code)
    await until(lambda: "timer.started" in disk_flows.kinds())
    child.send_signal(signal.SIGKILL)
    child.communicate()

    async def flow(ctx: Context) -> str:
        await ctx.sleep(3600)  # what counts is the number of the first time
        return "woken"

    assert await run_flow(flow, run_id="r", store=disk_flows.named) == "woken"
    started = next(event for event in disk_flows.events() if event.kind == "timer.started")
    assert started.payload["wake_at"] <= time.time()
    assert disk_flows.kinds().count("timer.started") == 1


async def test_a_sleep_of_no_time_is_over_at_once(flows: FlowStore) -> None:
    async def flow(ctx: Context) -> str:
        for seconds in (0, -5, 0.0):
            await ctx.sleep(seconds)
        return "awake"

    assert await run_twice(flow, flows.named) == "awake"
    assert flows.kinds().count("timer.started") == 3


# -- the same code, or a refusal --------------------------------------------------------------------------------------


async def first_version(ctx: Context) -> str:
    await ctx.step("a", str.upper, "x")
    await ctx.step("b", str.upper, "y")
    raise broken()


async def reordered(ctx: Context) -> None:
    await ctx.step("b", str.upper, "y")


async def other_argument(ctx: Context) -> None:
    await ctx.step("a", str.upper, "z")


async def one_less(ctx: Context) -> None:
    await ctx.step("a", str.upper, "x")


async def another_sort(ctx: Context) -> None:
    await ctx.approval("a")


async def one_between(ctx: Context) -> None:
    await ctx.step("a", str.upper, "x")
    await ctx.sleep(0)


CHANGES = [
    (reordered, ["step 'a'", "place 1", "step 'b'"]),
    (other_argument, ["step 'a'", "arguments"]),
    (one_less, ["step 'b'", "no longer asks"]),
    (another_sort, ["step 'a'", "approval 'a'"]),
    (one_between, ["step 'b'", "place 2", "sleep 'sleep'"]),
]


async def test_changed_code_is_refused_by_what_changed_and_the_right_code_goes_on(flows: FlowStore) -> None:
    async def mended(ctx: Context) -> str:
        return await ctx.step("a", str.upper, "x") + await ctx.step("b", str.upper, "y")

    with pytest.raises(RuntimeError):
        await run_flow(first_version, run_id="r", store=flows.named)

    for changed, parts in CHANGES:
        with pytest.raises(Nondeterminism) as raised:
            await run_flow(changed, run_id="r", store=flows.named)
        assert all(part in raised.value.message for part in parts), raised.value.message
        assert raised.value.hint
    assert await run_flow(mended, run_id="r", store=flows.named) == "XY"


async def test_changed_code_cannot_catch_the_refusal_and_go_on(flows: FlowStore) -> None:
    calls: list[str] = []

    async def careless(ctx: Context) -> str:
        with contextlib.suppress(BaseException):
            await ctx.step("other", calls.append, "other")
        with contextlib.suppress(BaseException):
            await ctx.step("more", calls.append, "more")
        return "done"

    with pytest.raises(RuntimeError):
        await run_flow(first_version, run_id="r", store=flows.named)
    with pytest.raises(Nondeterminism):
        await run_flow(careless, run_id="r", store=flows.named)

    assert calls == []
    assert "run.completed" not in flows.kinds()


# -- wrong use --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((None, print), {}),
        (("", print), {}),
        ((7, print), {}),
        (("a", None), {}),
        (("a", "print"), {}),
        (("a", print), {"on_unknown": "retry"}),
        (("a", print), {"on_unknown": None}),
        (("a", print), {"retries": "3"}),
        (("a", print), {"retries": -1}),
    ],
)
async def test_a_step_asked_for_wrongly_is_a_type_error_and_records_nothing(arguments: Any, options: Any) -> None:
    store = InMemoryCheckpointer()

    async def flow(ctx: Context) -> None:
        with pytest.raises(TypeError):
            await ctx.step(*arguments, **options)

    await run_flow(flow, run_id="r", store=store)

    assert [event.kind for event in store.list_events("r")] == ["run.created", "run.started", "run.completed"]


@pytest.mark.parametrize("key", ["\ud800", "g1.1/a"])
async def test_a_key_that_could_not_be_found_again_is_refused_before_the_call(key: str) -> None:
    calls: list[str] = []

    async def flow(ctx: Context) -> None:
        await ctx.step(key, calls.append, "called")

    with pytest.raises((PayloadInvalid, ValueError)):
        await run_flow(flow, run_id="r", store=InMemoryCheckpointer())

    assert calls == []


async def test_any_other_text_is_a_key(flows: FlowStore) -> None:
    keys = ["a/b", "a#2", "ä ö", "x" * 1000, "a\nb", "a:b", " ", "main", "sleep", "g1", "\0"]

    async def flow(ctx: Context) -> list[str]:
        return [await ctx.step(key, lambda key=key: key) for key in keys * 2]

    assert await run_twice(flow, flows.named) == keys * 2


async def test_a_step_inside_a_step_is_refused_clearly(flows: FlowStore) -> None:
    async def flow(ctx: Context) -> None:
        async def outer() -> None:
            await ctx.step("inner", lambda: 1)

        await ctx.step("outer", outer)

    with pytest.raises(Nondeterminism, match="'inner' was asked for while step 'outer'") as raised:
        await run_flow(flow, run_id="r", store=flows.named)

    assert "inside" in raised.value.hint


async def test_a_time_limit_around_a_step_is_refused_as_soon_as_the_flow_goes_on(flows: FlowStore) -> None:
    async def flow(ctx: Context) -> str:
        try:
            async with asyncio.timeout(0.01):
                await ctx.step("slow", asyncio.sleep, 60)
        except TimeoutError:
            return await ctx.step("fallback", lambda: "too slow")
        return "fast"

    with pytest.raises(Nondeterminism, match="'slow' was cancelled before its end") as raised:
        await run_flow(flow, run_id="r", store=flows.named)
    assert "ctx.step.options(timeout=5)" in raised.value.hint

    async def mended(ctx: Context) -> str:
        await ctx.step("slow", lambda: None)
        return "fast"

    assert await run_flow(mended, run_id="r", store=flows.named) == "fast"


async def test_a_step_that_nobody_awaits_does_not_let_the_flow_complete(flows: FlowStore) -> None:
    go = asyncio.Event()
    left: list[asyncio.Task[Any]] = []

    async def flow(ctx: Context) -> str:
        left.append(asyncio.create_task(ctx.step("left behind", go.wait)))
        await asyncio.sleep(0)
        return "returned"

    with pytest.raises(Nondeterminism, match="'left behind' still runs"):
        await run_flow(flow, run_id="r", store=flows.named)
    events = flows.events()
    go.set()
    await asyncio.gather(*left, return_exceptions=True)

    assert flows.events() == events


async def test_a_context_is_of_no_use_outside_its_flow(flows: FlowStore) -> None:
    contexts: list[Context] = []
    calls: list[str] = []

    async def inner(ctx: Context) -> None:
        with pytest.raises(Nondeterminism, match="not the flow"):
            await contexts[0].step("of another", calls.append, "of another")

    async def outer(ctx: Context) -> None:
        contexts.append(ctx)
        await run_flow(inner, run_id="inner", store=flows.named)

    await run_flow(outer, run_id="r", store=flows.named)
    with pytest.raises(Nondeterminism, match="is over"):
        await contexts[0].step("too late", calls.append, "too late")

    assert calls == []
    assert flows.kinds() == ["run.created", "run.started", "run.completed"]


async def test_a_store_of_the_users_own_may_keep_what_it_is_given() -> None:
    class Keeping(OwnCheckpointer):
        def __init__(self) -> None:
            super().__init__()
            self.events: list[Any] = []

        def save_event(self, event: Any) -> Any:
            self.events.append(event)
            return super().save_event(event)

    store = Keeping()

    async def flow(ctx: Context) -> None:
        result = await ctx.step("a", lambda: [1])
        result.append(2)

    await run_flow(flow, run_id="r", store=store)

    assert [event.payload["result"] for event in store.events if event.kind == "step.completed"] == [[1]]


async def test_what_a_flow_is_resumed_with_in_a_child_is_what_was_recorded_here(disk_flows: FlowStore) -> None:
    async def flow(ctx: Context) -> Any:
        await ctx.step("a", lambda: {"big": 2**80, "text": "ä\0", "list": [1, 2.5, None, True]})
        raise broken()

    with pytest.raises(RuntimeError):
        await run_flow(flow, run_id="r", store=disk_flows.named)
    code = """
import json
async def flow(ctx):
    return await ctx.step("a", print)
print(json.dumps(asyncio.run(run_flow(flow, run_id="r", store=store))))
"""

    printed = finish(disk_flows.start_process(code))

    assert json.loads(printed) == {"big": 2**80, "text": "ä\0", "list": [1, 2.5, None, True]}
