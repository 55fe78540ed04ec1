"""A failure that a flow catches: the same on the first execution and on every replay, in this process and in others."""

import asyncio
from enum import Enum
from typing import Any

import pytest
from tests.support.flow_stores import FlowStore

from holdfast import Context, run_flow
from holdfast.errors import PayloadInvalid, StepFailed
from holdfast.runtime.checkpoint import InMemoryCheckpointer
from holdfast.runtime.events import create_event


class Two(Exception):
    def __init__(self, a: int, b: str) -> None:
        super().__init__(f"{a} and {b}")
        self.a, self.b = a, b


class Colour(Enum):
    RED = "red"


class Slotted(Exception):
    __slots__ = ("code",)


class Group(ExceptionGroup[Exception]):
    pass


def _look(error: Exception, depth: int = 0) -> dict[str, Any]:
    """What a flow can see of an exception, and branch on."""
    found = {
        "class": type(error).__qualname__,
        "text": str(error),
        "attributes": {name: value for name, value in vars(error).items() if not name.startswith("__")},
        "args": [repr(arg) for arg in error.args],
        "more": [getattr(error, name, None) for name in ("code", "errno", "filename", "name", "path", "facts")],
        "notes": getattr(error, "__notes__", []),
        "cause": None,
    }
    if depth < 3 and isinstance(error.__cause__, Exception):
        found["cause"] = _look(error.__cause__, depth + 1)
    if isinstance(error, ExceptionGroup):
        found["members"] = [_look(member, depth + 1) for member in error.exceptions] if depth < 3 else []
        found["args"] = []
    return found


def _two() -> Exception:
    return Two(1, "x")


def _slotted() -> Exception:
    error = Slotted("s")
    error.code = 7
    return error


def _noted() -> Exception:
    error = ValueError("bad")
    error.add_note("while baking")
    return error


def _caused() -> Exception:
    error = Two(2, "y")
    error.__cause__ = KeyError("deep")
    error.__cause__.__cause__ = Two(3, "z")
    return error


def _unrecordable() -> Exception:
    error = Two(1, "x")
    error.client, error.colour, error.pair = object(), Colour.RED, (1, 2)  # type: ignore[attr-defined]
    return error


def _local() -> Exception:
    class Local(Exception):
        def __init__(self) -> None:
            super().__init__("nowhere to be found")
            self.limit = 3

    return Local()


def _group() -> Exception:
    return Group("several", [Two(1, "x"), ExceptionGroup("inner", [KeyError("k"), _local()])])


def _in_circles() -> Exception:
    members = [ValueError(number) for number in range(60)]
    group = ExceptionGroup("all", members)
    for member in members:
        member.__cause__ = group
    group.__cause__ = members[0]
    return group


def _builtin() -> Exception:
    try:
        import nothing_of_this_name  # noqa: F401
    except ImportError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    "make",
    [
        _two,
        _slotted,
        _noted,
        _caused,
        _unrecordable,
        _local,
        _group,
        _in_circles,
        _builtin,
        lambda: FileNotFoundError(2, "no such file", "there"),
        lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        lambda: ValueError(object(), 3),
        lambda: PayloadInvalid("mine", hint="do", place={"a": [1]}),
        lambda: PayloadInvalid("mine", client=object()),
        lambda: Two(1, "x" * 30_000),
    ],
)
async def test_a_caught_failure_looks_the_same_the_first_time_and_on_a_replay(make: Any) -> None:
    store, seen = InMemoryCheckpointer(), []

    def fail() -> None:
        raise make()

    async def flow(ctx: Context) -> None:
        try:
            await ctx.step("fail", fail)
        except Exception as error:
            seen.append(_look(error))
        if is_broken:
            raise RuntimeError("after it")

    is_broken = True
    with pytest.raises(RuntimeError, match="after it"):
        await run_flow(flow, run_id="r", store=store)
    is_broken = False
    await run_flow(flow, run_id="r", store=store)

    assert seen[0] == seen[1]


async def test_attributes_survive_a_resume_in_another_process(disk_flows: FlowStore) -> None:
    code = (
        "from tests.conformance.flows.test_failures import Two, ends_after_it\n"
        "asyncio.run(run_flow(ends_after_it, run_id='r', store=store))\n"
    )
    with disk_flows.start_process(code) as process:
        assert process.wait() == -9

    assert await run_flow(ends_after_it, run_id="r", store=disk_flows.named) == [1, "x"]


