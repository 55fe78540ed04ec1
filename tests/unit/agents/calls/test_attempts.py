"""How long a failed attempt keeps everybody from calling the provider."""

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.agents.calls.attempts import Attempts
from holdfast.agents.calls.retries import RetryRules

RULES = RetryRules(tries=2, backoff_s=4.0, max_wait_s=60.0)


class Answered(Exception):
    def __init__(self, status: int, retry_after: str | None = None) -> None:
        super().__init__(str(status))
        headers = {} if retry_after is None else {"retry-after": retry_after}
        self.response = SimpleNamespace(status_code=status, headers=headers, json=dict)


def attempts(models: int = 1) -> Attempts:
    made: Any = [SimpleNamespace(model_name=f"m{number}") for number in range(models)]
    return Attempts(made, RULES, {}, run_id="r", clock=lambda: 0.0)


@pytest.mark.parametrize(
    ("error", "hold_s"),
    [
        (Answered(429, "5"), 5.0),
        (Answered(429, "3600"), 60.0),
        (Answered(503, "5"), 5.0),
        (Answered(503), 0.0),
        (Answered(503, "3600"), 0.0),
        (Answered(500, "5"), 0.0),
        (Answered(401), 0.0),
    ],
)
def test_a_provider_gets_the_pause_that_it_asks_for_up_to_the_longest_wait(error: Answered, hold_s: float) -> None:
    assert attempts().find_hold(error) == hold_s


def test_too_many_without_a_time_holds_everybody_as_long_as_the_call_itself_waits() -> None:
    one, holds, delays = attempts(), [], []
    for _ in range(RULES.tries):
        holds.append(one.find_hold(Answered(429)))
        delays.append(one.judge(Answered(429)).retry_in_s)

    assert holds[0] == delays[0]
    assert 3.2 <= holds[0] <= 4.8
    assert 6.4 <= holds[1] <= 9.6  # also after the last try: the provider has had too many


def test_where_another_model_is_asked_at_once_only_what_the_provider_asks_for_holds() -> None:
    one = attempts(models=2)
    assert one.find_hold(Answered(429, "3600")) == 0.0
    assert one.find_hold(Answered(429, "5")) == 5.0
    assert one.find_hold(Answered(429)) > 0.0  # the same model is asked again first
    one.judge(Answered(429))
    assert one.find_hold(Answered(429)) == 0.0
