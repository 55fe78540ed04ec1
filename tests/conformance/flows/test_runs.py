"""A run by its id: started, gone on with, returned when complete, and driven by one owner at a time."""

import asyncio
import gc
import json
import os
import signal
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
from tests.support.flow_stores import FlowStore, OwnCheckpointer
from tests.support.stores import finish

from holdfast import Context, HoldfastError, RunPaused, cancel_flow, run_flow
from holdfast.errors import LeaseLost, Nondeterminism, PayloadInvalid, RunBusy, RunIdInvalid, StoreUnreadable
from holdfast.runtime.checkpoint import InMemoryCheckpointer, SQLiteCheckpointer
from holdfast.runtime.events import create_event


class Calls:
    """Which functions were called, in order; one of them may fail."""

    def __init__(self, fails_at: str | None = None) -> None:
        self.made: list[str] = []
        self.fails_at = fails_at

    def __call__(self, name: str) -> str:
        self.made.append(name)
        if name == self.fails_at:
            raise ValueError(f"{name} is broken")
        return name.upper()


async def three_steps(ctx: Context, calls: Calls) -> list[str]:
    return [await ctx.step(name, calls, name) for name in ("a", "b", "c")]


async def nothing(ctx: Context) -> None:
    pass


async def test_what_a_run_held_is_freed_at_its_end() -> None:
    held: list[weakref.ref[Context]] = []

    async def noted(ctx: Context) -> None:
        held.append(weakref.ref(ctx))
        await ctx.step("a", lambda: 1)

    gc.disable()
    try:
        await run_flow(noted, store=InMemoryCheckpointer())
        assert held[0]() is None
    finally:
        gc.enable()


async def test_a_flow_returns_what_its_function_returns(flows: FlowStore) -> None:
    calls = Calls()

    assert await run_flow(three_steps, calls, run_id="r", store=flows.named) == ["A", "B", "C"]

    assert calls.made == ["a", "b", "c"]
    assert flows.kinds()[-1] == "run.completed"
    assert [event.seq for event in flows.events()] == list(range(1, len(flows.events()) + 1))


async def test_a_completed_run_returns_its_result_without_calling_anything(flows: FlowStore) -> None:
    first = await run_flow(three_steps, Calls(), run_id="r", store=flows.named)
    events = flows.events()
    calls = Calls()

    again = await run_flow(three_steps, calls, run_id="r", store=flows.named)

    async def not_called(ctx: Context, calls: Calls) -> None:
        raise AssertionError("called")

    assert await run_flow(not_called, calls, run_id="r", store=flows.named) == again == first
    assert calls.made == []
    assert flows.events() == events


async def test_a_failed_run_goes_on_at_the_failed_step(flows: FlowStore) -> None:
    with pytest.raises(ValueError, match="b is broken"):
        await run_flow(three_steps, Calls(fails_at="b"), run_id="r", store=flows.named)
    assert flows.kinds()[-1] == "run.failed"
    calls = Calls()

    assert await run_flow(three_steps, calls, run_id="r", store=flows.named) == ["A", "B", "C"]

    assert calls.made == ["b", "c"]


async def test_a_flow_that_failed_outside_its_steps_goes_on_after_them(flows: FlowStore) -> None:
    is_broken = True

    async def flow(ctx: Context, calls: Calls) -> str:
        done = await ctx.step("a", calls, "a")
        if is_broken:
            raise KeyError("no step")
        return done

    calls = Calls()
    with pytest.raises(KeyError):
        await run_flow(flow, calls, run_id="r", store=flows.named)
    is_broken = False

    assert await run_flow(flow, calls, run_id="r", store=flows.named) == "A"
    assert calls.made == ["a"]


async def test_other_arguments_are_refused_by_name_and_the_run_goes_on_with_the_right_ones(flows: FlowStore) -> None:
    async def flow(ctx: Context, version: str, *, dry: bool = False) -> str:
        return await ctx.step("build", str.upper, version)

    assert await run_flow(flow, "a", run_id="r", store=flows.named, dry=True) == "A"

    for arguments, options, changed in [
        (["b"], {"dry": True}, "args"),
        (["a"], {"dry": False}, "kwargs"),
        (["a"], {}, "kwargs"),
        ([], {"dry": True}, "args"),
        ([["a"]], {"dry": True}, "args"),
    ]:
        with pytest.raises(Nondeterminism, match=rf"other .*{changed}") as raised:
            await run_flow(flow, *arguments, run_id="r", store=flows.named, **options)
        assert raised.value.code == "nondeterminism"
    assert await run_flow(flow, "a", run_id="r", store=flows.named, dry=True) == "A"