async def ends_after_it(ctx: Context) -> list[Any]:
    import os
    import signal

    def fail() -> None:
        nonlocal is_first
        is_first = True
        raise Two(1, "x")

    is_first = False
    try:
        await ctx.step("fail", fail)
    except Two as error:
        if is_first:
            os.kill(os.getpid(), signal.SIGKILL)
        return [error.a, error.b]
    return []


async def test_what_cannot_be_recorded_is_named_and_kept_for_whoever_started_the_flow(flows: FlowStore) -> None:
    def fail() -> None:
        raise _unrecordable()

    async def flow(ctx: Context) -> None:
        await ctx.step("fail", fail)

    with pytest.raises(Two) as raised:
        await run_flow(flow, run_id="r", store=flows.named)

    assert raised.value.colour is Colour.RED  # type: ignore[attr-defined]
    failed = next(event for event in flows.events() if event.kind == "step.failed")
    assert failed.payload["error"]["not_recorded"] == ["client", "colour", "pair"]
    assert failed.payload["error"]["attributes"] == {"a": 1, "b": "x", "pair": [1, 2]}


async def test_a_class_of_a_function_is_a_step_failed_from_the_first_time_on(flows: FlowStore) -> None:
    seen: list[Any] = []

    def fail() -> None:
        raise _local()

    async def flow(ctx: Context) -> None:
        try:
            await ctx.step("fail", fail)
        except StepFailed as error:
            seen.append([error.facts["error_type"], error.facts["attributes"], error.message])
        if is_broken:
            raise RuntimeError

    is_broken = True
    with pytest.raises(RuntimeError):
        await run_flow(flow, run_id="r", store=flows.named)
    is_broken = False
    await run_flow(flow, run_id="r", store=flows.named)

    assert seen[0] == seen[1]
    assert seen[0][1:] == [{"limit": 3}, "Step 'fail' failed: nowhere to be found"]


async def test_a_failure_recorded_before_attributes_were_is_made_by_its_constructor() -> None:
    store = InMemoryCheckpointer()

    def fail() -> None:
        raise AssertionError("it is recorded")

    async def flow(ctx: Context) -> Any:
        try:
            await ctx.step("fail", fail)
        except OnlyOne as error:
            return error.a

    error = {"type": f"{__name__}.OnlyOne", "message": "1", "args": [1]}
    for kind, payload in (
        ("run.created", {"args": [], "kwargs": {}}),
        ("run.started", {}),
        ("step.failed", {"key": "fail", "error": error}),
    ):
        store.save_event(create_event("r", kind, **payload))

    assert await run_flow(flow, run_id="r", store=store) == 1


class OnlyOne(Exception):
    def __init__(self, a: int) -> None:
        super().__init__(a)
        self.a = a


@pytest.mark.parametrize(
    "error",
    [
        {"type": "os.system", "args": ["false"], "attributes": {}},
        {"type": "builtins.SystemExit", "args": [1], "attributes": {}},
        {"type": "builtins.dict", "attributes": {}},
        {"type": "..", "attributes": []},
        {"type": 3, "attributes": {"__class__": 1}},
        {"type": "builtins.ValueError", "args": 3, "attributes": {"__class__": 1, "args": 3}, "notes": 5, "cause": 7},
        {"type": "builtins.ExceptionGroup", "args": [], "attributes": {}, "exceptions": "x"},
    ],
)
async def test_a_record_that_names_anything_else_is_a_failure_all_the_same(error: Any) -> None:
    store = InMemoryCheckpointer()
    for kind, payload in (
        ("run.created", {"args": [], "kwargs": {}}),
        ("run.started", {}),
        ("step.failed", {"key": "fail", "error": error}),
    ):
        store.save_event(create_event("r", kind, **payload))

    async def flow(ctx: Context) -> str:
        try:
            await ctx.step("fail", asyncio.sleep, 0)
        except Exception as caught:
            return type(caught).__name__
        return "no failure"

    assert await run_flow(flow, run_id="r", store=store) in ("StepFailed", "ValueError")
