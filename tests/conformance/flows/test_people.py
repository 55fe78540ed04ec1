"""What people do to a run: approve, reject, ask for changes, abort, cancel; beside its owner or without one."""

import asyncio
import contextlib
from typing import Any

import pytest
from tests.support.flow_stores import FlowStore, OwnCheckpointer
from tests.support.progress_limit import until
from tests.support.stores import finish

from holdfast import Context, Decision, HoldfastError, RunCancelled, RunPaused, cancel_flow, decide, run_flow
from holdfast.enums import ApprovalDecisionAction
from holdfast.errors import (
    ApprovalNotFound,
    ApprovalRejected,
    ConfigInvalid,
    EventTimeout,
    Nondeterminism,
    PayloadInvalid,
    RunAlreadyTerminal,
    RunNotFound,
)
from holdfast.runtime.checkpoint import InMemoryCheckpointer
from holdfast.runtime.events import EventKind, create_event
from holdfast.runtime.run_log import RunLog
from holdfast.testing import skip_time


async def publish(ctx: Context) -> list[Any]:
    notes = await ctx.step("notes", lambda: "what is new")
    decision = await ctx.approval("publish", show={"notes": notes})
    return [decision, await ctx.step("publish", lambda: "published")]


async def test_an_approval_pauses_the_run_until_someone_decides(flows: FlowStore) -> None:
    for _ in range(3):
        with pytest.raises(RunPaused) as raised:
            await run_flow(publish, run_id="r", store=flows.named)
        assert (raised.value.code, raised.value.run_id, raised.value.key) == ("run_paused", "r", "publish")
        assert "decide" in raised.value.hint
    kinds = flows.kinds()
    assert kinds[-1] == "run.paused"
    assert kinds.count("human.approval.requested") == kinds.count("run.paused") == 1
    request = next(event for event in flows.events() if event.kind == "human.approval.requested")
    assert request.payload["show"] == {"notes": "what is new"}

    await decide("r", "publish", "approve", store=flows.named)

    assert await run_flow(publish, run_id="r", store=flows.named) == ["approve", "published"]
    assert flows.kinds().count("step.completed") == 2


async def test_a_decision_tells_who_and_why(flows: FlowStore) -> None:
    seen: list[Decision] = []

    async def flow(ctx: Context) -> None:
        seen.append(await ctx.approval("go"))

    with pytest.raises(RunPaused):
        await run_flow(flow, run_id="r", store=flows.named)
    await decide("r", "go", ApprovalDecisionAction.APPROVE, comment="looks good", by="ann", store=flows.named)
    await run_flow(flow, run_id="r", store=flows.named)

    assert seen[0] == ApprovalDecisionAction.APPROVE
    assert (seen[0].comment, seen[0].by) == ("looks good", "ann")


@pytest.mark.parametrize("action", ["reject", "request_changes"])
async def test_a_no_is_an_error_that_the_flow_can_act_on(flows: FlowStore, action: str) -> None:
    async def flow(ctx: Context) -> list[str]:
        drafts = []
        for attempt in range(3):
            draft = await ctx.step("draft", lambda attempt=attempt: f"draft {attempt}")
            drafts.append(draft)
            with contextlib.suppress(ApprovalRejected):
                await ctx.approval("draft", show=draft)
                return drafts
        return drafts

    with pytest.raises(RunPaused):
        await run_flow(flow, run_id="r", store=flows.named)
    await decide("r", "draft", action, comment="once more", store=flows.named)
    with pytest.raises(RunPaused) as raised:
        await run_flow(flow, run_id="r", store=flows.named)
    assert raised.value.key == "draft#2"
    await decide("r", "draft#2", "approve", store=flows.named)

    assert await run_flow(flow, run_id="r", store=flows.named) == ["draft 0", "draft 1"]


