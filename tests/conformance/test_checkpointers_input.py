"""What a store refuses: a typed error with its code, and nothing written."""

import collections
import dataclasses
import datetime
import decimal
import enum
from typing import Any

import pytest
from tests.support.stores import Place, progress

from holdfast.errors import HoldfastError
from holdfast.runtime.checkpoint import Checkpointer
from holdfast.runtime.events import Event
from holdfast.runtime.state import RunState

ACCEPTED = "the one before"


def circular_list() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


def circular_dict() -> dict[str, Any]:
    data: dict[str, Any] = {}
    data["self"] = {"again": data}
    return data


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@dataclasses.dataclass
class Thing:
    x: int = 1


BAD_VALUES = {
    "set": {1, 2},
    "empty set": set(),
    "frozenset": frozenset("a"),
    "bytes": b"x",
    "empty bytes": b"",
    "bytearray": bytearray(b"x"),
    "nan": float("nan"),
    "inf": float("inf"),
    "minus inf": float("-inf"),
    "circular list": circular_list(),
    "circular dict": circular_dict(),
    "lone surrogate": "a\ud800b",
    "lone surrogate in a key": {"\udfff": 1},
    "integer key": {1: "a"},
    "null key": {None: 1},
    "bool key": {True: 1},
    "tuple key": {(1, 2): 1},
    "object": object(),
    "dataclass": Thing(),
    "class": Thing,
    "function": len,
    "exception": ValueError("x"),
    "datetime": datetime.datetime(2026, 1, 1),
    "decimal": decimal.Decimal("1.5"),
    "complex": 1j,
    "range": range(3),
    "generator": (n for n in ()),
    "too deep": nested(5000),
    "a little too deep": nested(101),
    "huge integer": 10**5000,
}
BAD_RUN_IDS = ["", "a\0b", "\0", "x" * 201, "x" * 10_000, "\ud800", None, 7, b"r", ["r"], 1.5, True]
BAD_FOLDER_NAMES = ["../up", "a/b", "/", "/etc", "a\\b", ".", "..", "ä" * 128, ".holdfast-format", ".holdfast-x"]


def check_refused(store: Checkpointer, save: Any, code: str) -> None:
    before = store.save_event(progress(ACCEPTED))

    with pytest.raises(HoldfastError) as caught:
        save()

    assert caught.value.code == code
    assert caught.value.message
    assert caught.value.hint
    assert store.list_runs() == [ACCEPTED]
    assert store.list_events(ACCEPTED) == [before]
    assert store.save_event(progress(ACCEPTED)).seq == 2


@pytest.mark.parametrize("name", BAD_VALUES)
def test_an_event_must_be_json(store: Checkpointer, name: str) -> None:
    check_refused(store, lambda: store.save_event(progress("r", deep={"in": [BAD_VALUES[name]]})), "payload_invalid")


@pytest.mark.parametrize("name", ["set", "nan", "circular dict", "lone surrogate", "object", "too deep"])
def test_a_snapshot_must_be_json(store: Checkpointer, name: str) -> None:
    state = RunState("r", data={"x": BAD_VALUES[name]})

    check_refused(store, lambda: store.save_snapshot("r", state), "payload_invalid")


def test_a_refused_event_of_a_known_run_leaves_no_gap(store: Checkpointer) -> None:
    store.save_event(progress())

    for value in BAD_VALUES.values():
        with pytest.raises(HoldfastError):
            store.save_event(progress(x=value))

    assert store.save_event(progress()).seq == 2


def test_an_event_over_the_limit_is_refused(store: Checkpointer) -> None:
    too_big = progress("r", text="x" * (64 * 1024 * 1024))

    check_refused(store, lambda: store.save_event(too_big), "payload_invalid")


