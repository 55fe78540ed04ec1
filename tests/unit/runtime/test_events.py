"""Events: the vocabulary, the lossless round trip, and what a newer version may add."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import PayloadInvalid
from holdfast.runtime.events import Event, EventKind, Visibility, create_event, from_bodies, from_body, to_body

CONTRACT_KINDS = {
    "run": "created started resumed paused finished completed failed cancelled error",
    "phase": "started skipped completed failed",
    "agent": "started progress finished error",
    "reasoning": "summary",
    "model": "request response error",
    "text": "delta done",
    "tool": "started args result error unknown",
    "state": "snapshot delta",
    "checkpoint": "saved",
    "human": "approval.requested approval.received",
    "artifact": "written accepted rejected",
    "budget": "reserved settled exhausted",
}

text = st.text(max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)
unknown_keys = st.text(min_size=1, max_size=8).filter(
    lambda key: not key.startswith("$") and key not in {field.name for field in dataclasses.fields(Event)}
)
events = st.builds(
    Event,
    run_id=st.text(min_size=1, max_size=12),
    session_id=text,
    lane_id=text,
    span_id=text,
    parent_span_id=st.none() | text,
    seq=st.integers(0, 2**53 - 1),
    ts=st.floats(allow_nan=False, allow_infinity=False),
    kind=st.sampled_from(EventKind) | st.from_regex(r"\A[a-z]+\.[a-z]+\Z"),
    visibility=st.sampled_from(Visibility) | st.just("secret"),
    payload=st.dictionaries(text, json_values, max_size=4),
    extra=st.dictionaries(unknown_keys, json_values, max_size=2),
)


@pytest.mark.parametrize("group", CONTRACT_KINDS)
def test_the_kinds_of_the_contract_are_there(group: str) -> None:
    for verb in CONTRACT_KINDS[group].split():
        name = f"{group}_{verb}".replace(".", "_").upper()
        assert EventKind[name].value == f"{group}.{verb}"


def test_every_kind_is_named_by_its_value() -> None:
    assert all(kind.name == kind.value.upper().replace(".", "_") for kind in EventKind)


def test_defaults() -> None:
    event = Event(run_id="r", kind=EventKind.RUN_STARTED)

    assert (event.session_id, event.lane_id, event.parent_span_id, event.seq) == ("", "main", None, 0)
    assert (event.visibility, event.payload) == (Visibility.PUBLIC, {})
    assert isinstance(event.ts, float)
    assert event.span_id != Event(run_id="r", kind=EventKind.RUN_STARTED).span_id


def test_an_event_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        create_event("r", "run.started").seq = 2


def test_a_kind_given_as_text_becomes_the_kind() -> None:
    for event in (Event(run_id="r", kind="run.started", visibility="debug"), create_event("r", "run.started")):
        assert event.kind is EventKind.RUN_STARTED
        assert isinstance(event.visibility, Visibility)


def test_create_event_takes_every_other_keyword_as_payload() -> None:
    event = create_event("r", EventKind.AGENT_FINISHED, seq=1, node="n1", ts=5, kind_of="x", span_id="mine")

    assert event.payload == {"node": "n1", "ts": 5, "kind_of": "x", "span_id": "mine"}
    assert (event.run_id, event.seq, event.kind) == ("r", 1, EventKind.AGENT_FINISHED)


@pytest.mark.parametrize(
    ("kind", "is_terminal", "is_error"),
    [
        ("run.completed", True, False),
        ("run.failed", True, True),
        ("run.cancelled", True, False),
        ("run.paused", False, False),
        ("tool.error", False, True),
        ("phase.failed", False, True),
        ("quantum.error", False, True),
    ],
)
def test_ends_and_errors_are_known_by_kind(kind: str, is_terminal: bool, is_error: bool) -> None:
    event = create_event("r", kind)

    assert (event.is_terminal, event.is_error) == (is_terminal, is_error)


@given(events)
def test_to_dict_and_from_dict_lose_nothing(event: Event) -> None:
    assert Event.from_dict(event.to_dict()) == event
    assert Event.from_dict(json.loads(json.dumps(event.to_dict()))) == event


@given(events)
def test_a_stored_body_loses_nothing(event: Event) -> None:
    body, payload = to_body(event)

    assert from_body(event.run_id, event.seq, body) == event
    assert json.loads(body).items() <= {**event.to_dict(), "payload": payload}.items()
    assert to_body(from_body(event.run_id, event.seq, body))[0] == body


def test_an_event_of_a_newer_version_is_read_and_written_whole() -> None:
    newer = {"run_id": "r", "seq": 3, "kind": "quantum.entangled", "spin": {"up": True}}

    event = Event.from_dict(newer)

    assert event.kind == "quantum.entangled"
    assert not isinstance(event.kind, EventKind)
    assert newer.items() <= event.to_dict().items()


@pytest.mark.parametrize(
    "data",
    [{}, {"run_id": "r"}, {"kind": "x"}, {"run_id": "", "kind": "x"}, {"run_id": "r", "kind": 7},
     {"run_id": "r", "kind": "x", "payload": []}],
)  # fmt: skip
def test_what_is_no_event_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(PayloadInvalid):
        Event.from_dict(data)


def test_the_payload_of_a_body_is_a_copy() -> None:
    event = create_event("r", "run.started", items=[1])

    _, payload = to_body(event)
    event.payload["items"].append(2)

    assert payload == {"items": [1]}


def test_many_bodies_become_what_each_becomes_alone() -> None:
    events = [create_event("one", kind, "lane", seq, n=seq) for seq, kind in enumerate(["step.started", "own.kind"], 1)]
    bodies = [to_body(event)[0] for event in events]

    assert from_bodies("one", [1, 2], bodies) == events


NEWER = '{"kind":"k","ts":1.0,"span_id":"","payload":{},"new":1}'


@pytest.mark.parametrize("odd", ["", "{", "{},{}", '{"kind": 7}', NEWER])
def test_one_odd_body_among_many_is_left_to_whoever_decodes_it_alone(odd: str) -> None:
    assert from_bodies("one", [1, 2], [to_body(create_event("one", "step.started"))[0], odd.encode()]) is None