@pytest.mark.parametrize("action", ["reject", "request_changes"])
async def test_a_no_that_nobody_catches_fails_the_run_for_good(flows: FlowStore, action: str) -> None:
    with pytest.raises(RunPaused):
        await run_flow(publish, run_id="r", store=flows.named)
    await decide("r", "publish", action, comment="not now", store=flows.named)

    for _ in range(2):
        with pytest.raises(ApprovalRejected, match="not now") as raised:
            await run_flow(publish, run_id="r", store=flows.named)
        assert (raised.value.action, raised.value.comment) == (action, "not now")
    assert flows.kinds()[-1] == "run.failed"


async def test_an_abort_cancels_the_run(flows: FlowStore) -> None:
    with pytest.raises(RunPaused):
        await run_flow(publish, run_id="r", store=flows.named)
    await decide("r", "publish", "abort", comment="never", store=flows.named)

    for _ in range(2):
        with pytest.raises(RunCancelled) as raised:
            await run_flow(publish, run_id="r", store=flows.named)
        assert raised.value.code == "run_cancelled"
    assert flows.kinds()[-1] == "run.cancelled"
    assert flows.kinds().count("run.cancelled") == 1


async def test_the_first_answer_counts_and_the_second_is_told_so(flows: FlowStore) -> None:
    with pytest.raises(RunPaused):
        await run_flow(publish, run_id="r", store=flows.named)
    await decide("r", "publish", "approve", by="ann", store=flows.named)

    with pytest.raises(ApprovalNotFound, match="ann has answered 'approve'"):
        await decide("r", "publish", "reject", by="bob", store=flows.named)

    assert await run_flow(publish, run_id="r", store=flows.named) == ["approve", "published"]


async def test_of_many_answers_at_once_one_counts(flows: FlowStore) -> None:
    with pytest.raises(RunPaused):
        await run_flow(publish, run_id="r", store=flows.named)

    answers = await asyncio.gather(
        *(decide("r", "publish", "approve", by=str(number), store=flows.named) for number in range(5)),
        return_exceptions=True,
    )

    assert sum(answer is None for answer in answers) == 1
    assert all(isinstance(answer, ApprovalNotFound) for answer in answers if answer is not None)
    assert flows.kinds().count("human.approval.received") == 1


async def test_an_answer_to_nothing_is_refused_and_says_what_waits(flows: FlowStore) -> None:
    with pytest.raises(RunNotFound) as raised:
        await decide("nobody", "publish", "approve", store=flows.named)
    assert raised.value.code == "run_not_found"
    nameless = {"own": "OwnCheckpointer", "memory": "InMemoryCheckpointer", "jsonl": "JSONLCheckpointer"}
    where = "postgresql://" if flows.kind == "postgres" else nameless.get(flows.kind, flows.target)
    assert f"There is no run 'nobody' in {where}" in raised.value.message
    with pytest.raises(RunPaused):
        await run_flow(publish, run_id="r", store=flows.named)
    before = flows.events()

    with pytest.raises(ApprovalNotFound, match="what waits is 'publish'"):
        await decide("r", "other", "approve", store=flows.named)
    with pytest.raises(ConfigInvalid, match="'maybe'"):
        await decide("r", "publish", "maybe", store=flows.named)
    with pytest.raises(PayloadInvalid):
        await decide("r", "publish", "approve", comment=b"bytes", store=flows.named)  # type: ignore[arg-type]

    assert flows.events() == before
    assert "nobody" not in flows.open_beside().list_runs()


@pytest.mark.parametrize("ends_as", ["completed", "cancelled"])
async def test_a_run_that_is_over_takes_no_answer(flows: FlowStore, ends_as: str) -> None:
    with pytest.raises(RunPaused):
        await run_flow(publish, run_id="r", store=flows.named)
    if ends_as == "completed":
        await decide("r", "publish", "approve", store=flows.named)
        await run_flow(publish, run_id="r", store=flows.named)
    else:
        await cancel_flow("r", store=flows.named)
    before = flows.events()

    with pytest.raises(RunAlreadyTerminal, match=ends_as):
        await decide("r", "publish", "approve", store=flows.named)

    assert flows.events() == before


