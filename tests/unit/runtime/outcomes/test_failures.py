"""Failures as data: what is journaled of an exception, what is made of it again, and which steps it reopens."""

import importlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ApprovalRejected, HoldfastError, LeaseLost, PayloadInvalid, RunPaused, StepFailed
from holdfast.flows.context import Context
from holdfast.flows.run import run_flow
from holdfast.runtime.checkpoint import InMemoryCheckpointer
from holdfast.runtime.events import EventKind, create_event
from holdfast.runtime.jsondata import to_json
from holdfast.runtime.outcomes.failures import MOVED_CLASSES, describe_error, failed_steps, rebuild_error
from holdfast.runtime.outcomes.unknown_outcomes import Done, NotDone
from holdfast.runtime.step import Step, step_key


class Outer:
    class Inner(Exception):
        pass


class Keyed(Exception):
    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(code)
        self.detail = detail


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class Slotted(Exception):
    __slots__ = ()


def _decoding() -> Exception:
    try:
        json.loads("{")
    except ValueError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad", 3),
        KeyError("missing"),
        OSError(2, "no such file"),
        FileNotFoundError(2, "no such file", "x"),
        _decoding(),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        Outer.Inner("nested"),
        Keyed(7, detail="x"),
        Mute(1),
        Slotted("s"),
        TimeoutError(),
        LeaseLost("lost"),
        RunPaused("waits", run_id="r", key="k"),
        ApprovalRejected("no", action="reject"),
        ExceptionGroup("several", [ValueError(1)]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_failure_comes_back_as_its_type(error: Exception) -> None:
    description = to_json(describe_error(error))[1]

    rebuilt = rebuild_error("a", description)

    if isinstance(error, ExceptionGroup):
        assert isinstance(rebuilt, StepFailed)  # what it held is not recorded, and an empty group cannot be
    else:
        assert type(rebuilt) is type(error)
    if isinstance(error, HoldfastError):
        assert isinstance(rebuilt, HoldfastError)
        assert (rebuilt.code, rebuilt.message) == (error.code, error.message)


def test_what_no_code_here_knows_comes_back_as_a_failed_step() -> None:
    for name in ("no.such.module.Error", "builtins.len", "builtins.KeyboardInterrupt", "json.no_such", "", "x"):
        rebuilt = rebuild_error("a", {"type": name, "message": "went wrong"})

        assert isinstance(rebuilt, StepFailed)
        assert "'a'" in str(rebuilt)
        assert "went wrong" in str(rebuilt)


@given(
    st.dictionaries(st.sampled_from(["type", "message", "args", "code"]), st.none() | st.text() | st.lists(st.text()))
)
def test_whatever_is_recorded_some_exception_comes_of_it(description: dict[str, Any]) -> None:
    error = rebuild_error("a", description)

    assert isinstance(error, Exception)
    assert failed_steps(error) in (["a"], [])


def test_a_failure_is_described_in_few_words_however_big_it_is() -> None:
    description = describe_error(ValueError("x" * 10_000_000))

    assert len(to_json(description)[0]) < 100_000
    assert type(rebuild_error("a", description)) is ValueError


def test_a_failure_that_cannot_be_written_down_is_described_all_the_same() -> None:
    for error in (Mute(), ValueError("\ud800"), ValueError(object()), ValueError(b"x", {1})):
        description = describe_error(error)

        to_json(description)
        assert description["type"].endswith(type(error).__qualname__)


def carrying(error: Exception, key: str) -> Exception:
    error.__holdfast_step__ = key  # type: ignore[attr-defined]  # as the durable step does
    return error


def test_an_exception_names_the_steps_that_a_retry_opens() -> None:
    first, second = carrying(ValueError(1), "a"), carrying(ValueError(2), "b")
    wrapped = RuntimeError("in other words")
    wrapped.__cause__ = first
    in_handler = carrying(KeyError(), "c")
    in_handler.__context__ = first
    implicit = RuntimeError("while handling")
    implicit.__context__ = second
    circular = RuntimeError("circle")
    circular.__cause__ = circular

    assert failed_steps(first) == ["a"]
    assert failed_steps(wrapped) == ["a"]
    assert failed_steps(implicit) == ["b"]
    assert failed_steps(in_handler) == ["c"]
    assert failed_steps(ExceptionGroup("both", [second, first, ValueError()])) == ["a", "b"]
    assert failed_steps(circular) == []
    assert failed_steps(ValueError()) == []


def test_only_an_intent_makes_an_outcome_known_to_be_unknown() -> None:
    assert not Step("a").writes_intent
    assert Step("a", has_intent=True).writes_intent
    assert Step("a", on_unknown="ask").writes_intent
    assert Step("a", on_unknown=lambda key: NotDone()).writes_intent  # type: ignore[arg-type,return-value]
    assert Done() == Done(None) != NotDone()


def test_there_is_no_key_outside_of_a_step() -> None:
    with pytest.raises(HoldfastError, match="inside a step"):
        step_key()


def test_a_payload_error_says_where() -> None:
    with pytest.raises(PayloadInvalid, match=r"payload\.a\[1\]"):
        to_json({"a": [1, {2}]})


def find_moved(name: str) -> type[Exception]:
    module_name, _, class_name = MOVED_CLASSES[name].rpartition(".")
    found: type[Exception] = getattr(importlib.import_module(module_name), class_name)
    return found


@pytest.mark.parametrize("name", MOVED_CLASSES)
def test_a_moved_class_is_where_the_table_says(name: str) -> None:
    found = find_moved(name)

    assert issubclass(found, Exception)
    assert f"{found.__module__}.{found.__qualname__}" == MOVED_CLASSES[name]
    assert name not in MOVED_CLASSES.values()


@pytest.mark.parametrize("name", MOVED_CLASSES)
async def test_a_failure_journaled_under_an_old_path_is_caught_by_its_class(name: str) -> None:
    moved = find_moved(name)
    store = InMemoryCheckpointer()
    error = {"type": name, "message": "as it was", "args": ["as it was"]}
    for event in (
        create_event("r", EventKind.RUN_CREATED, args=[], kwargs={}),
        create_event("r", EventKind.RUN_STARTED),
        create_event("r", EventKind.STEP_FAILED, key="call", error=error),
    ):
        store.save_event(event)

    async def flow(ctx: Context) -> str:
        try:
            await ctx.step("call", lambda: pytest.fail("made again"))
        except moved as caught:
            return str(caught)
        return "not caught"

    assert await run_flow(flow, run_id="r", store=store) == "as it was"