async def test_the_order_of_keywords_and_of_keys_is_no_difference(flows: FlowStore) -> None:
    async def flow(ctx: Context, options: dict[str, int], **more: int) -> int:
        total = await ctx.step("sum", lambda numbers, **kw: sum(numbers.values()) + sum(kw.values()), options, **more)
        if is_broken:
            raise ValueError("after the step")
        return total

    is_broken = True
    with pytest.raises(ValueError):
        await run_flow(flow, {"x": 1, "y": 2}, run_id="r", store=flows.named, p=3, q=4)
    is_broken = False

    assert await run_flow(flow, {"y": 2, "x": 1}, run_id="r", store=flows.named, q=4, p=3) == 10


async def test_arguments_that_are_no_json_are_handed_on_as_they_are(flows: FlowStore) -> None:
    async def flow(ctx: Context, lock: threading.Lock, raw: bytes, items: set[int]) -> list[Any]:
        return [await ctx.step("size", len, items), raw.decode(), lock.locked()]

    first = await run_flow(flow, threading.Lock(), b"raw", {1, 2}, run_id="r", store=flows.named)

    assert first == [2, "raw", False]
    assert await run_flow(flow, threading.Lock(), b"raw", {1, 2}, run_id="r", store=flows.named) == first


async def test_an_invalid_run_id_is_refused_and_nothing_is_called(flows: FlowStore) -> None:
    calls = Calls()

    for run_id in ("", 7, b"r", "a\0b", "x" * 201, "\ud800", ["r"]):
        with pytest.raises(RunIdInvalid) as raised:
            await run_flow(three_steps, calls, run_id=run_id, store=flows.named)  # type: ignore[arg-type]
        assert raised.value.code == "run_id_invalid"

    assert calls.made == []
    assert flows.open_beside().list_runs() == []


async def test_without_a_run_id_every_call_is_a_new_run(flows: FlowStore) -> None:
    calls = Calls()

    await run_flow(three_steps, calls, store=flows.named)
    await run_flow(three_steps, calls, store=flows.named)

    assert len(calls.made) == 6
    assert len(set(flows.open_beside().list_runs())) == 2


async def test_results_are_the_callers_own(flows: FlowStore) -> None:
    results: list[Any] = []

    async def flow(ctx: Context) -> Any:
        value = {"n": [1]}
        result = await ctx.step("a", lambda: value)
        value["n"].append(2)
        results.append(result)
        result["n"].append(3)
        return result

    first = await run_flow(flow, run_id="r", store=flows.named)
    assert first == {"n": [1, 3]}
    first["n"].append(4)
    results[0]["n"].append(5)

    second = await run_flow(flow, run_id="r", store=flows.named)
    assert second == {"n": [1, 3]}
    second["n"].clear()
    assert await run_flow(flow, run_id="r", store=flows.named) == {"n": [1, 3]}
    assert [event.payload["result"] for event in flows.events() if event.kind == "step.completed"] == [{"n": [1]}]


@pytest.mark.parametrize("result", [b"x", object()])
async def test_a_flow_whose_result_is_no_json_fails_and_its_steps_stay_done(flows: FlowStore, result: Any) -> None:
    async def flow(ctx: Context, calls: Calls) -> Any:
        await ctx.step("a", calls, "a")
        return result

    calls = Calls()
    with pytest.raises(PayloadInvalid, match="the result of the flow"):
        await run_flow(flow, calls, run_id="r", store=flows.named)
    result = "fine"

    assert await run_flow(flow, calls, run_id="r", store=flows.named) == "fine"
    assert calls.made == ["a"]


async def test_many_steps_are_replayed_without_a_call(flows: FlowStore) -> None:
    count = 2000 if flows.kind == "memory" else 200
    calls = 0

    def call(number: int) -> int:
        nonlocal calls
        calls += 1
        return number

    async def flow(ctx: Context) -> int:
        total = sum([await ctx.step("add", call, number) for number in range(count)])
        if is_broken:
            raise ValueError("at the end")
        return total

    is_broken = True
    with pytest.raises(ValueError, match="at the end"):
        await run_flow(flow, run_id="r", store=flows.named)
    is_broken = False

    assert await run_flow(flow, run_id="r", store=flows.named) == sum(range(count))
    assert calls == count


