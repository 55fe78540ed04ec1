"""What a policy, a destination or a person says of a call in flight at a kill."""

from typing import Any

import pytest

from holdfast.runtime.outcomes.unknown_outcomes import (
    Aborted,
    Done,
    NotDone,
    OnUnknown,
    Unclear,
    from_answer,
    from_policy,
    unknown_error,
)


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ({"action": "done", "result": {"paid": 5}}, Done({"paid": 5})),
        ({"action": "done"}, Done(None)),
        ({"action": "rerun"}, NotDone("rerun")),
        ({"action": "approve"}, NotDone("rerun")),
        ({"action": "abort", "comment": "Enough.", "by": "ann"}, Aborted("Enough.", "ann")),
        ({"action": "reject"}, None),
        ({"action": "something new"}, None),
        ({}, None),
    ],
)
def test_only_a_word_for_it_makes_a_call_again(answer: dict[str, Any], outcome: object) -> None:
    assert from_answer(answer) == outcome


@pytest.mark.parametrize(
    ("on_unknown", "outcome"),
    [
        ("rerun", NotDone("rerun")),
        ("ask", Unclear()),
        ("fail", None),
        (lambda key: Done(key), Done("run:key")),
        (lambda _key: NotDone(), NotDone("not_done")),
    ],
)
async def test_a_policy_says_or_asks_the_destination_by_its_key(on_unknown: OnUnknown, outcome: object) -> None:
    assert await from_policy(on_unknown, "run:key") == outcome


async def test_a_reconciler_that_says_something_else_is_not_believed() -> None:
    async def guesses(_key: str) -> Any:
        return True

    with pytest.raises(TypeError, match="Done"):
        await from_policy(guesses, "run:key")


def test_the_error_names_run_and_step_and_how_to_answer() -> None:
    error = unknown_error("r1", "charge")

    assert error.code == "tool_outcome_unknown"
    assert "'charge' of run 'r1'" in error.message
    assert "decide(" in error.hint