async def test_another_process_decides_while_nobody_runs_and_a_third_goes_on(disk_flows: FlowStore) -> None:
    with pytest.raises(RunPaused):
        await run_flow(publish, run_id="r", store=disk_flows.named)

    finish(disk_flows.start_process('asyncio.run(decide("r", "publish", "approve", by="child", store=store))'))

    assert await run_flow(publish, run_id="r", store=disk_flows.named) == ["approve", "published"]


async def test_another_thing_shown_is_refused_and_the_old_answer_does_not_count_for_it(flows: FlowStore) -> None:
    offer = {"price": 1}

    async def flow(ctx: Context) -> str:
        return await ctx.approval("buy", show=offer)

    with pytest.raises(RunPaused):
        await run_flow(flow, run_id="r", store=flows.named)
    await decide("r", "buy", "approve", store=flows.named)
    offer = {"price": 1000}

    with pytest.raises(Nondeterminism, match="approval 'buy' was recorded with other show"):
        await run_flow(flow, run_id="r", store=flows.named)

    offer = {"price": 1}
    assert await run_flow(flow, run_id="r", store=flows.named) == "approve"


async def test_what_cannot_be_shown_is_refused_before_anyone_is_asked(flows: FlowStore) -> None:
    async def flow(ctx: Context) -> None:
        await ctx.approval("buy", show={1, 2})

    with pytest.raises(PayloadInvalid, match="approval 'buy'"):
        await run_flow(flow, run_id="r", store=flows.named)

    assert "human.approval.requested" not in flows.kinds()


# -- a pause cannot be swallowed --------------------------------------------------------------------------------------


async def bare_except(ctx: Context, calls: Any) -> str:
    try:  # noqa: SIM105 - what careless code does
        await ctx.approval("go")
    except:  # noqa: E722
        pass
    return "went on"


async def base_exception_then_step(ctx: Context, calls: Any) -> str:
    with contextlib.suppress(BaseException):
        await ctx.approval("go")
    await ctx.step("next", calls.append, "next")
    return "went on"


async def finally_step(ctx: Context, calls: Any) -> str:
    try:
        await ctx.approval("go")
    finally:
        await ctx.step("clean up", calls.append, "clean up")
    return "went on"


async def finally_gather(ctx: Context, calls: Any) -> str:
    try:
        await ctx.approval("go")
    finally:
        await ctx.gather(ctx.step("clean up", calls.append, "clean up"), ctx.sleep(0))
    return "went on"


async def finally_raise(ctx: Context, calls: Any) -> str:
    try:
        await ctx.approval("go")
    except BaseException as error:
        raise ValueError("in other words") from error
    return "went on"


async def except_exception(ctx: Context, calls: Any) -> str:
    try:
        await ctx.approval("go")
    except Exception:
        await ctx.step("handle", calls.append, "handle")
    return "went on"


async def task_group(ctx: Context, calls: Any) -> str:
    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.approval("go"))
    return "went on"


async def in_lanes(ctx: Context, calls: Any) -> str:
    async def lane() -> None:
        with contextlib.suppress(BaseException):
            await ctx.approval("go")
        calls.append("left the approval")

    await ctx.gather(lane())
    return "went on"


async def in_a_time_limit(ctx: Context, calls: Any) -> str:
    await asyncio.wait_for(ctx.approval("go"), 3600)
    return "went on"


@pytest.mark.parametrize(
    "flow",
    [
        bare_except,
        base_exception_then_step,
        finally_step,
        finally_gather,
        finally_raise,
        except_exception,
        task_group,
        in_lanes,
        in_a_time_limit,
    ],
)
async def test_user_code_cannot_swallow_or_disturb_a_pause(flow: Any) -> None:
    store = InMemoryCheckpointer()
    calls: list[str] = []
    arguments = {"calls": _Opaque(calls)}

    with pytest.raises(RunPaused, match="'"):
        await run_flow(flow, run_id="r", store=store, **arguments)
    assert [name for name in calls if name != "left the approval"] == []
    kinds = [event.kind for event in store.list_events("r")]
    assert kinds == ["run.created", "run.started", "human.approval.requested", "run.paused"]
    await decide("r", "go", "approve", store=store)

    assert await run_flow(flow, run_id="r", store=store, **arguments) == "went on"