# -- owners -----------------------------------------------------------------------------------------------------------


async def test_two_calls_at_once_for_one_run_are_one_run_and_one_refusal(flows: FlowStore) -> None:
    go = asyncio.Event()

    async def flow(ctx: Context) -> str:
        return await ctx.step("wait", wait)

    async def wait() -> str:
        await go.wait()
        return "done"

    both = [asyncio.create_task(run_flow(flow, run_id="r", store=flows.named)) for _ in range(2)]
    finished, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    go.set()

    with pytest.raises(RunBusy) as raised:
        await finished.pop()
    assert raised.value.code == "run_busy"
    assert "done" in await asyncio.gather(*both, return_exceptions=True)
    assert flows.kinds().count("run.started") == 1


async def test_many_runs_at_once_in_one_process(flows: FlowStore) -> None:
    count = 16 if flows.kind == "postgres" else 64

    async def flow(ctx: Context, number: int) -> list[int]:
        return [await ctx.step("add", lambda step=step: number + step) for step in range(5)]

    results = await asyncio.gather(
        *(run_flow(flow, number, run_id=f"r{number}", store=flows.named) for number in range(count))
    )

    assert results == [[number + step for step in range(5)] for number in range(count)]
    assert all(flows.kinds(f"r{number}").count("step.completed") == 5 for number in range(count))


async def test_threads_with_loops_of_their_own_share_a_store(flows: FlowStore) -> None:
    async def flow(ctx: Context, thread: int) -> list[int]:
        return [await ctx.step("add", lambda step=step: thread + step) for step in range(5)]

    def drive(thread: int) -> list[int]:
        return asyncio.run(run_flow(flow, thread, run_id=f"r{thread}", store=flows.named))

    results = await asyncio.gather(*(asyncio.to_thread(drive, thread) for thread in range(4)))

    assert results == [[thread + step for step in range(5)] for thread in range(4)]


async def test_a_run_that_a_thread_drives_is_busy_for_the_others(flows: FlowStore) -> None:
    is_in_step, may_go_on = threading.Event(), threading.Event()

    async def flow(ctx: Context) -> bool:
        return await ctx.step("wait", wait)

    def wait() -> bool:
        is_in_step.set()
        return may_go_on.wait(30)

    driving = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(run_flow(flow, run_id="r", store=flows.named))))
    await asyncio.to_thread(is_in_step.wait, 30)
    try:
        with pytest.raises(RunBusy):
            await run_flow(flow, run_id="r", store=flows.named)
    finally:
        may_go_on.set()

    assert await driving is True


SLOW = """
async def flow(ctx):
    return await ctx.step("a", lambda: "A") + await ctx.step("wait", wait)

async def wait():
    print("in step", flush=True)
    await asyncio.sleep(60)

asyncio.run(run_flow(flow, run_id="r", store=store))
"""


async def test_a_live_owner_in_another_process_is_run_busy_and_a_dead_one_is_taken_over(
    fenced_flows: FlowStore,
) -> None:
    async def flow(ctx: Context) -> str:
        return await ctx.step("a", lambda: "never") + await ctx.step("wait", lambda: "B")

    child = fenced_flows.start_process(SLOW)
    try:
        assert child.stdout.readline() == "in step\n"
        with pytest.raises(RunBusy, match=str(child.pid)):
            await run_flow(flow, run_id="r", store=fenced_flows.named)
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()

    assert await run_flow(flow, run_id="r", store=fenced_flows.named) == "AB"


async def test_a_killed_process_loses_nothing_on_a_plain_store_either(disk_flows: FlowStore) -> None:
    child = disk_flows.start_process(SLOW)
    assert child.stdout.readline() == "in step\n"
    child.send_signal(signal.SIGKILL)
    child.communicate()

    async def flow(ctx: Context) -> str:
        return await ctx.step("a", lambda: "never") + await ctx.step("wait", lambda: "B")

    assert await run_flow(flow, run_id="r", store=disk_flows.named) == "AB"
    assert disk_flows.kinds().count("run.started") == 1


async def test_a_killed_child_of_a_fork_does_not_take_the_run_with_it(fenced_flows: FlowStore) -> None:
    async def flow(ctx: Context) -> str:
        await ctx.step("fork", fork)
        with pytest.raises(RunBusy):
            await run_flow(nothing, run_id="r", store=fenced_flows.named)
        return await ctx.step("after", lambda: "still ours")

    def fork() -> int:
        child = os.fork()
        if not child:
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert await run_flow(flow, run_id="r", store=fenced_flows.named) == "still ours"


