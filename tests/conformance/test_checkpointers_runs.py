"""What every store promises about copies, snapshots and the list of runs: one test per promise."""

import itertools
import time

import pytest
from tests.support.stores import Place, progress, seqs

from holdfast.errors import SequenceConflict
from holdfast.runtime.checkpoint import Checkpointer, InMemoryCheckpointer
from holdfast.runtime.events import EventKind, create_event
from holdfast.runtime.state import RunState, RunStatus, fold

# -- copies -----------------------------------------------------------------------------------------------------------


def test_what_is_saved_is_a_copy(store: Checkpointer) -> None:
    event, state = progress(items=[1]), RunState("r", data={"items": [1]})
    stored = store.save_event(event)
    store.save_snapshot("r", state)

    event.payload["items"].append(2)
    stored.payload["items"].append(3)
    state.data["items"].append(4)

    assert store.list_events("r")[0].payload == {"items": [1]}
    assert store.load_latest("r").data == {"items": [1]}


def test_what_is_loaded_is_the_callers_own(store: Checkpointer) -> None:
    store.save_event(progress(items=[1]))
    store.save_snapshot("r", RunState("r", data={"items": [1]}))

    store.list_events("r")[0].payload["items"].append(2)
    store.load_latest("r").data["items"].append(2)
    store.list_runs().clear()

    assert store.list_events("r")[0].payload == {"items": [1]}
    assert store.load_latest("r").data == {"items": [1]}
    assert store.list_runs() == ["r"]


# -- snapshots --------------------------------------------------------------------------------------------------------


def test_a_snapshot_comes_back_whole(place: Place) -> None:
    state = RunState("r", status=RunStatus.PAUSED, purpose="ä", data={"n": [1, None]}, metadata={"k": 2**70})
    state.mark_node_started("n1", at=1.5)
    state.mark_node_completed("n1", output={"x": 1}, at=2.5)
    state.cache_result(state.get_idempotency_key("tool", {"a": 1}), {"r": 1})
    state.extra["of a newer version"] = [1]

    place.open().save_snapshot("r", state)

    assert place.reopen().load_latest("r") == state


def test_a_snapshot_replaces_the_one_before(place: Place) -> None:
    store = place.open()
    for n in range(4):
        store.save_snapshot("r", RunState("r", data={"n": n}))

    assert place.reopen().load_latest("r").data == {"n": 3}


def test_a_big_snapshot_comes_back(place: Place) -> None:
    state = RunState("r", data={"text": "ü" * 2_000_000})

    place.open().save_snapshot("r", state)

    assert place.reopen().load_latest("r") == state


def test_snapshot_and_later_events_give_the_state_of_all_events(store: Checkpointer) -> None:
    kinds = [EventKind.RUN_STARTED, EventKind.AGENT_STARTED, EventKind.AGENT_FINISHED, EventKind.RUN_COMPLETED]
    for kind in kinds[:2]:
        store.save_event(create_event("r", kind, node="n1"))
    store.save_snapshot("r", fold(store.list_events("r")))
    for kind in kinds[2:]:
        store.save_event(create_event("r", kind, node="n1"))

    snapshot = store.load_latest("r")

    assert snapshot.last_seq == 2
    assert fold(store.list_events("r", snapshot.last_seq), snapshot) == fold(store.list_events("r"))


def test_a_snapshot_alone_makes_a_run_and_leaves_its_numbers_alone(store: Checkpointer) -> None:
    store.save_snapshot("r", RunState("r", last_seq=40))

    assert (store.list_runs(), store.list_events("r")) == (["r"], [])
    assert store.save_event(progress()).seq == 1


# -- runs -------------------------------------------------------------------------------------------------------------


def test_list_runs_has_the_run_written_last_first(place: Place) -> None:
    store = place.open()
    for run_id in ("a", "b", "c", "d"):
        store.save_event(progress(run_id))
    assert store.list_runs() == ["d", "c", "b", "a"]

    store.save_event(progress("b"))
    store.save_snapshot("a", RunState("a"))

    assert store.list_runs() == ["a", "b", "d", "c"]
    assert place.reopen().list_runs() == ["a", "b", "d", "c"]


def test_reading_and_refused_writes_do_not_count_as_writing(store: Checkpointer) -> None:
    store.save_event(progress("a"))
    store.save_event(progress("b"))

    store.list_events("a")
    store.load_latest("a")
    with pytest.raises(SequenceConflict):
        store.save_event(progress("a", seq=1))

    assert store.list_runs() == ["b", "a"]


def test_the_order_of_runs_stands_a_clock_that_goes_back(store: Checkpointer, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = itertools.count()
    real_s, real_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() - next(steps) * 3_600_000_000_000)
    monkeypatch.setattr(time, "time", lambda: real_s() - next(steps) * 3600)

    for run_id in ("a", "b", "c", "a"):
        store.save_event(progress(run_id))
    store.save_snapshot("b", RunState("b"))

    assert store.list_runs() == ["b", "a", "c"]
    assert seqs(store, "a") == [1, 2]
    first, second = store.list_events("a")
    assert second.ts < first.ts


def test_a_deleted_run_is_gone_and_its_id_starts_anew(place: Place) -> None:
    store = place.open()
    for run_id in ("a", "b"):
        store.save_event(progress(run_id, text="x" * 100_000))
        store.save_event(progress(run_id))
        store.save_snapshot(run_id, RunState(run_id))

    store.delete_run("a")
    store.delete_run("a")

    for opened in (lambda: store, place.reopen):
        reader = opened()
        assert (reader.list_runs(), reader.list_events("a"), reader.load_latest("a")) == (["b"], [], None)
    assert reader.save_event(progress("a")).seq == 1
    assert [len(event.payload.get("text", "")) for event in reader.list_events("b")] == [100_000, 0]


def test_everything_survives_opening_the_store_again(place: Place) -> None:
    saved = []
    for n in range(5):
        store = place.reopen()
        saved.append(store.save_event(progress(n=n)))

    store = place.reopen()
    assert store.list_events("r") == saved
    assert [event.seq for event in saved] == [1, 2, 3, 4, 5]


def test_closing_twice_is_fine(place: Place) -> None:
    store = place.open()
    store.save_event(progress())

    store.close()
    store.close()


def test_the_store_in_memory_counts() -> None:
    store = InMemoryCheckpointer()
    store.save_event(progress("a"))
    store.save_event(progress("b"))
    for _ in range(2):
        store.save_snapshot("a", RunState("a"))

    assert (store.event_count, store.snapshot_count) == (2, 1)
    store.delete_run("a")
    assert (store.event_count, store.snapshot_count) == (1, 0)
