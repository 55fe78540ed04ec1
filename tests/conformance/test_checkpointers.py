"""What every store promises about events and their numbers: one test per promise."""

import dataclasses

import pytest
from tests.support.stores import Place, progress, seqs

from holdfast.errors import SequenceConflict
from holdfast.runtime.checkpoint import Checkpointer
from holdfast.runtime.events import Event, EventKind, Visibility, create_event

# -- events and their numbers -----------------------------------------------------------------------------------------


def test_a_store_is_a_checkpointer(store: Checkpointer) -> None:
    assert isinstance(store, Checkpointer)


def test_events_are_numbered_from_1_over_all_lanes(store: Checkpointer) -> None:
    lanes = ["main", "left", "right", "main"]

    saved = [store.save_event(create_event("r", EventKind.AGENT_PROGRESS, lane_id=lane)) for lane in lanes]

    assert [event.seq for event in saved] == [1, 2, 3, 4]
    assert [event.lane_id for event in store.list_events("r")] == lanes


def test_numbers_count_per_run(store: Checkpointer) -> None:
    for run_id in ("a", "b", "a", "b", "a"):
        store.save_event(progress(run_id))

    assert (seqs(store, "a"), seqs(store, "b")) == ([1, 2, 3], [1, 2])


def test_save_event_returns_the_event_as_stored(store: Checkpointer) -> None:
    event = progress(n=1, nested={"list": [1, 2.5, None, True, "x"]})

    stored = store.save_event(event)

    assert stored == dataclasses.replace(event, seq=1)
    assert store.list_events("r") == [stored]


def test_seq_0_is_the_next_number_even_for_the_same_object_again(store: Checkpointer) -> None:
    event = progress()

    saved = [store.save_event(event) for _ in range(3)]

    assert [event.seq for event in saved] == seqs(store) == [1, 2, 3]
    assert event.seq == 0


def test_a_given_number_above_the_last_is_kept_and_counted_on_from(store: Checkpointer) -> None:
    store.save_event(progress(seq=5))
    store.save_event(progress(seq=9))
    store.save_event(progress())

    assert seqs(store) == [5, 9, 10]


@pytest.mark.parametrize("seq", [1, 2, 3])
def test_a_given_number_that_is_not_above_the_last_is_refused(store: Checkpointer, seq: int) -> None:
    saved = [store.save_event(progress(n=n)) for n in range(3)]

    with pytest.raises(SequenceConflict) as caught:
        store.save_event(progress(seq=seq, n="other"))

    assert caught.value.code == "sequence_conflict"
    assert store.list_events("r") == saved


def test_a_number_that_was_left_out_cannot_be_filled_in_later(store: Checkpointer) -> None:
    store.save_event(progress(seq=5))

    with pytest.raises(SequenceConflict):
        store.save_event(progress(seq=3))

    assert seqs(store) == [5]


def test_the_very_same_event_again_changes_nothing(place: Place) -> None:
    store = place.open()
    first = store.save_event(progress(n=1, text="ä", nested={"b": 1, "a": [None]}))
    last = store.save_event(progress(seq=7, n=2))

    assert store.save_event(first) == first
    assert store.save_event(last) == last
    store = place.reopen()
    assert store.save_event(first) == first
    assert store.list_events("r") == [first, last]


@pytest.mark.parametrize("change", [{"span_id": "another"}, {"payload": {"n": 2}}, {"lane_id": "x"}, {"ts": 1.0}])
def test_the_same_number_with_another_content_is_refused(store: Checkpointer, change: dict[str, object]) -> None:
    first = store.save_event(progress(n=1))
    store.save_event(progress(n=2))

    with pytest.raises(SequenceConflict):
        store.save_event(dataclasses.replace(first, **change))

    assert store.list_events("r")[0] == first


def test_the_very_same_big_event_again_changes_nothing(store: Checkpointer) -> None:
    first = store.save_event(progress(text="x" * 100_000))

    assert store.save_event(first) == first
    with pytest.raises(SequenceConflict):
        store.save_event(dataclasses.replace(first, payload={"text": "y" * 100_000}))
    assert store.list_events("r") == [first]


