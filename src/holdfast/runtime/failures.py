"""Failures as data: what is journaled of an exception, and how a replay raises it again."""

import contextlib
import functools
import sys
from collections.abc import Mapping
from typing import Any

from holdfast.errors import HoldfastError, PayloadInvalid, StepFailed
from holdfast.runtime.jsondata import to_json

_MAX_ERROR_CHARS = 20_000  # of a failure's text; its arguments are kept whole up to the same size
# Where a class is now that older journals name by another path. An entry stays for ever: some journal may hold it.
MOVED_CLASSES: Mapping[str, str] = {
    "holdfast.agents.model_errors.CutShort": "holdfast.agents.calls.provider_errors.CutShort",
    "holdfast.agents.model_errors.Malformed": "holdfast.agents.calls.provider_errors.Malformed",
    "holdfast.agents.schema_sample.CannotSample": "holdfast.agents.simulated.schema_sample.CannotSample",
}


def describe_error(error: BaseException) -> dict[str, Any]:
    """Return what is journaled of an exception: its type, its text, and its arguments where they are JSON data."""
    description: dict[str, Any] = {
        "type": f"{type(error).__module__}.{type(error).__qualname__}",
        "message": _safe_text(error),
    }
    if isinstance(error, HoldfastError):
        description["code"] = error.code
    with contextlib.suppress(PayloadInvalid):
        text, args = to_json(list(error.args))
        if len(text) <= _MAX_ERROR_CHARS:
            description["args"] = args
    return description


def _safe_text(error: BaseException) -> str:
    try:
        text = error.message if isinstance(error, HoldfastError) else str(error)
    except Exception:
        text = f"a {type(error).__name__} without a text"
    return text[:_MAX_ERROR_CHARS].encode(errors="replace").decode()


def rebuild_error(key: str, description: Mapping[str, Any]) -> Exception:
    """Make the exception that a recorded failure raised, so that a flow which caught it takes the same way again."""
    error_class = _find_class(str(description.get("type", "")))
    error = None if error_class is None else _remake(error_class, description)
    if error is None:
        error = StepFailed(
            f"Step {key!r} failed: {description.get('message', '')}", error_type=description.get("type"), key=key
        )
    with contextlib.suppress(AttributeError):
        error.__holdfast_step__ = key  # type: ignore[attr-defined]  # as in `_record_failure`
    return error


def _find_class(name: str) -> type[Exception] | None:
    """Find the class of this full name, if its module is loaded: what no code here knows, no code here can catch."""
    module_name, _, qualname = MOVED_CLASSES.get(name, name).rpartition(".")
    while module_name:
        if module_name in sys.modules:
            with contextlib.suppress(AttributeError):
                found: Any = functools.reduce(getattr, qualname.split("."), sys.modules[module_name])
                return found if isinstance(found, type) and issubclass(found, Exception) else None
        module_name, _, outer = module_name.rpartition(".")
        qualname = f"{outer}.{qualname}"
    return None


def _remake(error_class: type[Exception], description: Mapping[str, Any]) -> Exception | None:
    args = description.get("args")
    arguments = args if isinstance(args, list) else [description.get("message", "")]
    if args is not None:
        with contextlib.suppress(Exception):
            return error_class(*arguments)
    # Its constructor wants more than it keeps as arguments. The type is what a flow catches by, so that is kept.
    with contextlib.suppress(Exception):
        error = error_class.__new__(error_class)
        error.args = tuple(arguments)
        if isinstance(error, HoldfastError):
            HoldfastError.__init__(error, str(description.get("message", "")))
        str(error)
        return error
    return None


def failed_steps(error: BaseException) -> list[str]:
    """List the steps whose failure an exception carries, by itself or through its causes: a retry opens them again.

    Behind a step's own failure it does not look: what led there was handled.
    """
    keys: set[str] = set()
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        key = getattr(current, "__holdfast_step__", None)
        if getattr(current, "__holdfast_compensated__", False):
            continue  # what it led to was undone: making the step again would go on from what is no more
        if key is not None:
            keys.add(key)
        elif isinstance(current, BaseExceptionGroup):
            pending += current.exceptions
        else:
            pending.append(current.__cause__ or current.__context__)
    return sorted(keys)