class _Opaque:
    """A list that is no JSON data, so that it may change between two calls of a run."""

    def __init__(self, inner: list[str]) -> None:
        self.append = inner.append


async def test_a_pause_inside_a_nested_flow_is_the_outer_flows_pause_too(flows: FlowStore) -> None:
    calls: list[str] = []

    async def outer(ctx: Context) -> list[str]:
        await ctx.step("before", calls.append, "before")
        return await ctx.step("inner", lambda: run_flow(publish, run_id="inner", store=flows.named), retries=3)

    with pytest.raises(RunPaused) as raised:
        await run_flow(outer, run_id="outer", store=flows.named)
    assert (raised.value.run_id, raised.value.key) == ("inner", "publish")
    await decide("inner", "publish", "approve", store=flows.named)

    assert await run_flow(outer, run_id="outer", store=flows.named) == ["approve", "published"]
    assert calls == ["before"]


async def test_a_pause_comes_out_of_however_many_functions(flows: FlowStore) -> None:
    async def helper(ctx: Context, depth: int) -> str:
        return await helper(ctx, depth - 1) if depth else await ctx.approval("deep")

    async def flow(ctx: Context) -> str:
        return await helper(ctx, 20)

    with pytest.raises(RunPaused) as raised:
        await run_flow(flow, run_id="r", store=flows.named)
    assert raised.value.key == "deep"


# -- lanes ------------------------------------------------------------------------------------------------------------


async def two_lanes(ctx: Context) -> list[Any]:
    async def lane(name: str) -> str:
        decision = await ctx.approval("review", show=name)
        return await ctx.step("note", lambda: f"{name}: {decision} {decision.comment}".strip())

    return await ctx.gather(lane("left"), lane("right"))


async def test_approvals_in_two_lanes_are_asked_together_and_answered_one_by_one(flows: FlowStore) -> None:
    with pytest.raises(RunPaused) as raised:
        await run_flow(two_lanes, run_id="r", store=flows.named)
    assert raised.value.facts["keys"] == ["g1.1/review", "g1.2/review"]
    with pytest.raises(ApprovalNotFound, match="several lanes"):
        await decide("r", "review", "approve", store=flows.named)

    await decide("r", "g1.2/review", "approve", comment="fine", store=flows.named)
    with pytest.raises(RunPaused) as raised:
        await run_flow(two_lanes, run_id="r", store=flows.named)
    assert raised.value.facts["keys"] == ["g1.1/review"]
    assert flows.kinds().count("step.completed") == 1
    await decide("r", "review", "approve", store=flows.named)

    assert await run_flow(two_lanes, run_id="r", store=flows.named) == ["left: approve", "right: approve fine"]


async def test_a_question_with_a_slash_in_a_lane_is_found_by_its_name(flows: FlowStore) -> None:
    async def flow(ctx: Context) -> list[Any]:
        return await ctx.gather(ctx.approval("deploy/prod"))

    with pytest.raises(RunPaused):
        await run_flow(flow, run_id="r", store=flows.named)
    await decide("r", "deploy/prod", "approve", store=flows.named)

    assert await run_flow(flow, run_id="r", store=flows.named) == ["approve"]


async def test_an_answer_that_comes_while_other_lanes_work_is_used_at_once(flows: FlowStore) -> None:
    async def flow(ctx: Context) -> list[Any]:
        async def answer() -> str:
            await until(lambda: "human.approval.requested" in flows.kinds())
            await decide("r", "go", "approve", store=flows.named)
            return "answered"

        return await ctx.gather(ctx.approval("go"), ctx.step("answer", answer))

    assert await run_flow(flow, run_id="r", store=flows.named) == ["approve", "answered"]
    assert "run.paused" not in flows.kinds()


