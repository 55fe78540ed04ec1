"""What is the matter with a model that did not answer, whichever client says it: try again, ask another, or give up."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from langchain_core.exceptions import (
    ContextOverflowError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelInvalidRequestError,
    ModelNotFoundError,
    ModelPermissionDeniedError,
    ModelRateLimitError,
    ModelTimeoutError,
)

from holdfast import errors
from holdfast.agents.redaction import SECRETS
from holdfast.enums import PauseReason
from holdfast.runtime.step import Suspended

# Another try may help; only another model may help; nothing but another request helps.
_TRY_AGAIN = frozenset(
    {"rate_limited", "overloaded", "server_error", "timed_out", "connection_lost", "cut_short", "malformed"}
)
_ASK_ANOTHER = frozenset({"key_refused", "access_denied", "model_not_found", "quota_exhausted"})
_NEVER_CHARGED = frozenset({"rate_limited", "overloaded", "too_long", "invalid_request", *_ASK_ANOTHER})
_TOO_MANY, _OVERLOADED = 429, (503, 529)
_NO_CREDIT = re.compile(
    r"insufficient[_ ](?:quota|credit|balance|funds)|credit balance is too low|exceeded your current quota"
    r"|out of credits?|requires more credits",
    re.IGNORECASE,
)
_MAX_WORDS_CHARS = 500


@dataclass(frozen=True, slots=True)
class _Kind:
    """What an attempt's code means for a person, once nothing is left to try."""

    error_class: type[errors.ModelCallFailed]
    sentence: str
    pauses: bool = True
    """Time or a person can put it right, and the same call is then made again."""


_UNAVAILABLE = _Kind(errors.ProviderUnavailable, "{model} does not answer")
_INVALID = _Kind(errors.ProviderAnswerInvalid, "{model} gave no whole answer", pauses=False)
_KINDS: Mapping[str, _Kind] = {
    "key_refused": _Kind(errors.ProviderKeyRefused, "The key for {model} is not accepted"),
    "access_denied": _Kind(errors.ProviderAccessDenied, "The key for {model} has no access"),
    "model_not_found": _Kind(errors.ProviderModelNotFound, "{model} was not found"),
    "quota_exhausted": _Kind(errors.ProviderCreditExhausted, "The credit for {model} is used up"),
    "rate_limited": _Kind(errors.ProviderRateLimited, "{model} takes no more calls for now"),
    "overloaded": _UNAVAILABLE,
    "server_error": _UNAVAILABLE,
    "timed_out": _UNAVAILABLE,
    "connection_lost": _UNAVAILABLE,
    "cut_short": _INVALID,
    "malformed": _INVALID,
    "invalid_request": _Kind(errors.ProviderRequestRefused, "{model} refuses the request", pauses=False),
}


class ProviderPause(Suspended):
    """A provider does not answer, and the run waits until that is put right; `error` says what it is."""

    reason = PauseReason.PROVIDER

    def __init__(self, error: errors.ModelCallFailed) -> None:
        super().__init__(error.message)
        self.error: errors.ModelCallFailed = error


class CutShort(Exception):
    """A model's answer ended in the middle."""


class Malformed(Exception):
    """A model's answer cannot be understood."""


@dataclass(frozen=True, slots=True)
class ProviderError:
    """A failed model call, as far as it matters for what to do next."""

    code: str
    status: int | None = None
    retry_after_s: float | None = None
    words: str = ""
    """What the provider says, as it says it."""

    @property
    def can_retry(self) -> bool:
        return self.code in _TRY_AGAIN

    @property
    def can_use_fallback(self) -> bool:
        return self.code in _TRY_AGAIN or self.code in _ASK_ANOTHER

    @property
    def is_free(self) -> bool:
        """Whether the provider surely charges nothing for it."""
        return self.code in _NEVER_CHARGED


def classify_error(error: BaseException, *, now_s: float) -> ProviderError:
    """Find out what is the matter with a model call that raised this."""
    status = _status_of(error)
    return ProviderError(_code_of(error, status), status, _retry_after(error, now_s), _words_of(error))


def pauses(code: str) -> bool:
    """Return whether a run waits after a last attempt with this code, instead of failing."""
    return code in _KINDS and _KINDS[code].pauses


def to_failure(facts: Mapping[str, Any], run_id: str) -> errors.ModelCallFailed | None:
    """Make the error that people see from what is recorded of a last attempt; `None` where it is no provider's."""
    kind = _KINDS.get(str(facts.get("code")))
    if kind is None:
        return None
    tries = facts.get("asked", 1)
    words = str(facts.get("words") or "")
    sentence = kind.sentence.format(model=facts.get("place") or facts.get("model") or "The model")
    status = f" (HTTP {facts['status']})" if facts.get("status") else ""
    often = f" It was asked {tries} times." if isinstance(tries, int) and tries > 1 else ""
    message = f"{sentence}{status}{f': {words}' if words else ''}".rstrip(".") + f".{often}"
    hint = kind.error_class.default_hint
    if kind.pauses:
        hint = f"{_wait_hint(facts) or hint}, then go on: holdfast resume {run_id[:8]}"
    return kind.error_class(message, hint=hint, words=words, status=facts.get("status"), model=facts.get("model"))