async def test_an_owner_whose_run_was_taken_over_is_refused_and_writes_nothing(fenced_flows: FlowStore) -> None:
    async def flow(ctx: Context) -> None:
        await ctx.step("a", lambda: fenced_flows.open_beside().claim("r", force=True) and None)
        raise AssertionError("not reached")

    with pytest.raises(LeaseLost) as raised:
        await run_flow(flow, run_id="r", store=fenced_flows.named)

    assert raised.value.code == "lease_lost"
    assert fenced_flows.kinds() == ["run.created", "run.started"]


class Meddling(SQLiteCheckpointer):
    """Lets something happen between a flow's first look at a run and its claim."""

    meddle: Any = None

    def claim_many(self, *args: Any, **kwargs: Any) -> Any:
        meddle, self.meddle = self.meddle, None
        if meddle is not None:
            meddle()
        return super().claim_many(*args, **kwargs)


@pytest.mark.parametrize("ends_as", ["completed", "cancelled", "paused", "other arguments"])
async def test_a_run_that_ended_between_look_and_claim_is_not_opened_again(tmp_path: Path, ends_as: str) -> None:
    path = str(tmp_path / "flows.db")

    async def flow(ctx: Context, argument: int) -> str:
        if ends_as == "paused":
            await ctx.approval("publish")
        return await ctx.step("a", lambda: "result")

    def other_process_ends_it() -> None:
        argument = 2 if ends_as == "other arguments" else 1
        if ends_as == "cancelled":
            SQLiteCheckpointer(path).save_event(create_event("r", "run.started"))
            asyncio.run(cancel_flow("r", store=path))
        elif ends_as == "paused":
            with pytest.raises(RunPaused):
                asyncio.run(run_flow(flow, argument, run_id="r", store=path))
        else:
            asyncio.run(run_flow(flow, argument, run_id="r", store=path))

    def in_a_thread() -> None:
        thread = threading.Thread(target=other_process_ends_it)
        thread.start()
        thread.join()

    store = Meddling(path)
    store.meddle = in_a_thread

    expected = {"completed": None, "cancelled": "run_cancelled", "paused": "run_paused"}.get(ends_as, "nondeterminism")
    if expected is None:
        assert await run_flow(flow, 1, run_id="r", store=store) == "result"
    else:
        with pytest.raises(HoldfastError) as raised:
            await run_flow(flow, 1, run_id="r", store=store)
        assert raised.value.code == expected
    assert "run.resumed" not in [event.kind for event in store.list_events("r")]
    store.close()


async def test_cancelling_the_task_leaves_the_run_to_be_gone_on_with(flows: FlowStore) -> None:
    is_in_step = asyncio.Event()
    calls: list[str] = []

    async def flow(ctx: Context) -> list[str]:
        await ctx.step("a", calls.append, "a")
        await ctx.step("wait", wait)
        return calls

    async def wait() -> None:
        is_in_step.set()
        if calls.count("wait") == 0:
            calls.append("wait")
            await asyncio.sleep(60)

    task = asyncio.create_task(run_flow(flow, run_id="r", store=flows.named))
    await is_in_step.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert flows.kinds()[-1] == "step.completed"
    assert await run_flow(flow, run_id="r", store=flows.named) == ["a", "wait"]


async def test_a_clean_up_step_of_a_cancelled_task_is_not_recorded_in_another_steps_place(flows: FlowStore) -> None:
    is_in_step = asyncio.Event()
    calls: list[str] = []

    async def flow(ctx: Context) -> str:
        try:
            return await ctx.step("wait", wait)
        finally:
            await ctx.step("clean up", calls.append, "clean up")

    async def wait() -> str:
        if is_in_step.is_set():
            return "waited"
        is_in_step.set()
        await asyncio.sleep(60)
        return "never"

    task = asyncio.create_task(run_flow(flow, run_id="r", store=flows.named))
    await is_in_step.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert calls == []

    assert await run_flow(flow, run_id="r", store=flows.named) == "waited"
    assert calls == ["clean up"]


# -- what a store may be named by -------------------------------------------------------------------------------------


