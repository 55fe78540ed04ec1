"""JSON data as people read it: a field a line, lists as bullets, in the manner of YAML. Pure.

Rule: it is for reading, not for parsing; whoever needs it exact takes the JSON. Control characters are the caller's.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_INDENT = "  "


def describe_values(value: Any) -> list[str]:
    """Return data as lines: `name: value`, the items of a list below it behind `- `, longer texts indented."""
    return list(_to_lines(value))


def describe_json(text: str) -> str:
    """Return a JSON document as `describe_values` writes it; what is no object or list stays as it is."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return "\n".join(describe_values(value)) if value and isinstance(value, dict | list) else text


def _to_lines(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _to_field(f"{_to_name(str(name))}:", inner)
    elif _is_list(value) and value:
        for item in value:
            yield from _to_item(item)
    else:
        yield from _to_text(value).splitlines() or [""]


def _to_name(name: str) -> str:
    """Return the name of a field; quoted where it could be taken for a line, or a field, of its own."""
    is_plain = name.isprintable() and name.strip() == name != "" and ":" not in name and name[0] not in '-"'
    return name if is_plain else json.dumps(name, ensure_ascii=not name.isprintable())


def _to_field(name: str, value: Any) -> Iterator[str]:
    lines = list(_to_lines(value))
    is_nested = isinstance(value, Mapping) or _is_list(value)
    if len(lines) == 1 and not (is_nested and value):
        yield f"{name} {lines[0]}".rstrip()
        return
    yield name
    yield from (f"{_INDENT}{line}".rstrip() for line in lines)


def _to_item(value: Any) -> Iterator[str]:
    first, *rest = _to_lines(value)
    yield f"- {first}"
    yield from (f"{_INDENT}{line}".rstrip() for line in rest)


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        return value.rstrip("\n")
    if _is_list(value):
        return "[]"
    return json.dumps(value, ensure_ascii=False, default=str)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