def to_overflow(error: BaseException, model: Any) -> errors.ProviderContextExceeded:
    """Make the error that people see of a request that stays too long, with what the provider said to it."""
    name = getattr(model, "model_name", None) or getattr(model, "model", None)
    first = error
    while first.__cause__ is not None:
        first = first.__cause__
    words = "" if first is error else _words_of(first)
    message = f"What {name or 'the model'} is sent is too long for it{f': {words}' if words else ''}".rstrip(".")
    return errors.ProviderContextExceeded(f"{message}.", words=words)


def _wait_hint(facts: Mapping[str, Any]) -> str:
    until = facts.get("wait_until")
    if not isinstance(until, int | float):
        return ""
    return f"The provider asks to wait until {datetime.fromtimestamp(until, UTC):%Y-%m-%d %H:%M:%S} UTC. Wait so long"


def _words_of(error: BaseException) -> str:
    """Find what the provider said: in the body that a client kept, else in the error's own text."""
    words = _find_words(getattr(error, "body", None)) or _find_words(getattr(error, "error", None))
    if not words:
        response = getattr(error, "response", None)
        try:
            words = _find_words(response.json()) if response is not None else ""
        except Exception:  # it is no JSON, or was never read
            words = ""
    if not words and _status_of(error) is None:
        words = _own_text(error)  # with a status, that is the client's wording of it
    text = " ".join(words.split())
    return SECRETS.scrub_text(text)[:_MAX_WORDS_CHARS]


def _own_text(error: BaseException) -> str:
    text = getattr(error, "message", None)
    return text if isinstance(text, str) and text else str(error)


def _find_words(body: Any) -> str:
    """Find the message in a body of any provider's form."""
    if isinstance(body, str):
        return "" if body.lstrip().startswith("<") else body
    if not isinstance(body, Mapping):
        return ""
    metadata = body.get("metadata")  # where a router puts what the provider behind it said
    raw = metadata.get("raw") if isinstance(metadata, Mapping) else None
    found = next((words for name in ("message", "detail", "error") if (words := _find_words(body.get(name)))), "")
    return f"{found}: {raw}" if found and isinstance(raw, str) and raw not in found else found


def _code_of(error: BaseException, status: int | None) -> str:
    if isinstance(error, ContextOverflowError):
        return "too_long"
    if isinstance(error, CutShort):
        return "cut_short"
    if isinstance(error, Malformed | json.JSONDecodeError):
        return "malformed"
    if status is not None:
        return _code_of_status(error, status)
    for error_class, code in _BY_CLASS:
        if isinstance(error, error_class):
            return code
    names = {base.__name__ for base in type(error).__mro__}
    if "TimeoutException" in names:
        return "timed_out"
    if names & {"TransportError", "APIConnectionError"}:
        return "connection_lost"
    # An error told in the middle of a stream has no status.
    return "server_error" if "APIError" in names else "failed"


def _code_of_status(error: BaseException, status: int) -> str:
    if status == 402 or (status in (400, 403, _TOO_MANY) and _has_no_credit(error)):
        return "quota_exhausted"
    if status == _TOO_MANY:
        return "rate_limited"
    if status in _OVERLOADED:
        return "overloaded"
    if status in (401, 403):
        return "key_refused" if status == 401 else "access_denied"
    if status == 404:
        return "model_not_found"
    if status in (408, 409, 425):
        return "timed_out"
    return "server_error" if status >= 500 else "invalid_request"


def _has_no_credit(error: BaseException) -> bool:
    """Tell whether the credit is used up, which some providers say with a status that means something else."""
    return getattr(error, "code", None) == "insufficient_quota" or bool(_NO_CREDIT.search(_words_of(error)))


_BY_CLASS: tuple[tuple[type[BaseException], str], ...] = (
    (ModelRateLimitError, "rate_limited"),
    (ModelAuthenticationError, "key_refused"),
    (ModelPermissionDeniedError, "access_denied"),
    (ModelNotFoundError, "model_not_found"),
    (ModelInvalidRequestError, "invalid_request"),
    (ModelTimeoutError, "timed_out"),
    (ModelConnectionError, "connection_lost"),
    (TimeoutError, "timed_out"),
    (ConnectionError, "connection_lost"),
)


def _status_of(error: BaseException) -> int | None:
    status = getattr(error, "status_code", None)
    if not isinstance(status, int):
        status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) and status >= 400 else None


def _retry_after(error: BaseException, now_s: float) -> float | None:
    headers: Any = getattr(getattr(error, "response", None), "headers", None)
    if not isinstance(headers, Mapping):
        return None
    header = str(headers.get("retry-after") or "").strip()
    if header.replace(".", "", 1).isdigit():
        return float(header)
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - now_s) if header else None
    except ValueError:
        return None
