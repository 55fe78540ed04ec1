"""The state of a run and the fold: nothing is lost on the way, and no order of events makes it fail."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.stores import finish, start_python

from holdfast import enums
from holdfast.errors import PayloadInvalid
from holdfast.runtime.events import Event, EventKind, create_event
from holdfast.runtime.state import NodeState, RunState, RunStatus, fold, status_after

text = st.text(max_size=6)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(text, json_values, max_size=3)
times = st.none() | st.floats(0, 2e9)
statuses = st.sampled_from(RunStatus) | st.just("of a newer version")
unknown = st.dictionaries(st.from_regex(r"\Anew_[a-z]{1,3}\Z"), json_values, max_size=2)
nodes = st.builds(
    NodeState,
    node_id=text,
    status=statuses,
    input_data=json_values,
    output_data=json_values,
    started_at=times,
    finished_at=times,
    error=st.none() | text,
    attempts=st.integers(0, 9),
    idempotency_key=st.none() | text,
    extra=unknown,
)
states = st.builds(
    RunState,
    run_id=st.text(min_size=1, max_size=6),
    session_id=text,
    status=statuses,
    purpose=text,
    current_node=st.none() | text,
    current_step=st.integers(0, 99),
    max_steps=st.integers(0, 99),
    data=objects,
    node_states=st.dictionaries(text, nodes, max_size=2),
    completed_nodes=st.lists(text, max_size=3),
    action_history=st.lists(json_values, max_size=3),
    started_at=times,
    updated_at=times,
    finished_at=times,
    metadata=objects,
    tool_cache=objects,
    last_seq=st.integers(0, 99),
    extra=unknown,
)
names = st.sampled_from(["node", "phase", "agent", "key", "result", "output", "error", "delta", "data", "purpose", "x"])
payloads = st.dictionaries(names, st.sampled_from(["n1", "n2"]) | json_values, max_size=4)
journals = st.lists(st.tuples(st.sampled_from(EventKind) | st.just("of.tomorrow"), payloads), max_size=25).map(
    lambda found: [
        Event("r", kind=kind, seq=seq, ts=float(seq), span_id=str(seq), payload=payload)
        for seq, (kind, payload) in enumerate(found, 1)
    ]
)


# -- the state --------------------------------------------------------------------------------------------------------


@given(states)
def test_to_dict_and_from_dict_lose_nothing(state: RunState) -> None:
    assert RunState.from_dict(state.to_dict()) == state
    assert RunState.from_dict(json.loads(json.dumps(state.to_dict()))) == state
    assert RunState.from_json(state.to_json()) == state


@given(nodes)
def test_a_node_loses_nothing(node: NodeState) -> None:
    assert NodeState.from_dict(json.loads(json.dumps(node.to_dict()))) == node


def test_defaults() -> None:
    state = RunState("r")

    assert (state.status, state.max_steps, state.current_step) == (RunStatus.PENDING, 20, 0)
    assert (state.data, state.node_states, state.completed_nodes, state.tool_cache) == ({}, {}, [], {})
    assert state.data is not RunState("r").data


def test_the_status_words() -> None:
    assert RunStatus is enums.RunStatus
    assert [status.value for status in RunStatus] == [
        "pending",
        "running",
        "paused",
        "completed",
        "failed",
        "cancelled",
    ]
    assert (RunStatus.EXECUTING, RunStatus.ABORTED) == (RunStatus.RUNNING, RunStatus.CANCELLED)
    assert {status for status in RunStatus if status.is_terminal} == {"completed", "failed", "cancelled"}


def test_a_status_comes_back_as_the_enum() -> None:
    assert RunState.from_dict({"run_id": "r", "status": "paused"}).status is RunStatus.PAUSED


@pytest.mark.parametrize("data", [{}, {"run_id": ""}, {"status": "paused"}])
def test_a_state_needs_a_run(data: dict[str, Any]) -> None:
    with pytest.raises(PayloadInvalid):
        RunState.from_dict(data)


@pytest.mark.parametrize("body", [b"[]", b"7", b"null"])
def test_a_state_is_an_object(body: bytes) -> None:
    with pytest.raises(PayloadInvalid):
        RunState.from_json(body)


def test_marking_nodes_does_not_touch_the_status_of_the_run() -> None:
    state = RunState("r", status=RunStatus.PAUSED)

    state.mark_node_started("a")
    state.mark_node_failed("a", "broke")
    failed = copy.deepcopy(state.node_states["a"])
    state.mark_node_started("a")
    state.mark_node_completed("a", {"x": 1})
    state.mark_node_completed("a", {"x": 2})

    assert (failed.status, failed.error, failed.attempts) == (RunStatus.FAILED, "broke", 1)
    node = state.node_states["a"]
    assert (node.status, node.error, node.attempts, node.output_data) == (RunStatus.COMPLETED, None, 2, {"x": 2})
    assert (state.completed_nodes, state.current_node, state.status) == (["a"], None, RunStatus.PAUSED)


def test_a_node_that_fails_after_all_is_not_completed() -> None:
    state = RunState("r")
    state.mark_node_completed("a")

    state.mark_node_failed("a", "broke")

    assert state.completed_nodes == []


def test_a_cached_result_may_be_null() -> None:
    state = RunState("r")
    key = state.get_idempotency_key("tool", {})

    assert not state.has_cached_result(key)
    state.cache_result(key, None)

    assert state.has_cached_result(key)
    assert state.get_cached_result(key) is None


# -- idempotency keys -------------------------------------------------------------------------------------------------


def test_the_key_depends_on_run_step_tool_and_arguments_alone() -> None:
    def key(run_id: str = "r", step: int = 0, tool: str = "t", args: Any = "x", **others: Any) -> str:
        return RunState(run_id, current_step=step, **others).get_idempotency_key(tool, args)

    assert key() == key(data={"x": 1}, purpose="p", max_steps=3)
    assert key(args={"a": 1, "b": {"c": 1, "d": 2}}) == key(args={"b": {"d": 2, "c": 1}, "a": 1})
    assert key(args=[1, 2]) == key(args=(1, 2))
    different = [key(run_id="q"), key(step=1), key(tool="u"), key(args="y"), key(args=["x"]), key(args={"x": 1}), key()]
    different += [key(args=[2, 1]), key(args=[1, 2]), key(args=1), key(args="1"), key(args=True), key(args=None)]
    assert len(set(different)) == len(different)


def test_the_key_is_the_same_in_every_process() -> None:
    code = (
        "from holdfast.runtime.state import RunState\n"
        "state = RunState('r', current_step=3)\n"
        "print(state.get_idempotency_key('tool', {'ä': [1, 2.5, None], 'b': {'y': True, 'x': 'z'}}))"
    )
    processes = [start_python(code, env={"PYTHONHASHSEED": seed}) for seed in ("1", "2")]

    keys = {finish(process).strip() for process in processes}

    here = RunState("r", current_step=3).get_idempotency_key("tool", {"b": {"x": "z", "y": True}, "ä": [1, 2.5, None]})
    assert keys == {here}


CIRCULAR: list[Any] = []
CIRCULAR.append(CIRCULAR)


@pytest.mark.parametrize(
    "args", [CIRCULAR, {1, 2}, float("nan"), b"x", {"a": object()}, {1: 2}, {"b": 1, 2: 3}, "\ud800"]
)
def test_arguments_that_are_no_json_are_refused(args: Any) -> None:
    with pytest.raises(PayloadInvalid):
        RunState("r").get_idempotency_key("tool", args)


# -- the fold ---------------------------------------------------------------------------------------------------------


def test_nothing_folds_to_nothing() -> None:
    assert fold([]) is None
    state = RunState("r")
    assert fold([], state) is state


def test_a_whole_run() -> None:
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("run.created", {"purpose": "try"}),
        ("run.started", {}),
        ("phase.started", {"phase": "plan"}),
        ("tool.result", {"key": "k", "result": {"x": 1}}),
        ("state.delta", {"delta": {"a": 1}}),
        ("phase.completed", {"phase": "plan", "output": "done"}),
        ("agent.started", {"node": "n"}),
        ("agent.error", {"node": "n", "error": "broke"}),
        ("run.paused", {}),
        ("run.resumed", {}),
        ("run.completed", {}),
    ]
    events = [Event("r", kind=kind, seq=n, ts=float(n), payload=data) for n, (kind, data) in enumerate(kinds, 1)]

    state = fold(events)

    assert (state.status, state.purpose, state.data) == (RunStatus.COMPLETED, "try", {"a": 1})
    assert (state.started_at, state.updated_at, state.finished_at, state.last_seq) == (2.0, 11.0, 11.0, 11)
    assert (state.completed_nodes, state.current_step, state.tool_cache) == (["plan"], 1, {"k": {"x": 1}})
    assert (state.node_states["plan"].output_data, state.node_states["n"].error) == ("done", "broke")


@given(journals, st.randoms(use_true_random=False))
def test_no_order_of_events_makes_the_fold_fail(events: list[Event], rng: Any) -> None:
    rng.shuffle(events)

    state = fold(events)

    assert (state is None) == (not events)
    if state is not None:
        assert RunState.from_json(state.to_json()) == state


@given(journals, st.data())
def test_a_snapshot_and_the_rest_give_the_same_as_all(events: list[Event], data: st.DataObject) -> None:
    split = data.draw(st.integers(0, len(events)))
    whole = fold(events)

    snapshot = fold(events[:split])
    stored = RunState.from_json(snapshot.to_json()) if snapshot else None

    assert fold(events[split:], stored) == whole
    again = RunState.from_json(snapshot.to_json()) if snapshot else None
    assert fold(events, again) == whole


@given(journals)
def test_the_fold_leaves_the_events_alone(events: list[Event]) -> None:
    before = copy.deepcopy(events)

    state = fold(events)
    if state is not None:
        state.data["changed"] = True
        state.tool_cache.clear()

    assert events == before


@given(st.sampled_from(RunStatus), st.sampled_from(EventKind))
def test_an_end_is_only_left_by_starting_again(status: RunStatus, kind: EventKind) -> None:
    following = status_after(status, kind)

    if status.is_terminal and kind not in (EventKind.RUN_STARTED, EventKind.RUN_RESUMED):
        assert following == status
    assert status_after(str(status), kind) == following


def test_a_run_that_goes_on_is_not_finished() -> None:
    kinds = ["run.started", "run.failed", "run.resumed"]

    state = fold(create_event("r", kind, seq=n) for n, kind in enumerate(kinds, 1))

    assert (state.status, state.finished_at) == (RunStatus.RUNNING, None)


def test_marking_a_node_is_a_change_of_the_state() -> None:
    state = RunState("r", updated_at=1.0)

    state.mark_node_started("a", at=2.0)
    assert state.updated_at == 2.0
    state.mark_node_failed("a", "no", at=3.0)
    assert state.updated_at == 3.0
    state.mark_node_completed("a")
    assert state.updated_at > 3.0


def test_a_state_and_its_data_do_not_change_each_other() -> None:
    state = RunState("r", data={"list": [1]}, node_states={"n": NodeState("n", input_data=[1])})

    data = state.to_dict()
    again = RunState.from_dict(state.to_dict())
    state.data["list"].append(2)
    state.node_states["n"].input_data.append(2)

    assert data["data"] == again.data == {"list": [1]}
    assert data["node_states"]["n"]["input_data"] == again.node_states["n"].input_data == [1]