@pytest.mark.parametrize("since_seq", [-1, 0, 1, 4, 5, 8, 9, 10, 1000, 2**62])
def test_list_events_gives_what_comes_after_since_seq(store: Checkpointer, since_seq: int) -> None:
    numbers = [1, 2, 5, 9]
    for seq in numbers:
        store.save_event(progress(seq=seq))

    assert seqs(store, "r", since_seq) == [seq for seq in numbers if seq > since_seq]


def test_the_tail_of_a_long_journal_is_read_exactly(place: Place) -> None:
    store = place.open()
    for n in range(300):
        store.save_event(progress(n=n))

    for opened in (lambda: store, place.reopen):
        reader = opened()
        for since in (299, 0, 127, 128, 300):
            assert seqs(reader, "r", since) == list(range(since + 1, 301))


def test_unknown_runs_are_empty(store: Checkpointer) -> None:
    assert store.list_events("nobody") == []
    assert store.list_events("nobody", 5) == []
    assert store.load_latest("nobody") is None
    assert store.list_runs() == []
    store.delete_run("nobody")


# -- what an event may hold -------------------------------------------------------------------------------------------


def test_every_field_comes_back(place: Place) -> None:
    event = Event(
        run_id="r",
        session_id="s",
        lane_id="l",
        span_id="span",
        parent_span_id="parent",
        ts=1234567890.123456,
        kind=EventKind.TOOL_RESULT,
        visibility=Visibility.DEBUG,
        payload={"result": {"ok": True}},
    )

    place.open().save_event(event)

    (found,) = place.reopen().list_events("r")
    assert found == dataclasses.replace(event, seq=1)
    assert isinstance(found.kind, EventKind)
    assert isinstance(found.visibility, Visibility)


def test_an_event_of_a_newer_version_is_kept_whole(place: Place) -> None:
    newer = {**progress(n=1).to_dict(), "kind": "quantum.entangled", "visibility": "secret", "shape": {"deep": [1]}}

    place.open().save_event(Event.from_dict(newer))

    (found,) = place.reopen().list_events("r")
    assert (found.kind, found.visibility) == ("quantum.entangled", "secret")
    assert found.to_dict() == {**newer, "seq": 1}


def test_an_unknown_key_may_have_any_name_that_is_not_the_stores_own(place: Place) -> None:
    extra = {"hash": "mine", "type": 1, "body": None, "extra": {"extra": 1}}

    place.open().save_event(Event.from_dict({**progress().to_dict(), **extra}))

    (found,) = place.reopen().list_events("r")
    assert found.extra == extra


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ä ß 汉字 🙂 é",
        "\0\x01\x1f\x7f\u2028\u2029\ufeff",
        "line\nline\r\n\ttab",
        '"\\/',
        "\U0010ffff\ufffe",
        "$blobs",
    ],
)
def test_any_text_comes_back(place: Place, text: str) -> None:
    stored = place.open().save_event(progress(text=text, **{f"key {text}": [text]}))

    assert stored.payload == {"text": text, f"key {text}": [text]}
    assert place.reopen().list_events("r") == [stored]


@pytest.mark.parametrize("number", [0, -1, 2**63, -(2**70), 10**30, 0.1, 1e-320, 1.7976931348623157e308, -0.0])
def test_any_number_comes_back(place: Place, number: float) -> None:
    place.open().save_event(progress(number=number))

    (found,) = place.reopen().list_events("r")
    assert repr(found.payload["number"]) == repr(number)


@pytest.mark.parametrize("size", [100_000, 5_000_000])
def test_big_payloads_come_back(place: Place, size: int) -> None:
    payload = {"text": "é" * (size // 2), "small": 1, "many": list(range(size // 20))}
    store = place.open()
    store.save_event(progress(**payload))
    store.save_event(progress(**payload))

    assert [event.payload for event in place.reopen().list_events("r")] == [payload, payload]


def test_a_payload_may_use_the_names_of_the_store(place: Place) -> None:
    payload = {"hash": "x", "$blobs": {"a": "b"}, "seq": 0, "run_id": "other", "payload": {}}

    place.open().save_event(progress(data=payload))

    assert place.reopen().list_events("r")[0].payload["data"] == payload
