"""Which model is asked next, and when: the attempts at one model call, as they stand in the journal.

Each attempt is an intent and an outcome of its own, and reserves money of its own: what a failed one has cost is known
only where the provider surely charges nothing.
"""

import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from holdfast.agents.calls.fingerprints import model_name
from holdfast.agents.calls.provider_errors import ProviderError, classify_error
from holdfast.agents.redaction import SECRETS
from holdfast.config import Config
from holdfast.persona import AgentPersona
from holdfast.runtime.durable import Failure
from holdfast.runtime.failures import describe_error

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


Number = TypeVar("Number", int, float)


def first_set(own: Number | None, setting: Number | None, default: Number) -> Number:
    return next(number for number in (own, setting, default) if number is not None)


@dataclass(frozen=True, slots=True)
class RetryRules:
    """How long a model is tried. A wait longer than `max_wait_s`, also one the provider asks for, is not waited."""

    tries: int = 4
    backoff_s: float = 1.0
    max_wait_s: float = 60.0

    @classmethod
    def of(cls, persona: AgentPersona, config: Config) -> "RetryRules":
        """Read the rules from the persona, else from the settings, else take the defaults."""
        return cls(
            tries=first_set(persona.tries, config.model_tries, cls().tries),
            max_wait_s=first_set(persona.max_wait_s, config.model_max_wait_s, cls().max_wait_s),
        )


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
        clock: Callable[[], float],
    ) -> None:
        self._models = models
        self._rules = rules
        self._clock = clock
        number = recorded.get("model_no")
        self._number = number if isinstance(number, int) and 0 <= number < len(models) else 0
        tries = recorded.get("tries")
        self._tries = tries if isinstance(tries, int) else 0

    @property
    def model(self) -> "BaseChatModel":
        return self._models[self._number]

    def skip_to(self, number: int) -> None:
        """Begin with another model than the first, if there is one."""
        if self._number < number < len(self._models):
            self._number, self._tries = number, 0

    def judge(self, error: Exception) -> Failure:
        """Return what is recorded of a failed attempt; from now on `model` is the one to ask next."""
        SECRETS.scrub_error(error)
        problem = classify_error(error, now_s=self._clock())
        facts = {**describe_error(error), "code": problem.code, "model": model_name(self.model)}
        if problem.status is not None:
            facts["status"] = problem.status
        self._tries += 1
        delay_s = self._wait(problem)
        if delay_s is None:
            times = "once" if self._tries == 1 else f"{self._tries} times"
            with contextlib.suppress(AttributeError):  # not as a note: frameworks add theirs
                error.__holdfast_notice__ = f"It was {_describe(self.model)}, asked {times}."  # type: ignore[attr-defined]
            return Failure(facts)
        return Failure({**facts, "model_no": self._number, "tries": self._tries}, delay_s)

    def _wait(self, problem: ProviderError) -> float | None:
        if problem.can_retry and self._tries < self._rules.tries:
            delay_s = self._backoff_s() if problem.retry_after_s is None else problem.retry_after_s
            if delay_s <= self._rules.max_wait_s:
                return delay_s
        if problem.can_use_fallback and self._number + 1 < len(self._models):
            self._number, self._tries = self._number + 1, 0
            return 0.0
        return None

    def _backoff_s(self) -> float:
        longest = self._rules.backoff_s * 2.0 ** (self._tries - 1)
        return min(longest * random.uniform(0.8, 1.2), self._rules.max_wait_s)  # noqa: S311 - spreads load


def _describe(model: "BaseChatModel") -> str:
    addresses = (getattr(model, name, None) for name in ("openai_api_base", "anthropic_api_url", "base_url"))
    host = urlsplit(next((address for address in addresses if isinstance(address, str)), "")).netloc.rpartition("@")[2]
    return f"{model_name(model)} at {host}" if host else model_name(model)
