"""Which model is asked next, and when: the attempts at one model call, as they stand in the journal.

Each attempt is an intent and an outcome of its own, and reserves money of its own: what a failed one has cost is known
only where the provider surely charges nothing.
"""

import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from holdfast.agents.calls.conversion import output_limit, priced_name
from holdfast.agents.calls.fingerprints import model_name
from holdfast.agents.calls.gate import ModelCall
from holdfast.agents.calls.provider_errors import ProviderError, ProviderPause, classify_error, pauses, to_failure
from holdfast.agents.calls.retries import RetryRules
from holdfast.agents.redaction import SECRETS
from holdfast.runtime.outcomes.failures import describe_error
from holdfast.runtime.step import Failure

if TYPE_CHECKING:
    from langchain.agents.middleware import ModelRequest
    from langchain_core.language_models import BaseChatModel


_TOO_MANY = "rate_limited"
_HOLDS = (_TOO_MANY, "overloaded")  # what a provider says to everybody


class Attempts:
    """Goes through the models of one call; a later process goes on where the recorded failure says.

    The recorded error holds `model_no`, the number of the model to ask next, and `tries`, how often it was asked.
    """

    def __init__(
        self,
        models: "Sequence[BaseChatModel]",
        rules: RetryRules,
        recorded: Mapping[str, Any],
        *,
        run_id: str,
        clock: Callable[[], float],
    ) -> None:
        self._models = models
        self._rules = rules
        self._run_id = run_id
        self._clock = clock
        self.last_facts: Mapping[str, Any] = recorded
        """What is recorded of the last attempt that failed."""
        number = recorded.get("model_no")
        self._number = number if isinstance(number, int) and 0 <= number < len(models) else 0
        tries = recorded.get("tries")
        self._tries = tries if isinstance(tries, int) else 0
        self._spread = _draw_spread()

    @property
    def model(self) -> "BaseChatModel":
        return self._models[self._number]

    def to_call(self, call: ModelCall) -> ModelCall:
        """Return the call with the price and the limit of the model that is asked now."""
        if self._number == 0:
            return call
        return replace(call, model=priced_name(self.model), max_output_tokens=output_limit(self.model))

    def to_request(self, request: "ModelRequest[Any]") -> "ModelRequest[Any]":
        """Return the request for the model that is asked now."""
        return request if self._number == 0 else request.override(model=self.model)

    def skip_to(self, number: int) -> None:
        """Begin with another model than the first, if there is one."""
        if self._number < number < len(self._models):
            self._number, self._tries = number, 0

    def find_hold(self, error: Exception) -> float:
        """Return how long nobody should call the provider after this failure of the attempt that is being made.

        As long as it asks for, up to the longest wait; where it only says "too many", as long as this call waits.
        """
        problem = classify_error(error, now_s=self._clock())
        retry_after_s, most_s = problem.retry_after_s, self._rules.max_wait_s
        if problem.code not in _HOLDS or (retry_after_s is None and problem.code != _TOO_MANY):
            return 0.0
        if retry_after_s is not None and retry_after_s <= most_s:
            return retry_after_s
        is_last = retry_after_s is not None or self._tries + 1 >= self._rules.tries
        if problem.code != _TOO_MANY or (is_last and self._number + 1 < len(self._models)):
            return 0.0  # another of its models is asked at once
        return most_s if retry_after_s is not None else self._backoff_s(self._tries + 1)

    def judge(self, error: Exception) -> Failure:
        """Return what is recorded of a failed attempt; from now on `model` is the one to ask next."""
        SECRETS.scrub_error(error)
        problem = classify_error(error, now_s=self._clock())
        facts = {**describe_error(error), "code": problem.code, "model": model_name(self.model)}
        if problem.status is not None:
            facts["status"] = problem.status
        self._tries += 1
        model, tries = self.model, self._tries
        delay_s = self._wait(problem)
        self._spread = _draw_spread()
        if delay_s is not None:
            return Failure({**facts, "model_no": self._number, "tries": self._tries}, delay_s)
        facts |= {"words": problem.words, "place": _describe(model), "asked": tries}
        if problem.retry_after_s:
            facts["wait_until"] = self._clock() + problem.retry_after_s
        self.last_facts = facts
        if pauses(problem.code) and (explained := to_failure(facts, self._run_id)) is not None:
            # Whoever resumes begins anew, with the first model: what was wrong with it may be put right.
            return Failure({**facts, "model_no": 0, "tries": 0}, 0.0, ProviderPause(explained))
        times = "once" if tries == 1 else f"{tries} times"
        with contextlib.suppress(AttributeError):  # not as a note: frameworks add theirs
            error.__holdfast_notice__ = f"It was {_describe(model)}, asked {times}."  # type: ignore[attr-defined]
        return Failure(facts)

    def _wait(self, problem: ProviderError) -> float | None:
        if problem.can_retry and self._tries < self._rules.tries:
            delay_s = self._backoff_s(self._tries) if problem.retry_after_s is None else problem.retry_after_s
            if delay_s <= self._rules.max_wait_s:
                return delay_s
        if problem.can_use_fallback and self._number + 1 < len(self._models):
            self._number, self._tries = self._number + 1, 0
            return 0.0
        return None

    def _backoff_s(self, tries: int) -> float:
        return min(self._rules.backoff_s * 2.0 ** (tries - 1) * self._spread, self._rules.max_wait_s)


def _draw_spread() -> float:
    return random.uniform(0.8, 1.2)  # noqa: S311 - spreads load


def _describe(model: "BaseChatModel") -> str:
    addresses = (getattr(model, name, None) for name in ("openai_api_base", "anthropic_api_url", "base_url"))
    host = urlsplit(next((address for address in addresses if isinstance(address, str)), "")).netloc.rpartition("@")[2]
    return f"{model_name(model)} at {host}" if host else model_name(model)
