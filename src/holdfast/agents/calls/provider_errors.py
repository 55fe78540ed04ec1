"""What is the matter with a model that did not answer, whichever client says it: try again, ask another, or give up."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
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

# Another try may help; only another model may help; nothing but another request helps.
_TRY_AGAIN = frozenset(
    {"rate_limited", "overloaded", "server_error", "timed_out", "connection_lost", "cut_short", "malformed"}
)
_ASK_ANOTHER = frozenset({"key_refused", "model_not_found", "quota_exhausted"})
_NEVER_CHARGED = frozenset({"rate_limited", "overloaded", "too_long", "invalid_request", *_ASK_ANOTHER})
_TOO_MANY, _OVERLOADED = 429, (503, 529)


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
    status = _status_of(error)
    return ProviderError(_code_of(error, status), status, _retry_after(error, now_s))


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
    if status == _TOO_MANY:
        return "quota_exhausted" if getattr(error, "code", None) == "insufficient_quota" else "rate_limited"
    if status in _OVERLOADED:
        return "overloaded"
    if status in (401, 402, 403):
        return "key_refused"
    if status == 404:
        return "model_not_found"
    if status in (408, 409, 425):
        return "timed_out"
    return "server_error" if status >= 500 else "invalid_request"


_BY_CLASS: tuple[tuple[type[BaseException], str], ...] = (
    (ModelRateLimitError, "rate_limited"),
    (ModelAuthenticationError, "key_refused"),
    (ModelPermissionDeniedError, "key_refused"),
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
