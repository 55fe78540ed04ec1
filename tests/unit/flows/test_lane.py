"""Keys of a lane: a name's later uses have an ordinal, and never the key that another name has."""

import pytest

from holdfast.flows.lane import LaneCursor

CASES = [
    (["a", "a", "a"], ["a", "a#2", "a#3"]),
    (["a#2", "a", "a", "a"], ["a#2", "a", "a#3", "a#4"]),
    (["a", "a", "a#2", "a#2"], ["a", "a#2", "a#2#2", "a#2#3"]),
    (["a", "a", "a#3", "a", "a"], ["a", "a#2", "a#3", "a#4", "a#5"]),
    (["a", "a", "a#02", "a#x", "#2", "a#1"], ["a", "a#2", "a#02", "a#x", "#2", "a#1"]),
    (["a#2#2", "a#2", "a#2"], ["a#2#2", "a#2", "a#2#3"]),
]


@pytest.mark.parametrize("lane_id", ["main", "g1.2"])
@pytest.mark.parametrize(("names", "keys"), CASES)
def test_every_use_of_a_name_has_a_key_of_its_own(names: list[str], keys: list[str], lane_id: str) -> None:
    lane = LaneCursor(lane_id, [])

    taken = [lane.take("step", name) for name in names]

    prefix = "" if lane_id == "main" else f"{lane_id}/"
    assert taken == [f"{prefix}{key}" for key in keys]
    assert len(set(taken)) == len(taken)


def test_names_of_other_operations_are_counted_apart() -> None:
    lane = LaneCursor("main", [])

    assert [lane.take("step", "a"), lane.take("wait", "a"), lane.take("step", "a")] == ["a", "a", "a#2"]