async def test_a_failure_beside_a_question_fails_the_run_and_the_question_stays(flows: FlowStore) -> None:
    is_broken = True

    def call() -> str:
        if is_broken:
            raise ValueError("beside")
        return "mended"

    async def flow(ctx: Context) -> list[Any]:
        return await ctx.gather(ctx.approval("go"), ctx.step("work", call))

    with pytest.raises(ValueError, match="beside"):
        await run_flow(flow, run_id="r", store=flows.named)
    await decide("r", "go", "approve", store=flows.named)
    is_broken = False

    assert await run_flow(flow, run_id="r", store=flows.named) == ["approve", "mended"]


async def test_a_run_is_not_complete_while_a_lane_waits_though_the_flow_caught_anothers_failure(
    flows: FlowStore,
) -> None:
    calls: list[str] = []

    async def flow(ctx: Context) -> str:
        async def approved() -> None:
            await ctx.approval("go")
            await ctx.step("publish", calls.append, "published")

        try:
            await ctx.gather(approved(), ctx.step("work", lambda: {}["missing"]))
        except KeyError:
            return await ctx.step("note", lambda: "partly")
        return "all"

    with pytest.raises(RunPaused):
        await run_flow(flow, run_id="r", store=flows.named)
    await decide("r", "go", "approve", store=flows.named)

    assert await run_flow(flow, run_id="r", store=flows.named) == "partly"
    assert calls == ["published"]


# -- cancel -----------------------------------------------------------------------------------------------------------


async def test_a_run_that_nobody_drives_is_cancelled_at_once_and_stays_so(flows: FlowStore) -> None:
    with pytest.raises(RunPaused):
        await run_flow(publish, run_id="r", store=flows.named)

    await cancel_flow("r", reason="no longer needed", by="ann", store=flows.named)

    assert flows.kinds()[-1] == "run.cancelled"
    assert flows.events()[-1].payload == {"reason": "no longer needed", "by": "ann"}
    with pytest.raises(RunCancelled):
        await run_flow(publish, run_id="r", store=flows.named)
    with pytest.raises(RunAlreadyTerminal):
        await cancel_flow("r", store=flows.named)
    with pytest.raises(RunNotFound):
        await cancel_flow("nobody", store=flows.named)


async def test_a_live_owner_hears_the_request_in_the_middle_of_a_step(flows: FlowStore) -> None:
    is_in_step, cleaned = asyncio.Event(), []

    async def call() -> None:
        is_in_step.set()
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append("call")

    async def flow(ctx: Context) -> None:
        await ctx.gather(ctx.step("long", call), ctx.step("beside", lambda: 1))

    async def drive() -> None:
        async with asyncio.timeout(3600):
            await run_flow(flow, run_id="r", store=flows.named)

    running = asyncio.create_task(drive())
    await is_in_step.wait()
    await cancel_flow("r", reason="enough", store=flows.named)

    with pytest.raises(RunCancelled) as raised:
        await running
    assert raised.value.facts["reason"] == "enough"
    assert running.cancelling() == 0
    assert cleaned == ["call"]
    assert flows.kinds()[-1] == "run.cancelled"


async def test_another_process_cancels_a_run_that_this_one_drives(fenced_flows: FlowStore) -> None:
    is_in_step = asyncio.Event()

    async def call() -> None:
        is_in_step.set()
        await asyncio.sleep(60)

    async def flow(ctx: Context) -> None:
        await ctx.step("long", call)

    running = asyncio.create_task(run_flow(flow, run_id="r", store=fenced_flows.named))
    await is_in_step.wait()
    child = fenced_flows.start_process('asyncio.run(cancel_flow("r", store=store))')

    with pytest.raises(RunCancelled):
        await running
    finish(child)


class Meddling(OwnCheckpointer):
    """Writes something of another process's just before an event of the given kind."""

    def __init__(self, kind: str, *beside: EventKind) -> None:
        super().__init__()
        self.kind = kind
        self.beside = list(beside)

    def save_event(self, event: Any) -> Any:
        if event.kind == self.kind:
            while self.beside:
                super().save_event(create_event(event.run_id, self.beside.pop(0), reason="late"))
        return super().save_event(event)


