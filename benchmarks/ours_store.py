"""holdfast's SQLite store by itself: long lists, the end of a long list, and appends to a big file."""

import contextlib
import statistics
import time
from pathlib import Path

from benchmarks.measure import Place, Reading, payload, reading
from holdfast.runtime.checkpoint import SQLiteCheckpointer
from holdfast.runtime.checkpoint.base import Append, prepare
from holdfast.runtime.events import Event, create_event

_SMALL = 1000
_MEASURED = 400  # appends to each file


def _event(run_id: str, number: int) -> Event:
    return create_event(run_id, "step.completed", key=f"step#{number}", result=payload(number))


def _fill(store: SQLiteCheckpointer, run_id: str, events: int) -> None:
    for start in range(0, events, 1000):
        batch = [prepare(_event(run_id, number)) for number in range(start, min(start + 1000, events))]
        store.append([Append(run_id, batch)])


def fill_list(place: Place) -> Reading:
    with reading() as found, contextlib.closing(SQLiteCheckpointer(place.db)) as store:
        _fill(store, "listed", place.steps)
    return found


def list_all(place: Place) -> Reading:
    with contextlib.closing(SQLiteCheckpointer(place.db)) as store:
        with reading() as found:
            events = store.list_events("listed")
        assert len(events) == place.steps
        found.extra["last_ten_s"] = _last_ten_s(store, place.steps)
    return found


def _last_ten_s(store: SQLiteCheckpointer, head: int) -> float:
    times = []
    for _ in range(50):
        with reading() as one:
            events = store.list_events("listed", head - 10)
        times.append(one.wall_s)
        assert len(events) == 10
    return statistics.median(times)


def fill_append(place: Place) -> Reading:
    """A big file, half of it in the run that is measured, half in a thousand runs around it; and a small one."""
    with reading() as found:
        with contextlib.closing(SQLiteCheckpointer(place.db)) as store:
            for number in range(1000):
                _fill(store, f"{'az'[number % 2]}{number}", place.steps // 2000)
            _fill(store, "measured", place.steps // 2)
        with contextlib.closing(SQLiteCheckpointer(_small(place))) as store:
            _fill(store, "measured", _SMALL)
    return found


def append_to_both(place: Place) -> Reading:
    """One event to the small file, one to the big one, and so on. Medians: a mean would compare the disk's pauses."""
    times: dict[str, list[float]] = {"small": [], "big": []}
    with (
        contextlib.closing(SQLiteCheckpointer(place.db)) as big,
        contextlib.closing(SQLiteCheckpointer(_small(place))) as small,
    ):
        for number in range(_MEASURED + 50):
            for name, store in (("small", small), ("big", big)):
                event = _event("measured", number)
                started = time.perf_counter()
                store.save_event(event)
                times[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(found[50:]) for name, found in times.items()}
    return Reading(medians["big"], extra={"small_s": medians["small"], "big_s": medians["big"]})


def _small(place: Place) -> str:
    return str(Path(place.db).with_name("small.db"))
