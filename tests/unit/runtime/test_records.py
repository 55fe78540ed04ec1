"""The fold of a run's events by step key: pure, and at peace with whatever a journal can hold."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.enums import RunStatus
from holdfast.errors import Nondeterminism
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.records import Record, Records, StepState, check_fingerprint, describe, fingerprint_of


def records_of(*entries: tuple[str, dict[str, Any]] | tuple[str, dict[str, Any], str]) -> Records:
    events = [
        Event("r", lane_id=item[2] if len(item) > 2 else "main", seq=seq, kind=item[0], payload=item[1])
        for seq, item in enumerate(entries, 1)
    ]
    return Records(events)


def step(records: Records, key: str = "a") -> Record:
    return records.by_key["step", key]


A = {"key": "a"}


@pytest.mark.parametrize(
    "payload",
    [
        A,
        {**A, "result": {"n": 1}, "result_type": "m.T", "fingerprint": {"arguments": "f"}},
        {**A, "attempt": 3},
        {**A, "fingerprint": "odd"},
        {"key": 5},
        {"key": ["a"]},
        {},
    ],
)
def test_the_fold_of_a_whole_journal_is_the_fold_of_its_events_one_by_one(payload: dict[str, Any]) -> None:
    entries = [("step.started", {"key": "b"}, "main"), ("step.completed", payload, "g1.1")]
    entries += [("step.completed", {"key": "b"}, "main"), ("step.completed", payload, "main")]
    at_once, by_one = records_of(*entries), Records()
    for seq, (kind, content, lane_id) in enumerate(entries, 1):
        by_one.add(Event("r", lane_id=lane_id, seq=seq, kind=kind, payload=content))

    assert vars(at_once).keys() == vars(by_one).keys()
    for name in ("by_key", "lanes", "last_seq", "status"):
        assert getattr(at_once, name) == getattr(by_one, name)


@pytest.mark.parametrize(
    ("entries", "state", "attempt"),
    [
        ([("step.started", A)], StepState.STARTED, 1),
        ([("step.completed", A)], StepState.COMPLETED, 1),
        ([("step.started", A), ("step.completed", A)], StepState.COMPLETED, 1),
        ([("step.failed", A)], StepState.FAILED, 1),
        ([("step.failed", {**A, "retry_at": 5.0})], StepState.WAITING, 1),
        ([("step.failed", {**A, "retry_at": 5.0}), ("step.failed", {**A, "attempt": 2})], StepState.FAILED, 2),
        ([("step.failed", A), ("run.failed", {"steps": ["a"]})], StepState.OPEN, 0),
        ([("step.completed", A), ("run.failed", {"steps": ["a"]})], StepState.COMPLETED, 1),
        ([("step.unknown", A)], StepState.OPEN, 0),
        ([("model.request", A)], StepState.STARTED, 1),
        ([("model.request", A), ("model.error", A)], StepState.FAILED, 1),
        ([("tool.started", A), ("tool.result", {**A, "result": 1})], StepState.COMPLETED, 1),
    ],
)
def test_a_step_is_what_its_events_say(entries: Any, state: StepState, attempt: int) -> None:
    record = step(records_of(*entries))

    assert (record.state, record.attempt) == (state, attempt)


def test_a_result_and_a_failure_are_kept() -> None:
    records = records_of(
        ("step.completed", {**A, "result": [1]}), ("step.failed", {"key": "b", "error": {"type": "x"}})
    )

    assert step(records).result == [1]
    assert step(records, "b").error == {"type": "x"}


def test_lanes_keep_the_order_in_which_things_were_first_asked_for() -> None:
    records = records_of(
        ("step.started", A),
        ("timer.started", {"key": "sleep", "wake_at": 9.0}),
        ("step.completed", {"key": "g1.1/a"}, "g1.1"),
        ("step.completed", A),
        ("human.approval.requested", {"key": "go"}),
    )

    assert [(record.type, record.key) for record in records.lanes["main"]] == [
        ("step", "a"),
        ("timer", "sleep"),
        ("approval", "go"),
    ]
    assert [record.key for record in records.lanes["g1.1"]] == ["g1.1/a"]
    assert records.by_key["timer", "sleep"].wake_at == 9.0


def test_the_first_answer_counts_and_a_new_question_needs_a_new_one() -> None:
    request = ("human.approval.requested", {"key": "go"})
    yes, no = (("human.approval.received", {"key": "go", "action": action}) for action in ("approve", "reject"))

    assert records_of(request, yes, no).by_key["approval", "go"].answer == yes[1]
    assert records_of(yes, request).by_key["approval", "go"].answer is None
    assert [record.key for record in records_of(request).waiting_for_person()] == ["go"]
    assert records_of(request, yes).waiting_for_person() == []


def test_a_step_in_doubt_takes_an_answer_whether_it_was_asked_for_or_not() -> None:
    answer = ("human.approval.received", {**A, "action": "done"})

    assert step(records_of(("step.started", A), answer)).answer == answer[1]
    assert step(records_of(("step.completed", A), answer)).answer is None
    assert step(records_of(("step.started", A), answer, ("step.started", A))).answer is None


@pytest.mark.parametrize(
    ("kinds", "status", "end"),
    [
        (["run.started", "run.completed"], RunStatus.COMPLETED, 2),
        (["run.started", "run.completed", "run.cancelled"], RunStatus.COMPLETED, 2),
        (["run.started", "run.completed", "run.paused"], RunStatus.COMPLETED, 2),
        (["run.started", "run.failed", "run.resumed", "run.completed"], RunStatus.COMPLETED, 4),
        (["run.started", "run.cancelled", "run.completed"], RunStatus.CANCELLED, 2),
        (["run.started", "run.paused", "run.cancelled"], RunStatus.CANCELLED, 3),
    ],
)
def test_an_end_is_not_overwritten_by_what_comes_too_late(kinds: list[str], status: RunStatus, end: int) -> None:
    records = records_of(*((kind, {"number": number}) for number, kind in enumerate(kinds, 1)))

    assert (records.status, records.end["number"]) == (status, end)


def test_a_request_to_cancel_stands_until_the_run_comes_to_an_end() -> None:
    request = ("run.cancel.requested", {"reason": "x"})

    assert records_of(request).cancel_request == {"reason": "x"}
    assert records_of(request, ("run.paused", {})).cancel_request == {"reason": "x"}
    for end in ("run.completed", "run.failed", "run.cancelled"):
        assert records_of(request, (end, {})).cancel_request is None


def test_only_what_came_after_a_failure_may_be_skipped_when_that_is_tried_again() -> None:
    records = records_of(
        ("step.completed", {"key": "before"}),
        ("step.completed", {"key": "g1.1/done"}, "g1.1"),
        ("step.failed", {"key": "g1.1/a"}, "g1.1"),
        ("step.completed", {"key": "g1.2/beside"}, "g1.2"),
        ("step.completed", {"key": "g1.2/g1.1/beside"}, "g1.2/g1.1"),
        ("step.completed", {"key": "g1.1/after"}, "g1.1"),
        ("step.completed", {"key": "g1.1/g1.1/after"}, "g1.1/g1.1"),
        ("step.completed", {"key": "after"}),
        ("step.completed", {"key": "g2.1/after"}, "g2.1"),
        ("run.failed", {"steps": ["g1.1/a"]}),
    )

    skippable = {record.key for record in records.by_key.values() if record.can_be_skipped}
    assert skippable == {"g1.1/after", "g1.1/g1.1/after", "after", "g2.1/after"}


def test_what_is_done_again_after_a_retry_has_its_place_there() -> None:
    records = records_of(
        ("step.failed", A),
        ("step.completed", {"key": "b", "result": 1}),
        ("step.completed", {"key": "c"}),
        ("run.failed", {"steps": ["a"]}),
        ("step.completed", A),
        ("step.completed", {"key": "b", "result": 2}),
    )

    assert [record.key for record in records.lanes["main"]] == ["a", "c", "b"]
    assert step(records, "b").result == 2
    assert not step(records, "b").can_be_skipped


# -- any order, any content -------------------------------------------------------------------------------------------

KEYS = st.sampled_from(["a", "b", "g1.1/a", "go", "sleep"])
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
PAYLOADS = st.fixed_dictionaries(
    {},
    optional={
        "key": KEYS | JUNK,
        "result": JUNK,
        "error": JUNK,
        "attempt": st.integers(1, 3) | JUNK,
        "retry_at": st.floats(0, 10) | JUNK,
        "wake_at": JUNK,
        "steps": st.lists(KEYS, max_size=3) | JUNK,
        "fingerprint": JUNK,
        "action": st.sampled_from(["approve", "abort"]) | JUNK,
        "about": st.just("outcome") | JUNK,
        "waiting": JUNK,
        "reason": JUNK,
    },
)
KINDS = st.sampled_from([kind.value for kind in EventKind] + ["step.future", "run.future"])
EVENTS = st.lists(st.tuples(KINDS, PAYLOADS, st.sampled_from(["main", "g1.1", "g1.2", "g1.1/g2.1", ""])), max_size=25)


@given(EVENTS, st.randoms(use_true_random=False))
def test_records_take_any_order_of_any_events(entries: list[Any], shuffler: random.Random) -> None:
    shuffler.shuffle(entries)

    records = records_of(*entries)

    listed = [record for lane in records.lanes.values() for record in lane]
    assert sorted(map(id, listed)) == sorted(map(id, records.by_key.values()))
    for record in listed:
        check_fingerprint("x", record.fingerprint, {"a": "b"}) if "a" not in record.fingerprint else None
        assert isinstance(record.attempt, int)
        assert record.wake_at + record.retry_at is not None
    assert records.last_seq == len(entries)


@given(EVENTS, st.integers(0, 25))
def test_records_can_be_built_in_pieces(entries: list[Any], cut: int) -> None:
    whole, pieces = records_of(*entries), records_of(*entries[:cut])
    for seq, (kind, payload, lane_id) in enumerate(entries[cut:], len(entries[:cut]) + 1):
        pieces.add(Event("r", lane_id=lane_id, seq=seq, kind=kind, payload=payload))

    assert pieces.by_key == whole.by_key
    assert (pieces.status, pieces.end, pieces.cancel_request) == (whole.status, whole.end, whole.cancel_request)


# -- fingerprints -----------------------------------------------------------------------------------------------------


def test_equal_data_has_an_equal_fingerprint_in_whichever_order_it_was_built() -> None:
    assert fingerprint_of(a={"x": 1, "y": {"p": 1, "q": 2}}) == fingerprint_of(a={"y": {"q": 2, "p": 1}, "x": 1})
    assert fingerprint_of(a=(1, 2)) == fingerprint_of(a=[1, 2])
    assert fingerprint_of(a=[1, 2]) != fingerprint_of(a=[2, 1])
    assert fingerprint_of(a=1) != fingerprint_of(a="1")


def test_what_is_no_data_is_not_compared() -> None:
    assert fingerprint_of(a=object()) == {"a": ""}
    check_fingerprint("x", {"a": ""}, {"a": "1"})
    check_fingerprint("x", {"a": "1"}, {"a": ""})
    check_fingerprint("x", {}, {"a": "1"})


def test_a_difference_is_named() -> None:
    with pytest.raises(Nondeterminism, match="step 'a' was recorded with other messages and tools than now") as raised:
        check_fingerprint(
            describe("step", "a"),
            {"messages": "1", "model": "m", "tools": "t"},
            {"messages": "2", "model": "m", "tools": "u"},
        )

    assert raised.value.facts["changed"] == ["messages", "tools"]


@given(st.recursive(JUNK, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner)))
def test_a_fingerprint_survives_a_round_trip(value: Any) -> None:
    turned = dict(reversed(list(value.items()))) if isinstance(value, dict) else value

    assert fingerprint_of(a=value) == fingerprint_of(a=turned)


def test_a_command_in_flight_has_left_its_place_when_the_files_move() -> None:
    begun = ("tool.started", {**A, "place": {"data": "here"}})
    moved = ("workspace.moved", {"place": "there"})

    assert step(records_of(begun)).place == {"data": "here"}
    assert step(records_of(begun, moved)).place == {"data": "here", "is_left": True}
    assert step(records_of(begun, moved, begun)).place == {"data": "here"}
