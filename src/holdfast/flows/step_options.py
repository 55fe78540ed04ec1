"""What can be said about a step beside its function: how often, how long, where, and what if it is cut off."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from holdfast.runtime.step import NO_RETRY, OnUnknown, RetryPolicy

ErrorTypes = type[Exception] | tuple[type[Exception], ...]


class StepOptions(TypedDict, total=False):
    """The options of `ctx.step.options(…)`, each of which may be left out."""

    on_unknown: OnUnknown
    """What to do if a process died in the middle of the call."""
    retries: int
    """How often a failed call is made again."""
    backoff_s: float
    """How long the first wait before a retry is; each further one is twice as long."""
    max_backoff_s: float
    """How long a wait is at most."""
    jitter: float
    """Which part of each wait is left to chance, up or down: 0 to 1."""
    timeout: float | None
    """How many seconds one call may take; then it has failed with `StepTimeout`, and is tried again as any failure."""
    retry_on: ErrorTypes
    """Only these failures are tried again."""
    no_retry_on: ErrorTypes
    """These are not, even if `retry_on` names them."""
    thread: bool | None
    """Call a plain function in a thread: always, never, or, by default, where it runs beside other lanes."""


@dataclass(frozen=True, slots=True)
class StepPolicy:
    """The options of a step, checked."""

    on_unknown: OnUnknown = "rerun"
    retry: RetryPolicy = NO_RETRY
    timeout_s: float | None = None
    in_thread: bool | None = None


DEFAULT_POLICY = StepPolicy()


def to_policy(options: Mapping[str, Any]) -> StepPolicy:
    """Check options. Raises `TypeError` or `ValueError` naming the one that is wrong."""
    unknown = sorted(set(options) - StepOptions.__optional_keys__)
    if unknown:
        raise TypeError(
            f"A step has no option {unknown[0]!r}; there are {', '.join(sorted(StepOptions.__optional_keys__))}."
        )
    on_unknown = options.get("on_unknown", "rerun")
    if on_unknown not in ("rerun", "ask", "fail") and not callable(on_unknown):
        raise TypeError(f"on_unknown is 'rerun', 'ask', 'fail' or an async function, not {on_unknown!r}.")
    timeout, thread = options.get("timeout"), options.get("thread")
    if timeout is not None:
        _check_number("timeout", timeout)
    if thread not in (None, True, False):
        raise TypeError(f"thread is True, False or None, not {thread!r}.")
    return StepPolicy(on_unknown, _to_retry(options), timeout, thread)


def _to_retry(options: Mapping[str, Any]) -> RetryPolicy:
    retries = options.get("retries", 0)
    if not isinstance(retries, int) or isinstance(retries, bool) or retries < 0:
        raise TypeError(f"retries is a number of tries, not {retries!r}.")
    numbers: dict[str, Any] = {
        name: options[name] for name in ("backoff_s", "max_backoff_s", "jitter") if name in options
    }
    for name, value in numbers.items():
        _check_number(name, value)
    if numbers.get("jitter", 0) > 1:
        raise ValueError(f"jitter is a part of a wait, from 0 to 1, not {numbers['jitter']!r}.")
    types: dict[str, Any] = {
        name: _to_types(name, options[name]) for name in ("retry_on", "no_retry_on") if name in options
    }
    return RetryPolicy(retries, **numbers, **types) if retries or numbers or types else NO_RETRY


def _check_number(name: str, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
        raise TypeError(f"{name} is a number of at least 0, not {value!r}.")


def _to_types(name: str, value: Any) -> tuple[type[Exception], ...]:
    types = tuple(value) if isinstance(value, Iterable) else (value,)
    for item in types:
        if not isinstance(item, type) or not issubclass(item, Exception):
            raise TypeError(f"{name} takes classes of exceptions, not {item!r}.")
    return types
