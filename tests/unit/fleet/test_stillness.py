"""Why a run stands still, in a sentence."""

from typing import Any

import pytest

from holdfast.fleet.job_rows import to_queue_name
from holdfast.fleet.stillness import describe
from holdfast.persistence.due.still_runs import ListedWorker, Look


def worker(name: str, **changes: Any) -> ListedWorker:
    facts: dict[str, Any] = {
        "name": name,
        "machine": name,
        "version": "1",
        "since": 0.0,
        "slots": 2,
        "driven": 0,
        "silent_s": 0.0,
        "is_draining": False,
        "queues": ["runs"],
        "flows": [],
    }
    return ListedWorker(**(facts | changes))


def lacks(name: str, missing: str = "ANTHROPIC_API_KEY") -> Look:
    return Look(name, missing, "It could not be driven.")


THREE = [worker("a"), worker("b"), worker("c")]


@pytest.mark.parametrize(
    ("workers", "looks", "sentence"),
    [
        ([], [], "No worker is taking runs. Start one with `holdfast worker`."),
        ([worker("a", queues=["gpu"])], [], "No worker takes queue runs."),
        (THREE, [lacks(name) for name in "abc"], "Three workers looked; none has ANTHROPIC_API_KEY."),
        (THREE[:1], [lacks("a")], "One worker looked; it lacks ANTHROPIC_API_KEY."),
        (THREE, [lacks("a")], None),
        (THREE, [Look("b", "", "It is tried again.")], "Worker b: It is tried again."),
        (
            [*THREE[:2], worker("c", driven=2)],
            [lacks("a"), lacks("b")],
            "Two workers looked; none has ANTHROPIC_API_KEY. The other worker has no free place.",
        ),
        (
            [worker("a"), worker("b", driven=2), worker("c", driven=2)],
            [lacks("a")],
            "One worker looked; it lacks ANTHROPIC_API_KEY. The other two workers have no free place.",
        ),
        (
            THREE[:2],
            [lacks("a"), Look("b", "", "The repository is missing.")],
            "One worker looked; it lacks ANTHROPIC_API_KEY. Worker b: The repository is missing.",
        ),
        (
            THREE,
            [lacks("a"), lacks("b"), lacks("c", "bwrap")],
            "Two workers looked; none has ANTHROPIC_API_KEY. One worker looked; it lacks bwrap.",
        ),
        (THREE, [lacks("a"), Look("gone", "", "It failed.")], None),
        ([worker("a", driven=2)], [], "All 2 places of the workers that take queue runs are taken."),
    ],
)
def test_a_run_that_is_due_says_why_nobody_drives_it(
    workers: list[ListedWorker], looks: list[Look], sentence: str | None
) -> None:
    assert describe(workers, looks, queue="runs") == sentence


def test_a_flow_that_nobody_knows_says_so() -> None:
    assert describe([worker("a")], [], queue="runs", flow="pay") == "No worker knows flow pay."


def test_of_a_flow_only_those_that_know_it_count() -> None:
    workers = [worker("a"), worker("b", driven=2, flows=["pay"])]
    assert (
        describe(workers, [], queue="runs", flow="pay") == "All 2 places of the workers that know flow pay are taken."
    )


def test_a_long_name_is_still_the_name_of_a_channel() -> None:
    assert to_queue_name("runs") == "runs"
    assert to_queue_name("default", "pay") == "default/pay"
    long = to_queue_name("default", "ü" * 200)
    assert len(long.encode()) <= 40
    assert long != to_queue_name("default", "ü" * 201)
