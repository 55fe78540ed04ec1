"""A validator for schemas that a stranger wrote: it gives up after a fixed amount of work, on every machine the same.

A schema of a few lines can ask for more than a life of a machine: references that double at each level, items that
are compared each with each, an error that repeats the whole document at each rule. Work is counted, not time, so that
a check that was recorded comes out the same when it is repeated.
"""

import json
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from holdfast.definitions.patterns import MatchTooLong, PatternRefused, match_work, matches

# About ten seconds of a slow machine. An artifact of some megabytes needs a tenth of it.
MAX_WORK = 2_000_000
MAX_ERRORS = 1_000
_CHARS_PER_WORK = 20
_MATCHES_PER_WORK = 200

HOLDS_DATA = frozenset({"const", "enum", "default", "examples"})

Rule = Callable[[Any, Any, Any, Any], Iterator[ValidationError]]


class TooMuchWork(Exception):
    """Says that a check was given up."""


class Work:
    """What a check may still cost."""

    def __init__(self) -> None:
        self._left = MAX_WORK

    def spend(self, amount: int) -> None:
        """Count this much. Raises `TooMuchWork`."""
        self._left -= amount
        if self._left < 0:
            raise TooMuchWork


_work: ContextVar[Work | None] = ContextVar("schema_work", default=None)


def find_errors(validator: Any, instance: object, work: Work) -> list[ValidationError]:
    """Return the first errors of an instance by a `BoundedValidator`. Raises `TooMuchWork`."""
    token = _work.set(work)
    try:
        # Collected here: a generator that is left half-way would give the variable back to somebody else.
        return list(islice(validator.iter_errors(instance), MAX_ERRORS))
    except MatchTooLong:
        raise TooMuchWork from None
    finally:
        _work.reset(token)


def _spend(amount: int) -> None:
    work = _work.get()
    if work is not None:
        work.spend(amount)


def _counted(rule: Rule, cost: int) -> Rule:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        _spend(cost)
        for error in rule(validator, value, instance, schema) or ():
            _spend(1 + len(error.message) // _CHARS_PER_WORK)
            yield error

    return check


def _is_match(pattern: str, text: str) -> bool:
    try:
        _spend(1 + match_work(pattern, text) // _MATCHES_PER_WORK)
        return matches(pattern, text)
    except PatternRefused:
        return False  # refused when the schema was read; the simulated model is given schemas that nobody has read


def _pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not _is_match(pattern, instance):
        yield ValidationError(f"{instance[:200]!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, subschema in patterns.items():
        for name, value in instance.items():
            if _is_match(pattern, name):
                yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    others = [name for name in instance if name not in properties and not any(_is_match(one, name) for one in patterns)]
    if validator.is_type(value, "object"):
        for name in others:
            yield from validator.descend(instance[name], value, path=name)
    elif not value and others:
        yield ValidationError(f"Additional properties are not allowed: {', '.join(map(repr, others[:20]))}")


def _unique_items(validator: Any, is_unique: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if not is_unique or not validator.is_type(instance, "array"):
        return
    seen = set()
    for item in instance:
        identity = _identity(item)
        if identity in seen:
            yield ValidationError("has an item more than once")
            return
        seen.add(identity)


def _identity(item: Any) -> str:
    """Return a text that two items share if JSON Schema takes them for equal: 1 and 1.0 are, 1 and true are not."""
    text = json.dumps(_whole(item), sort_keys=True)
    _spend(1 + len(text) // _CHARS_PER_WORK)
    return text


def _whole(item: Any) -> Any:
    if isinstance(item, float) and item.is_integer():
        return int(item)
    if isinstance(item, list):
        return [_whole(one) for one in item]
    return {name: _whole(value) for name, value in item.items()} if isinstance(item, dict) else item


def _enum(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    _spend(len(allowed))
    yield from Draft202012Validator.VALIDATORS["enum"](validator, allowed, instance, schema) or ()


def _multiple_of(validator: Any, divisor: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    try:
        yield from Draft202012Validator.VALIDATORS["multipleOf"](validator, divisor, instance, schema) or ()
    except (OverflowError, ValueError):  # a number beyond every float, or none at all
        yield ValidationError(f"is not a multiple of {divisor}")


def without_dialect(schema: Any) -> Any:
    """Return a copy that names no dialect at any place: the library would leave `BoundedValidator` at each of them."""
    if isinstance(schema, list):
        return [without_dialect(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: value if key in HOLDS_DATA else without_dialect(value)
        for key, value in schema.items()
        if key != "$schema" or not isinstance(value, str)
    }


_OWN: dict[str, Rule] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
    "enum": _enum,
    "multipleOf": _multiple_of,
}

_RULES: dict[str, Any] = dict(Draft202012Validator.VALIDATORS)
_COSTS = {"$ref": 8, "$dynamicRef": 8}

BoundedValidator: Any = extend(  # type: ignore[no-untyped-call]  # the library's types leave it out
    Draft202012Validator,
    {
        name: _counted(_OWN.get(name) or rule, _COSTS.get(name, 1))
        for name, rule in Draft202012Validator.VALIDATORS.items()
    },
)
"""Draft 2020-12 with linear patterns, and with work that counts where `find_errors` is used."""