@pytest.mark.parametrize(
    "change",
    [
        {"payload": [1]},
        {"payload": None},
        {"ts": "now"},
        {"ts": None},
        {"ts": float("nan")},
        {"ts": True},
        {"lane_id": 1},
        {"lane_id": None},
        {"session_id": None},
        {"span_id": b"x"},
        {"span_id": "\ud800"},
        {"parent_span_id": {1}},
        {"kind": "a\0b"},
        {"extra": {"x": {1}}},
        {"extra": {"$blobs": "x"}},
    ],
    ids=str,
)
def test_every_part_of_an_event_is_checked(store: Checkpointer, change: dict[str, Any]) -> None:
    event = dataclasses.replace(progress("r"), **change)

    check_refused(store, lambda: store.save_event(event), "payload_invalid")


@pytest.mark.parametrize("seq", [-1, True, 1.0, "1", None, 2**63, 2**64, 2**200], ids=str)
def test_a_number_is_a_whole_number_that_can_be_counted_on_from(store: Checkpointer, seq: Any) -> None:
    check_refused(store, lambda: store.save_event(dataclasses.replace(progress("r"), seq=seq)), "sequence_conflict")


@pytest.mark.parametrize("run_id", BAD_RUN_IDS, ids=lambda run_id: repr(run_id)[:12])
def test_a_run_id_is_a_short_string(store: Checkpointer, run_id: Any) -> None:
    check_refused(store, lambda: store.save_event(dataclasses.replace(progress(), run_id=run_id)), "run_id_invalid")
    for use in (store.list_events, store.load_latest, store.delete_run):
        with pytest.raises(HoldfastError) as caught:
            use(run_id)
        assert caught.value.code == "run_id_invalid"
    with pytest.raises(HoldfastError) as caught:
        store.save_snapshot(run_id, RunState("r"))
    assert caught.value.code == "run_id_invalid"


@pytest.mark.parametrize("run_id", BAD_FOLDER_NAMES, ids=lambda run_id: repr(run_id)[:12])
def test_with_files_a_run_id_is_one_plain_path_component(place: Place, run_id: str) -> None:
    store = place.open()
    if place.kind != "jsonl":
        assert store.save_event(progress(run_id)).seq == 1
        assert store.list_runs() == [run_id]
        return

    check_refused(store, lambda: store.save_event(progress(run_id)), "run_id_invalid")
    for use in (store.list_events, store.load_latest, store.delete_run):
        with pytest.raises(HoldfastError) as caught:
            use(run_id)
        assert caught.value.code == "run_id_invalid"


@pytest.mark.parametrize(
    "run_id",
    ["x" * 200, "a b", "ä汉🙂", "-rf", "~", "a:b*?", "'; DROP TABLE events; --", "%s", ".hidden", "a\nb", "nul"],
)
def test_any_other_run_id_works(place: Place, run_id: str) -> None:
    store = place.open()
    stored = store.save_event(progress(run_id))
    store.save_snapshot(run_id, RunState(run_id))

    store = place.reopen()
    assert store.list_runs() == [run_id]
    assert store.list_events(run_id) == [stored]
    assert store.load_latest(run_id) == RunState(run_id)
    store.delete_run(run_id)
    assert store.list_runs() == []


def test_what_python_holds_as_a_kind_of_json_becomes_json(store: Checkpointer) -> None:
    class Colour(enum.StrEnum):
        RED = "red"

    Point = collections.namedtuple("Point", "x y")
    payload = {"tuple": (1, (2,)), "enum": Colour.RED, "point": Point(1, 2), "ordered": collections.OrderedDict(a=1)}

    stored = store.save_event(progress(**payload))

    assert stored.payload == {"tuple": [1, [2]], "enum": "red", "point": [1, 2], "ordered": {"a": 1}}
    assert store.list_events("r") == [stored]
    assert type(store.list_events("r")[0].payload["enum"]) is str


def test_an_event_needs_a_kind() -> None:
    with pytest.raises(TypeError, match="kind"):
        Event(run_id="r")
