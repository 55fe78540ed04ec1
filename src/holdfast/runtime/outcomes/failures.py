"""Failures as data: what is journaled of an exception, and how a replay raises it again.

Rule: a replay raises an exception of the same class, with the same arguments, attributes, notes, causes and members.
What cannot be rebuilt like that is raised the first time already as a replay will raise it, so that both go one way.
"""

import builtins
import contextlib
import functools
import importlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.errors import HoldfastError, PayloadInvalid, StepFailed
from holdfast.runtime.jsondata import is_exactly_json, to_json

_MAX_ERROR_CHARS = 20_000  # of a failure's text; its arguments and each attribute are kept whole up to the same size
_MAX_DEPTH = 8  # of causes and members of groups
_MAX_MEMBERS = 100
# Where a class is now that older journals name by another path. An entry stays for ever: some journal may hold it.
MOVED_CLASSES: Mapping[str, str] = {
    "holdfast.agents.model_errors.CutShort": "holdfast.agents.calls.provider_errors.CutShort",
    "holdfast.agents.model_errors.Malformed": "holdfast.agents.calls.provider_errors.Malformed",
    "holdfast.agents.schema_sample.CannotSample": "holdfast.agents.simulated.schema_sample.CannotSample",
}


# What Python's own exceptions hold neither in `__dict__` nor in their arguments.
_HIDDEN: Mapping[type[BaseException], tuple[str, ...]] = {
    AttributeError: ("name", "obj"),
    ImportError: ("name", "path"),
    ModuleNotFoundError: ("name", "path"),
    NameError: ("name",),
}


def describe_error(error: BaseException) -> dict[str, Any]:
    """Return what is journaled of an exception that no replay raises: its type, its text and its arguments."""
    description: dict[str, Any] = {"type": _full_name(type(error)), "message": _safe_text(error)}
    if isinstance(error, HoldfastError):
        description["code"] = error.code
    args, _ = _plain(list(_arguments(error)))
    if args is not None:
        description["args"] = args
    return description


def describe_whole(error: BaseException) -> dict[str, Any]:
    """Return all that `rebuild_error` needs; `not_recorded` names what could not be recorded, or not exactly."""
    return _describe_with_relatives(error, 0, set())


def _describe_with_relatives(error: BaseException, depth: int, seen: set[int]) -> dict[str, Any]:
    seen.add(id(error))  # each is described once: causes and members can lead in circles
    description = {**describe_error(error), "attributes": {}}
    not_recorded = [] if _plain(list(_arguments(error)))[1] else ["args"]
    for name, value in _attributes(error):
        plain, is_exact = _plain([value])
        if plain is not None:
            description["attributes"][name] = plain[0]
        if not is_exact:
            not_recorded.append(name)
    if isinstance(error, BaseExceptionGroup):
        members = [
            member for member in error.exceptions[:_MAX_MEMBERS] if depth < _MAX_DEPTH and id(member) not in seen
        ]
        description["exceptions"] = [_describe_with_relatives(member, depth + 1, seen) for member in members]
        if len(members) < len(error.exceptions):
            not_recorded.append("exceptions")
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list) and notes:
        plain, is_exact = _plain(notes)
        description["notes"] = plain or []
        if not is_exact:
            not_recorded.append("notes")
    cause = error.__cause__
    if cause is not None:
        if depth < _MAX_DEPTH and id(cause) not in seen:
            description["cause"] = _describe_with_relatives(cause, depth + 1, seen)
        else:
            not_recorded.append("cause")
    if not_recorded:
        description["not_recorded"] = not_recorded
    return description


def _full_name(error_class: type) -> str:
    return f"{error_class.__module__}.{error_class.__qualname__}"


def _safe_text(error: BaseException) -> str:
    try:
        text = error.message if isinstance(error, HoldfastError) else str(error)
    except Exception:
        text = f"a {type(error).__name__} without a text"
    return text[:_MAX_ERROR_CHARS].encode(errors="replace").decode()


def _arguments(error: BaseException) -> tuple[Any, ...]:
    """Return what the class that is Python's own was made with; `OSError` keeps less of it in `args`."""
    if isinstance(error, BaseExceptionGroup):
        return (error.message,)
    with contextlib.suppress(Exception):
        reduced = _builtin_base(type(error)).__reduce__(error)
        if isinstance(reduced, tuple) and isinstance(reduced[1], tuple):
            return reduced[1]
    return error.args


def _attributes(error: BaseException) -> Iterator[tuple[str, Any]]:
    for name, value in getattr(error, "__dict__", {}).items():
        is_ours = name == "message" and isinstance(error, HoldfastError)  # recorded beside them
        if isinstance(name, str) and not (name.startswith("__") and name.endswith("__")) and not is_ours:
            yield name, value
    for name in (*_slots(type(error)), *_HIDDEN.get(_builtin_base(type(error)), ())):
        value = getattr(error, name, None)
        if value is not None:
            yield name, value


def _slots(error_class: type) -> Iterator[str]:
    for owner in error_class.__mro__:
        slots = owner.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                yield f"_{owner.__name__.lstrip('_')}{name}" if name.startswith("__") else name


