"""Money in words and scales: what a run may cost, what its limits mean, what the days are drawn by."""

from datetime import date

import pytest

from holdfast.api.preview.cost import Estimate, UsdRange, explain_limits, to_estimate
from holdfast.api.preview.roles import shorten_reason
from holdfast.api.routes.budget import to_days, to_scale


def priced(usd: float = 1.2) -> Estimate:
    return to_estimate("runs", UsdRange(usd, 0.4, 3.4), seconds=1440, runs=8)


def test_an_estimate_says_what_it_is_made_of() -> None:
    by_runs = priced()
    by_prices = to_estimate("prices", UsdRange(1.0, 0.4, 3.4), seconds=None, runs=0, unpriced=["m"])
    by_nothing = to_estimate("unknown", None, seconds=None, runs=0)

    assert (by_runs.amount, by_runs.summary) == (
        "about $1.20",
        "The median of 8 completed runs; the dearest was $3.40. It takes 24 min, as runs of it took so far.",
    )
    assert by_prices.amount == "$0.40 to $3.40"
    assert by_prices.summary.startswith("A guess")
    assert by_prices.summary.endswith("no price is known: m.")
    assert (by_nothing.amount, by_nothing.summary) == ("not known", "No price is known for its models.")
    assert to_estimate("simulated", UsdRange(0.0, 0.0, 0.0), seconds=3, runs=1).amount == "$0"


@pytest.mark.parametrize(
    ("budget", "left", "tones"),
    [(None, None, ["waiting"]), (5.0, None, ["idle"]), (1.0, 0.5, ["waiting", "waiting"]), (None, 0.0, ["waiting"])],
)
def test_limits_warn_only_where_they_may_be_met(budget: float | None, left: float | None, tones: list[str]) -> None:
    notes = explain_limits(priced(), budget_usd=budget, left_usd=left, day_usd=10.0)

    assert [note.tone for note in notes] == tones


def test_a_rehearsal_has_no_limits_to_speak_of() -> None:
    rehearsed = to_estimate("simulated", UsdRange(0.0, 0.0, 0.0), seconds=None, runs=0)

    assert explain_limits(rehearsed, budget_usd=1.0, left_usd=None, day_usd=None) == []


def test_days_without_spending_are_there_too_over_the_ends_of_months() -> None:
    days = to_days({"2026-02-28": 2}, date(2026, 2, 27), 3)

    assert days == {"2026-02-27": 0, "2026-02-28": 2, "2026-03-01": 0}


@pytest.mark.parametrize("largest", [0.0003, 0.07, 0.9, 1, 3.4, 12, 99, 1234.5])
def test_scales_are_round_and_hold_the_largest_amount(largest: float) -> None:
    lines = to_scale(largest)

    assert lines[0] == 0
    assert largest <= lines[-1] <= largest * 2
    assert 2 <= len(lines) <= 6


def test_nothing_spent_has_a_scale_too() -> None:
    assert to_scale(0) == [0, 0.5, 1]


def test_the_reason_of_a_choice_is_its_first_part() -> None:
    reason = "x-y chosen because it covers spec_write and backend openai is choice 2 of the role; after it: z (by name)"

    assert shorten_reason(reason) == "It covers spec_write and backend openai is choice 2 of the role."
    assert shorten_reason("") == ""