async def test_a_path_a_url_and_a_link_name_the_same_store(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    path = tmp_path / "real" / "flows.db"
    calls = Calls()
    expected = await run_flow(three_steps, calls, run_id="r", store=path)

    for store in (str(path), f"sqlite:///{path}", f"sqlite+aiosqlite:///{path}", tmp_path / "link" / "flows.db"):
        assert await run_flow(three_steps, calls, run_id="r", store=store) == expected
    assert len(calls.made) == 3


async def test_a_live_owner_is_seen_through_every_name_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "real.db").touch()
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    owner = SQLiteCheckpointer(tmp_path / "real.db")
    owner.claim("r")

    with pytest.raises(RunBusy):
        SQLiteCheckpointer(tmp_path / "link.db").claim("r")
    owner.close()


async def test_a_relative_path_stays_what_it_was_when_the_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)

    async def flow(ctx: Context) -> int:
        await ctx.step("move", lambda: monkeypatch.chdir(tmp_path / "elsewhere"))
        with pytest.raises(RunBusy):
            await run_flow(nothing, run_id="r", store=tmp_path / "holdfast.db")
        return await ctx.step("a", lambda: 1)

    assert await run_flow(flow, run_id="r") == 1
    assert await run_flow(flow, run_id="r", store=tmp_path / "holdfast.db") == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("store", ["mysql://host/x", "redis://localhost", "://x"])
async def test_an_unknown_kind_of_url_is_refused(store: str) -> None:
    with pytest.raises(StoreUnreadable, match="scheme") as raised:
        await run_flow(three_steps, Calls(), run_id="r", store=store)

    assert raised.value.hint


@pytest.mark.parametrize("store", [None, 7, object(), {"path": "x"}])
async def test_what_is_no_store_at_all_is_refused_by_name(store: Any) -> None:
    calls = Calls()

    with pytest.raises(TypeError, match="store"):
        await run_flow(three_steps, calls, run_id="r", store=store)

    assert calls.made == []


async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary " * 100)

    with pytest.raises(StoreUnreadable):
        await run_flow(three_steps, Calls(), run_id="r", store=path)

    assert path.read_text() == "dear diary " * 100


@pytest.mark.parametrize("flow", [None, "flow", lambda ctx: 1, print])
async def test_what_is_no_asynchronous_function_is_refused(flow: Any) -> None:
    store = InMemoryCheckpointer()

    with pytest.raises(TypeError):
        await run_flow(flow, run_id="r", store=store)


class Dying(OwnCheckpointer):
    """Raises once, at the given append."""

    def __init__(self, dies_on: int, error: type[BaseException]) -> None:
        super().__init__()
        self.left = dies_on
        self.error = error

    def save_event(self, event: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise self.error("the disk is gone")
        return super().save_event(event)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("error", [OSError, Killed])
@pytest.mark.parametrize("dies_on", range(1, 10))
async def test_a_store_that_fails_ends_the_flow_at_once_and_loses_nothing(
    dies_on: int, error: type[BaseException]
) -> None:
    store = Dying(dies_on, error)
    done: list[str] = []

    async def flow(ctx: Context) -> list[str]:
        results = []
        for name in ("a", "b"):
            try:
                results.append(await ctx.step(name, note, name))
            except Exception:
                results.append("swallowed")
        return results + await ctx.gather(ctx.step("c", note, "c"), ctx.step("d", note, "d"))

    def note(name: str) -> str:
        done.append(name)
        return name

    if dies_on <= 7:
        with pytest.raises(error, match="the disk is gone"):
            await run_flow(flow, run_id="r", store=store)
        assert "run.failed" not in [event.kind for event in store.list_events("r")]

    assert await run_flow(flow, run_id="r", store=store) == ["a", "b", "c", "d"]
    assert done.count("a") + done.count("b") <= 3
    assert len(done) <= 6  # two lanes may have been in flight


async def test_a_run_is_finished_by_another_process(disk_flows: FlowStore) -> None:
    async def flow(ctx: Context) -> list[str]:
        return [await ctx.step(name, Calls(fails_at="c"), name) for name in ("a", "b", "c")]

    with pytest.raises(ValueError):
        await run_flow(flow, run_id="r", store=disk_flows.named)
    code = """
async def flow(ctx):
    return [await ctx.step(name, lambda n: "child " + n, name) for name in ("a", "b", "c")]
import json
print(json.dumps(asyncio.run(run_flow(flow, run_id="r", store=store))))
"""

    printed = finish(disk_flows.start_process(code))

    assert json.loads(printed) == ["A", "B", "child c"]
