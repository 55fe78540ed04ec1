"""An instance of a JSON Schema (2020-12): small, plausible, and the same each time.

Every choice is tried and checked with a real validator, so a keyword that is not understood here costs plausibility
first and validity last. What no simple value satisfies gets the best that was found.
"""

import json
import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from holdfast.agents.simulated.schema_phrases import Facts, count_items, make_phrase
from holdfast.agents.simulated.schema_text import of_format, of_pattern
from holdfast.artifact_schema import FORMATS
from holdfast.definitions.patterns import matches
from holdfast.definitions.schema_validator import BoundedValidator, TooMuchWork, Work, find_errors, without_dialect

_VARIANT_WORK = 20
_LARGER = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains"})
_SMALLER = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains"})
_NOT_JOINED = frozenset({"pattern", "format", "not", "multipleOf", "if", "then", "else", "const"})
IMPOSSIBLE: dict[str, Any] = {"$impossible": True}


def merge(first: Any, second: Any) -> dict[str, Any]:
    """Merge two schemas into what both demand. Where one keyword cannot say it, the first stays: every result is
    checked anyway."""
    if first is False or second is False:
        return IMPOSSIBLE
    merged = dict(first) if isinstance(first, dict) else {}
    for key, value in (second if isinstance(second, dict) else {}).items():
        if key not in merged or merged[key] == value:
            merged[key] = value
        elif key in _LARGER or key in _SMALLER:
            merged[key] = max(merged[key], value) if key in _LARGER else min(merged[key], value)
        else:
            _join(merged, key, value)
    return merged


def _join(merged: dict[str, Any], key: str, value: Any) -> None:
    before = merged[key]
    if key == "required":
        merged[key] = [*before, *(name for name in value if name not in before)]
    elif key in ("properties", "patternProperties", "$defs", "dependentSchemas"):
        merged[key] = {**before, **{name: _both(before.get(name), part) for name, part in value.items()}}
    elif key in ("items", "additionalProperties", "propertyNames", "contains"):
        merged[key] = _both(before, value)
    elif key == "type":
        merged[key] = _common_types(before, value)
    elif key == "enum":
        merged[key] = [item for item in before if item in value]
    elif key in ("allOf", "prefixItems"):
        merged[key] = [*before, *value]
    elif key in ("oneOf", "anyOf"):
        merged[key] = [merge(one, other) for one in before for other in value]
    elif key == "$ref":
        merged["allOf"] = [*merged.get("allOf", ()), {key: value}]
    elif key not in _NOT_JOINED:
        merged[key] = value  # titles, descriptions and the like


def _both(before: Any, value: Any) -> Any:
    return value if before is None else before if before == value else {"allOf": [before, value]}


def _common_types(before: Any, value: Any) -> list[str]:
    firsts = [before] if isinstance(before, str) else list(before)
    seconds = [value] if isinstance(value, str) else list(value)
    common = [kind for kind in firsts if kind in seconds]
    if "integer" in firsts + seconds and "number" in firsts + seconds and "integer" not in common:
        common.append("integer")
    return common or firsts


