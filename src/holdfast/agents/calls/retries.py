"""How long a model is waited for and how often it is tried: the persona's word, else the settings', else ours.

Light: the clients are opened with these before the framework is needed.
"""

from dataclasses import dataclass
from typing import TypeVar

from holdfast.concurrency import Deadline
from holdfast.config import Config
from holdfast.enums import Backend
from holdfast.persona import AgentPersona

Number = TypeVar("Number", int, float)
# Their servers may say nothing but comments for as long as they like; other protocols have signs of life of their own.
_WATCHED_FOR_SILENCE = (Backend.OPENAI, Backend.OPENAI_COMPATIBLE, Backend.OPENROUTER)


def first_set(own: Number | None, setting: Number | None, default: Number) -> Number:
    return next(number for number in (own, setting, default) if number is not None)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a model may keep us waiting: for a connection, for the next byte, for a whole answer."""

    connect_s: float = 15.0
    idle_s: float = 120.0
    call_s: float = 900.0

    @classmethod
    def of(cls, persona: AgentPersona, config: Config) -> "Timeouts":
        """Read the times from the persona, else from the settings, else take the defaults."""
        return cls(
            idle_s=first_set(persona.idle_timeout_s, config.model_idle_timeout_s, cls().idle_s),
            call_s=first_set(persona.answer_timeout_s, config.model_answer_timeout_s, cls().call_s),
        )


@dataclass(frozen=True, slots=True)
class RetryRules:
    """How long a model is tried. A wait longer than `max_wait_s`, also one the provider asks for, is not waited."""

    tries: int = 4
    backoff_s: float = 1.0
    max_wait_s: float = 60.0
    call_timeout_s: float = Timeouts().call_s
    """For one whole answer; a longer one is given up and tried again."""
    idle_timeout_s: float | None = None
    """For the next piece of an answer, and for the first; `None`: the client alone watches for that."""

    def to_deadline(self) -> Deadline:
        """Return the deadline of an answer that begins now."""
        return Deadline(self.call_timeout_s, self.idle_timeout_s, what="The model")

    @classmethod
    def of(cls, persona: AgentPersona, config: Config) -> "RetryRules":
        """Read the rules from the persona, else from the settings, else take the defaults."""
        timeouts = Timeouts.of(persona, config)
        return cls(
            tries=first_set(persona.tries, config.model_tries, cls().tries),
            max_wait_s=first_set(persona.max_wait_s, config.model_max_wait_s, cls().max_wait_s),
            call_timeout_s=timeouts.call_s,
            idle_timeout_s=timeouts.idle_s if persona.backend in _WATCHED_FOR_SILENCE else None,
        )