def _plain(values: list[Any]) -> tuple[list[Any] | None, bool]:
    """Return values as JSON data, `None` if they are none or too large, and whether nothing of them was lost."""
    try:
        text, plain = to_json(values)
    except PayloadInvalid:
        return None, False
    if len(text) > _MAX_ERROR_CHARS:
        return None, False
    return plain, is_exactly_json(values)


# -- back from the record ---------------------------------------------------------------------------------------------


def as_replayed(key: str, error: Exception, description: Mapping[str, Any]) -> Exception:
    """Return the exception that a replay will raise in the place of `error`: itself, if nothing of it is lost."""
    rebuilt = rebuild_error(key, description)
    if describe_whole(rebuilt) == description and "not_recorded" not in description:
        mark_step(error, key)
        return error
    rebuilt.__context__ = error
    with contextlib.suppress(AttributeError):
        rebuilt.__holdfast_original__ = error  # type: ignore[attr-defined]
    return rebuilt.with_traceback(error.__traceback__)


def mark_step(error: Exception, key: str) -> None:
    """Note on an exception whose failure it is, for `failed_steps` to find."""
    with contextlib.suppress(AttributeError):
        error.__holdfast_step__ = key  # type: ignore[attr-defined]


def original_of(error: Exception) -> Exception:
    """Return what a step has raised, of what stood for it inside the flow: outside nothing is replayed."""
    original = getattr(error, "__holdfast_original__", error)
    return original if isinstance(original, Exception) else error


def rebuild_error(key: str, description: Mapping[str, Any]) -> Exception:
    """Make the exception that a recorded failure raised, so that a flow which caught it takes the same way again."""
    error = _rebuild(key, description, 0)
    mark_step(error, key)
    return error


def _rebuild(key: str, description: Mapping[str, Any], depth: int) -> Exception:
    error_class = _find_class(str(description.get("type", "")))
    error = None if error_class is None else _remake(error_class, key, description, depth)
    attributes = description.get("attributes")
    if error is None:
        known: dict[str, Any] = {"attributes": attributes} if isinstance(attributes, dict) and attributes else {}
        message = f"Step {key!r} failed: {description.get('message', '')}"
        error = StepFailed(message, error_type=description.get("type"), key=key, **known)
    elif isinstance(attributes, dict):
        for name, value in attributes.items():
            with contextlib.suppress(AttributeError, TypeError):
                object.__setattr__(error, name, value)
    notes = description.get("notes")
    for note in notes if isinstance(notes, list) else ():
        if isinstance(note, str):
            error.add_note(note)
    cause = description.get("cause")
    if isinstance(cause, dict) and depth < _MAX_DEPTH:
        error.__cause__ = _rebuild(key, cause, depth + 1)
    return error


def _find_class(name: str) -> type[Exception] | None:
    """Find the class of this full name. A module is loaded for it if it is one that Python finds by its name."""
    module_name, _, qualname = MOVED_CLASSES.get(name, name).rpartition(".")
    if "<locals>" in name or not all(part.isidentifier() for part in name.split(".")):
        return None
    while module_name:
        with contextlib.suppress(Exception):
            module = sys.modules.get(module_name) or importlib.import_module(module_name)
            found: Any = functools.reduce(getattr, qualname.split("."), module)
            return found if isinstance(found, type) and issubclass(found, Exception) else None
        module_name, _, outer = module_name.rpartition(".")
        qualname = f"{outer}.{qualname}"
    return None


def _builtin_base(error_class: type[BaseException]) -> type[BaseException]:
    """Return the nearest class of this one's line that is Python's own: its constructor runs no code of anyone's."""
    found: type[BaseException] = next(
        base for base in error_class.__mro__ if getattr(builtins, base.__name__, None) is base
    )
    return found


def _remake(error_class: type[Exception], key: str, description: Mapping[str, Any], depth: int) -> Exception | None:
    """Make an exception without its class's own constructor, which may want other things than are recorded."""
    args = description.get("args")
    arguments: list[Any] = args if isinstance(args, list) else [description.get("message", "")]
    if args is not None and "attributes" not in description:
        with contextlib.suppress(Exception):
            return error_class(*arguments)  # recorded without attributes, which only its constructor can set
    with contextlib.suppress(Exception):
        base = _builtin_base(error_class)
        if issubclass(error_class, BaseExceptionGroup):
            arguments = [*arguments, [_rebuild(key, member, depth + 1) for member in description["exceptions"]]]
        error = base.__new__(error_class, *arguments)
        base.__init__(error, *arguments)
        return _with_message(error, description)
    # Its arguments are not recorded, and it cannot be made of its text alone.
    with contextlib.suppress(Exception):
        error = error_class.__new__(error_class)
        error.args = tuple(arguments)
        str(error)
        return _with_message(error, description)
    return None


def _with_message(error: BaseException, description: Mapping[str, Any]) -> Exception:
    if isinstance(error, HoldfastError):
        HoldfastError.__init__(error, str(description.get("message", "")))
    assert isinstance(error, Exception)
    return error


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