_DEEP = 3  # from here on only what is required
_TOO_DEEP = 14  # a schema that requires itself
_MAX_ITEMS = 200
_KEYS_OF_TYPE = {
    "object": ("properties", "required", "additionalProperties", "patternProperties", "minProperties"),
    "array": ("items", "prefixItems", "minItems", "uniqueItems", "contains"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
_TYPE_ORDER = ("string", "object", "array", "integer", "number", "boolean", "null")
# What an honest, untroubled agent would say; anything else takes the first value of its list.
_PREFERRED = ("approve", "fixed", "met", "not_run", "note", "minor", "low", "completed", "passed", "none")


__all__ = ["CannotSample", "Facts", "sample"]


class CannotSample(Exception):
    """No value satisfies this schema, as far as can be seen."""


def sample(schema: Any, facts: Facts | None = None, *, schemas: Mapping[str, Any] | None = None) -> Any:
    """Make an instance of `schema`; `schemas` are other documents it refers to, by the id it uses for them.

    Raises `CannotSample` if the schema, or a part it requires, allows nothing.
    """
    plain = without_dialect(schema)
    try:
        return _Sampler(plain, facts or Facts(), schemas or {}).make(plain, "", 0, 0)
    except RecursionError:
        raise CannotSample("The schema refers to itself without end.") from None


class _Sampler:
    def __init__(self, schema: Any, facts: Facts, schemas: Mapping[str, Any]) -> None:
        documents = [
            (name, DRAFT202012.create_resource(without_dialect(document))) for name, document in schemas.items()
        ]
        registry: Registry[Any] = Registry().with_resources(documents)
        self._validator = BoundedValidator(schema, registry=registry, format_checker=FORMATS)
        self._resolver = registry.resolver_with_root(DRAFT202012.create_resource(schema))
        self._facts = facts
        self._work = Work()  # for all of it: choices within choices double at each level

    def make(self, schema: Any, name: str, depth: int, index: int) -> Any:
        """Make a value for the place `name`; another `index` gives another value where there are several."""
        if depth > _TOO_DEEP:
            raise CannotSample(f"The schema of {name!r} requires itself.")
        best: list[Any] = []
        for variant in self._variants(schema, depth):
            for is_full in (depth < _DEEP, False):
                try:
                    value = self._build(variant, name, depth, index, is_full=is_full)
                except CannotSample:
                    continue
                if self._is_valid(schema, value):
                    return value
                best.append(value)
        if not best:
            raise CannotSample(f"Nothing satisfies the schema of {name!r}.")
        return best[0]

    def _is_valid(self, schema: Any, value: Any) -> bool:
        try:
            return not find_errors(self._validator.evolve(schema=schema), value, self._work)
        except TooMuchWork:
            raise CannotSample("The schema takes too much work to make a value for it.") from None

    def _variants(self, schema: Any, depth: int) -> Iterator[dict[str, Any]]:
        """Yield the schema without references and choices, once for each way to choose."""
        try:
            self._work.spend(_VARIANT_WORK)
        except TooMuchWork:
            raise CannotSample("The schema has too many choices.") from None
        if not isinstance(schema, dict):
            if schema is not False:
                yield {}
            return
        schema = self._resolve(schema, depth)
        for choice in ("oneOf", "anyOf"):
            if choice in schema:
                rest = {key: value for key, value in schema.items() if key != choice}
                for branch in schema[choice]:
                    yield from self._variants(merge(rest, branch), depth + 1)
                return
        if "if" in schema:
            rest = {key: value for key, value in schema.items() if key not in ("if", "then", "else")}
            yield from self._variants(merge(rest, schema.get("else", {})), depth + 1)
            yield from self._variants(merge(merge(rest, schema["if"]), schema.get("then", {})), depth + 1)
            return
        yield schema

    def _resolve(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        for _ in range(_TOO_DEEP):
            parts = list(schema.get("allOf", ()))
            if "$ref" in schema:
                parts.append(self._look_up(schema["$ref"]))
            if not parts:
                break
            schema = {key: value for key, value in schema.items() if key not in ("allOf", "$ref")}
            for part in parts:
                schema = merge(schema, part)
        return schema

    def _look_up(self, reference: str) -> Any:
        try:
            return self._resolver.lookup(reference).contents
        except Unresolvable:
            return {}

    # -- one value ----------------------------------------------------------------------------------------------------

    def _build(self, schema: dict[str, Any], name: str, depth: int, index: int, *, is_full: bool) -> Any:
        if "$impossible" in schema:
            raise CannotSample(f"Nothing satisfies the schema of {name!r}.")
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._choose(schema, index)
        kind = _kind(schema)
        if kind == "object":
            return self._object(schema, depth, is_full=is_full)
        if kind == "array":
            return self._array(schema, name, depth, is_full=is_full)
        if kind == "string":
            return self._string(schema, name, index)
        if kind in ("integer", "number"):
            return _number(schema, index, is_integer=kind == "integer")
        return (index % 2 == 0) if kind == "boolean" else None

    def _choose(self, schema: dict[str, Any], index: int) -> Any:
        fitting = [value for value in schema["enum"] if self._is_valid(schema, value)]
        if not fitting:
            raise CannotSample("No value of the list fits the rest of the schema.")
        preferred = [value for word in _PREFERRED for value in fitting if value == word]
        ordered = preferred + [value for value in fitting if value not in preferred]
        return ordered[index % len(ordered)]

    def _object(self, schema: dict[str, Any], depth: int, *, is_full: bool) -> dict[str, Any]:
        properties = schema.get("properties", {})
        names = _required_names(schema)
        if is_full:
            names += [name for name in properties if name not in names]
        made: dict[str, Any] = {}
        for name in names:
            try:
                made[name] = self.make(self._schema_of_property(schema, name), name, depth + 1, 0)
            except CannotSample:
                if name in schema.get("required", ()):
                    raise
        for index in range(_MAX_ITEMS):
            if len(made) >= schema.get("minProperties", 0):
                break
            name = self._another_name(schema, index)
            made.setdefault(name, self.make(self._schema_of_property(schema, name), name, depth + 1, index))
        return made

    def _another_name(self, schema: dict[str, Any], index: int) -> str:
        patterns = list(schema.get("patternProperties", {}))
        if patterns and schema.get("additionalProperties") is False:
            return of_pattern(patterns[0], 1, None, index) or f"item{index + 1}"
        if "propertyNames" in schema:
            return str(self.make(merge({"type": "string"}, schema["propertyNames"]), "name", _DEEP, index))
        return f"item{index + 1}"

    def _schema_of_property(self, schema: dict[str, Any], name: str) -> Any:
        properties = schema.get("properties", {})
        matching = [part for pattern, part in schema.get("patternProperties", {}).items() if matches(pattern, name)]
        if name in properties:
            matching.insert(0, properties[name])
        if not matching:
            return schema.get("additionalProperties", schema.get("unevaluatedProperties", True))
        return matching[0] if len(matching) == 1 else {"allOf": matching}

    def _array(self, schema: dict[str, Any], name: str, depth: int, *, is_full: bool) -> list[Any]:
        first = schema.get("prefixItems", [])
        items = schema.get("items", True)
        least = max(schema.get("minItems", 0), len(first) if is_full else 0)
        liked = count_items(self._facts, name) if is_full and items is not False else 0
        count = min(max(least, liked), schema.get("maxItems", _MAX_ITEMS))
        made: list[Any] = []
        singular = name[:-1] if name.endswith("s") else name
        if "contains" in schema:
            count = max(count, schema.get("minContains", 1))
        for index in range(_MAX_ITEMS + len(first)):
            if len(made) >= count:
                break
            is_inside = len(made) < schema.get("minContains", 1)
            part = first[len(made)] if len(made) < len(first) else items
            if "contains" in schema and is_inside:
                part = {"allOf": [part, schema["contains"]]}
            value = self.make(part, singular, depth + 1, index)
            if not (schema.get("uniqueItems") and _is_in(value, made)):
                made.append(value)
        return made

    def _string(self, schema: dict[str, Any], name: str, index: int) -> str:
        least, most = schema.get("minLength", 0), schema.get("maxLength")
        candidates = [self._fact(name), _fit(make_phrase(self._facts, name, index), least, most, index)]
        if "format" in schema:
            candidates.insert(1, of_format(schema["format"], index))
        if "pattern" in schema:
            candidates.insert(1, of_pattern(schema["pattern"], least, most, index))
        texts = [text for text in candidates if text is not None]
        bare = {**schema, "type": "string"}
        return next((text for text in texts if self._is_valid(bare, text)), texts[-1])

    def _fact(self, name: str) -> str | None:
        plain = name.replace("_", "").lower()
        return {"runid": self._facts.run_id or None, "phasekey": self._facts.phase_key or None}.get(plain)


def _kind(schema: Mapping[str, Any]) -> str:
    kinds = schema.get("type", ())
    allowed = [kinds] if isinstance(kinds, str) else list(kinds)
    if len(allowed) != 1:
        likely = [kind for kind, keys in _KEYS_OF_TYPE.items() if any(key in schema for key in keys)]
        allowed = [kind for kind in likely if not allowed or kind in allowed] or allowed or ["string"]
    return min(allowed, key=_TYPE_ORDER.index)


def _required_names(schema: Mapping[str, Any]) -> list[str]:
    names = list(dict.fromkeys(schema.get("required", ())))
    for name in names:  # grows while it is read: what is required may require more
        names += [other for other in schema.get("dependentRequired", {}).get(name, ()) if other not in names]
    return names


def _number(schema: Mapping[str, Any], index: int, *, is_integer: bool) -> int | float:
    low = _bound(schema, "minimum", "exclusiveMinimum", max)
    high = _bound(schema, "maximum", "exclusiveMaximum", min)
    step = Fraction(str(schema["multipleOf"])) if "multipleOf" in schema else Fraction(1)
    if is_integer:
        step = Fraction(step.numerator)
    start = low if low is not None else high if high is not None and high < 1 else Fraction(1)
    first = math.ceil(start / step) if start is low else math.floor(start / step)
    if low is not None and first * step == schema.get("exclusiveMinimum"):
        first += 1
    if start is high and first * step == schema.get("exclusiveMaximum"):
        first -= 1
    value = (first + (-index if start is high else index)) * step
    is_over = high is not None and (value > high or value == schema.get("exclusiveMaximum"))
    if is_over and low is not None and high is not None and not is_integer and "multipleOf" not in schema:
        value = low + (high - low) / (index + 2)
    elif is_over and high is not None:
        last = math.floor(high / step)
        last -= last * step == schema.get("exclusiveMaximum")
        # The next one down, or around again where there are only so many between the bounds.
        value = (last - index if low is None else first + index % max(last - first + 1, 1)) * step
    return int(value) if value.denominator == 1 else float(value)


def _bound(schema: Mapping[str, Any], inclusive: str, exclusive: str, stricter: Any) -> Fraction | None:
    bounds = [Fraction(str(schema[key])) for key in (inclusive, exclusive) if key in schema]
    return stricter(bounds) if bounds else None


def _fit(text: str, least: int, most: int | None, index: int) -> str:
    while len(text) < least:
        text += " " + text
    if most is not None and len(text) > most:
        mark = str(index) if index else ""
        text = text[: max(0, most - len(mark))] + mark[:most]
    return text


def _is_in(value: Any, made: list[Any]) -> bool:
    # As JSON Schema compares: 1 and 1.0 are one value, 1 and true are two.
    return any(_canonical(value) == _canonical(other) for other in made)


def _canonical(value: Any) -> str:
    def plain(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: plain(item) for key, item in part.items()}
        if isinstance(part, list):
            return [plain(item) for item in part]
        return int(part) if isinstance(part, float) and part.is_integer() else part

    return json.dumps(plain(value), sort_keys=True)
