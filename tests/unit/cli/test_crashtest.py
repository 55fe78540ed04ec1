"""What crashtest compares: every way in which a kill could change a run is told."""

from collections import Counter
from dataclasses import replace

from holdfast.cli.commands.crashtest import _choose, _compare, _FinishedRun

DONE = ("tool.result", "spec/1", "spec/1/m0.t0")
GOOD = _FinishedRun("r", "completed", Counter([DONE, ("phase.completed", "main", "")]), (1, 2, 3), "diff")


def test_a_run_with_more_requests_and_the_same_results_is_good() -> None:
    assert list(_compare(GOOD, replace(GOOD, numbers=(1, 2, 3, 4, 5)))) == []


def test_each_difference_is_named() -> None:
    cases = {
        "the run is paused, not completed": replace(GOOD, state="paused"),
        "tool.result of spec/1/m0.t0 is there once too often": replace(GOOD, results=GOOD.results + Counter([DONE])),
        "tool.result of spec/1/m0.t0 is missing": replace(GOOD, results=GOOD.results - Counter([DONE])),
        "the numbers of the events have a gap": replace(GOOD, numbers=(1, 3)),
        "the files were changed in another way": replace(GOOD, change=""),
    }

    assert {found: list(_compare(GOOD, found_by)) for found, found_by in cases.items()} == {
        found: [found] for found in cases
    }


def test_points_are_spread_from_the_first_to_the_last_moment() -> None:
    assert _choose(100, 1) == [1]
    assert _choose(101, 3) == [1, 51, 101]
    assert _choose(3, 10) == [1, 2, 3]
    assert _choose(0, 5) == []