@pytest.mark.parametrize("requests", [1, 2])
@pytest.mark.parametrize(
    ("kind", "code", "then"),
    [
        ("run.completed", None, None),
        ("run.failed", "ValueError", "ValueError"),
        ("run.paused", "run_cancelled", "run_cancelled"),
        ("run.cancelled", "run_cancelled", "run_cancelled"),
        ("step.completed", "run_cancelled", "run_cancelled"),
    ],
)
async def test_a_request_to_cancel_beside_the_last_event_never_shows_as_anything_else(
    kind: str, code: str | None, then: str | None, requests: int
) -> None:
    store = Meddling(kind, *[EventKind.RUN_CANCEL_REQUESTED] * requests)
    if kind == "run.cancelled":
        store.save_event(create_event("r", EventKind.RUN_CANCEL_REQUESTED))

    async def flow(ctx: Context) -> str:
        await ctx.step("a", lambda: 1)
        if kind == "run.failed":
            raise ValueError("broken")
        if kind == "run.paused":
            await ctx.approval("go")
        return "result"

    for expected in (code, then):
        try:
            assert await run_flow(flow, run_id="r", store=store) == "result"
            got = None
        except HoldfastError as error:
            got = error.code
        except ValueError:
            got = "ValueError"
        assert got == expected


async def test_a_cancelled_run_is_a_refusal_even_if_its_step_swallows_the_cancellation(flows: FlowStore) -> None:
    is_in_step = asyncio.Event()

    async def stubborn() -> str:
        is_in_step.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return "finished anyway"

    async def flow(ctx: Context) -> str:
        await ctx.step("stubborn", stubborn)
        return await ctx.step("next", lambda: "not called")

    running = asyncio.create_task(run_flow(flow, run_id="r", store=flows.named))
    await is_in_step.wait()
    await cancel_flow("r", store=flows.named)

    with pytest.raises(RunCancelled):
        await running
    assert flows.kinds()[-2:] == ["step.completed", "run.cancelled"]


async def reminded(ctx: Context, limit_s: float) -> list[str]:
    answers = []
    for number in range(3):
        ctx.log("asking", number=number)
        try:
            answers.append(str(await ctx.approval("go", show=len(answers), timeout=limit_s)))
            break
        except EventTimeout:
            answers.append(await ctx.step("remind", lambda: "reminded"))
    return answers


async def test_an_approval_that_nobody_answers_in_time_is_over_and_stays_so(flows: FlowStore) -> None:
    with skip_time() as clock:
        with pytest.raises(RunPaused):
            await run_flow(reminded, 3600.0, run_id="r", store=flows.named)
        with pytest.raises(RunPaused):  # it is not late yet
            await run_flow(reminded, 3600.0, run_id="r", store=flows.named)
        assert flows.kinds().count("run.resumed") == 0
        clock.advance(3601)
        with pytest.raises(RunPaused) as raised:
            await run_flow(reminded, 3600.0, run_id="r", store=flows.named)
        assert raised.value.key == "go#2"
        with pytest.raises(ApprovalNotFound, match="already"):
            await decide("r", "go", "approve", store=flows.named)
        clock.advance(3601)
        await decide("r", "go#2", "approve", by="ann", store=flows.named)  # late, but before anybody has looked

        assert await run_flow(reminded, 3600.0, run_id="r", store=flows.named) == ["reminded", "approve"]

    answers = [event.payload["action"] for event in flows.events() if event.kind == "human.approval.received"]
    assert answers == ["timeout", "approve"]


async def test_who_answers_while_an_approval_runs_out_counts(flows: FlowStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with skip_time() as clock:
        with pytest.raises(RunPaused):
            await run_flow(reminded, 60.0, run_id="r", store=flows.named)
        clock.advance(61)
        catch_up, calls = RunLog.catch_up, list[int]()

        async def answer_after(log: RunLog) -> None:
            await catch_up(log)
            if not calls:
                calls.append(1)
                await decide("r", "go", "approve", store=flows.named)

        monkeypatch.setattr(RunLog, "catch_up", answer_after)

        assert await run_flow(reminded, 60.0, run_id="r", store=flows.named) == ["approve"]

    assert [event.kind for event in flows.events()].count("human.approval.received") == 1
