"""A disk that is full in the middle of a flow: a typed error, nothing lost, and it goes on once there is room.

The disk is a limit on the size of files, set in the process that runs the flow.
"""

import pytest
from tests.support.crash.flow_run import GetReference, NewRun
from tests.support.crash.forked_processes import Process
from tests.support.crash.full_disk import fill_and_go_on
from tests.support.crash.points import points_before_appends

KINDS = ("jsonl", "sqlite")


@pytest.mark.parametrize(
    ("kind", "point"),
    [
        (kind, point)
        for kind in KINDS
        for point in points_before_appends(
            kind, after="append:step.completed@big:after", until="append:run.paused:after", how_many=5
        )
    ],
)
def test_a_run_on_a_full_disk_goes_on_in_another_process(
    kind: str, point: str, new_run: NewRun, get_reference: GetReference
) -> None:
    reference, expected = get_reference(kind)
    run = new_run(kind)

    result = run.finish([point], action="full")

    assert run.story[0].startswith("run: store_full"), run.explain("no store_full")
    assert result == expected
    run.check_against(reference)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_process_goes_on_with_the_same_store(kind: str, new_run: NewRun) -> None:
    run = new_run(kind)

    effects, kinds_when_full, result = Process(fill_and_go_on, kind, run.target).wait()

    assert "run.failed" not in kinds_when_full
    assert effects == {"one": 1, "two": 2, "three": 1}
    assert result == ["one", "two", "three"]
