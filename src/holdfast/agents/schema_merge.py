"""Two JSON Schemas as one that both allow, as far as single keywords can say it."""

from typing import Any

_LARGER = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains"})
_SMALLER = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains"})
_NOT_JOINED = frozenset({"pattern", "format", "not", "multipleOf", "if", "then", "else", "const"})
IMPOSSIBLE: dict[str, Any] = {"$impossible": True}


def merge(first: Any, second: Any) -> dict[str, Any]:
    """What both demand. Of what one keyword cannot say, the first stays: whoever uses the result checks it anyway."""
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
