"""The crash points of the flow in `child.py`, and which of them are tried: all in `make torture`, else a sample."""

import os
import random
from typing import TypeVar

from tests.support.stores import DISK_KINDS

SEED = os.environ.get("HOLDFAST_SEED", "1")
IS_TORTURE = bool(os.environ.get("HOLDFAST_TORTURE"))

FLAKY = "g1.2/flaky"
WITH_INTENT = ("g1.4/charge", "g1.3/g1.2/book", "order", "g1.3/g1.1/fetch", "ship")
"""Steps that ask, fail or reconcile when their outcome is unknown; all others run again."""
APPROVAL = "gate"
COMPLETED = "append:run.completed:inside"


def _steps(*keys: str) -> list[str]:
    return [place for key in keys for place in _step(key)]


def _step(key: str) -> list[str]:
    started = [f"append:step.started@{key}"] if key in WITH_INTENT else []
    tried_again = [f"append:step.failed@{FLAKY}", f"effect:{FLAKY}~2"] if key == FLAKY else []
    ended = "failed" if key == "refuse" else "completed"
    return [*started, f"effect:{key}", *tried_again, f"append:step.{ended}@{key}"]


def _places(kind: str) -> list[str]:
    """What an undisturbed run does, lane by lane; "~2" marks the second time."""
    places = [
        "claim",
        "append:run.created",
        "append:run.started",
        *_steps("plan", "big", "g1.1/pack", "g1.1/pack#2", FLAKY, "g1.3/near"),
        *_steps("g1.3/g1.1/fetch", "g1.3/g1.2/book", "g1.3/g1.3/note", "g1.4/charge", "refuse"),
        "append:timer.started@sleep",
        *_steps("order"),
        f"append:human.approval.requested@{APPROVAL}",
        "append:run.paused",
        "release",
        f"append:human.approval.received@{APPROVAL}",
        "claim~2",
        "append:run.resumed",
        *_steps("ship", "thank"),
        "append:run.completed",
        "release~2",
    ]
    # A plain store has no owners; on Postgres the last append of a run gives it up.
    absent = {"jsonl": ("claim", "release"), "postgres": ("release",)}.get(kind, ())
    return [place for place in places if not place.startswith(absent)]


def _points_at(place: str, kind: str) -> list[str]:
    has_inside = not place.startswith("effect:") and not (place.startswith("release") and kind == "sqlite")
    name, separator, times = place.partition("~")
    whens = ("before", "inside", "after") if has_inside else ("before", "after")
    return [f"{name}:{when}{separator}{times}" for when in whens]


POINTS = {kind: [point for place in _places(kind) for point in _points_at(place, kind)] for kind in DISK_KINDS}

_T = TypeVar("_T")
Case = tuple[str, tuple[str | int, ...]]
"""A kind of store, and what kills the run there: a point by its name, or as many points on as the number says."""


def single_kills() -> list[Case]:
    """Every point of every store, or some of them."""
    return [(kind, (point,)) for kind in DISK_KINDS for point in _sample(f"single {kind}", POINTS[kind], how_many=8)]


def double_kills() -> list[Case]:
    """A second kill while the first one is being recovered from: at the same point again, or anywhere later."""
    return [case for kind in DISK_KINDS for case in _sample(f"double {kind}", _doubles(kind), how_many=3, of_all=600)]


def _doubles(kind: str) -> list[Case]:
    points = POINTS[kind][: POINTS[kind].index(COMPLETED) + 1]
    joined = points.index("effect:refuse:before")
    doubles: list[Case] = []
    for number, point in enumerate(points):
        if ":before" in point and "~" not in point:
            doubles.append((kind, (point, f"{point}~2")))
        # How far the other lanes have come by then is not known, nor which points a step that is settled skips.
        left = len(points) - (max(number, joined) if "g1." in point else number) - 10
        doubles += [(kind, (point, later)) for later in range(1, max(5, left))]
    return doubles


def points_before_appends(kind: str, *, after: str, until: str, how_many: int) -> list[str]:
    """Some of the places between two points where the flow's process is about to write."""
    points = POINTS[kind][POINTS[kind].index(after) : POINTS[kind].index(until)]
    appends = [point for point in points if point.startswith("append:") and point.endswith(":before")]
    return _sample(f"appends {kind}", appends, how_many=how_many)


def _sample(what: str, items: list[_T], *, how_many: int, of_all: int | None = None) -> list[_T]:
    count = (of_all or len(items)) if IS_TORTURE else how_many
    chosen = random.Random(f"{SEED} {what}").sample(range(len(items)), min(count, len(items)))
    return [items[index] for index in sorted(chosen)]
