"""What a JSON Schema found wrong, in words that an agent or a person can act on."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from jsonschema.exceptions import ValidationError, best_match

# Long enough to recognise a value, short enough that ten findings fit on a screen.
MAX_VALUE_CHARS = 80


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: where (a JSON path, `$` is the whole), what, and by which rule of the schema."""

    path: str
    message: str
    rule: str

    def __str__(self) -> str:
        return f"{self.path} {self.message}"

    def to_dict(self) -> dict[str, str]:
        return {"path": self.path, "message": self.message, "rule": self.rule}


def to_findings(errors: Iterable[ValidationError]) -> list[Finding]:
    """Turn each error into one finding, in the order of their places in the document."""
    findings = {Finding(error.json_path, _message(error), str(error.validator)) for error in _flatten(errors)}
    return sorted(findings, key=lambda finding: (finding.path, finding.rule, finding.message))


def _flatten(errors: Iterable[ValidationError]) -> Iterator[ValidationError]:
    """Replace "none of the alternatives fits" by what is wrong with the alternative that fits best."""
    for error in errors:
        closest = best_match([error])
        yield closest if isinstance(closest, ValidationError) else error


def _message(error: ValidationError) -> str:
    say = _SENTENCES.get(str(error.validator))
    return say(error.validator_value, error.instance, error) if say else _shorten(error.message)


def _shorten(text: str) -> str:
    return text if len(text) <= 3 * MAX_VALUE_CHARS else f"{text[: 3 * MAX_VALUE_CHARS]}…"


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}…"


def _kind(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), type(value).__name__)


def _missing(required: list[str], instance: dict[str, Any], error: ValidationError) -> str:
    # jsonschema reports each missing field on its own and names it only in its sentence.
    missing = [name for name in required if name not in instance]
    named = next((name for name in missing if error.message.startswith(repr(name))), missing[0] if missing else "?")
    return f"lacks the field {named!r}"


def _unknown(_: object, instance: dict[str, Any], error: ValidationError) -> str:
    properties = error.schema.get("properties", {}) if isinstance(error.schema, dict) else {}
    unknown = ", ".join(repr(name) for name in instance if name not in properties)
    return f"has fields that are not allowed: {unknown}; allowed are {', '.join(sorted(properties)) or 'none'}"


_SENTENCES: dict[str, Callable[[Any, Any, ValidationError], str]] = {
    "required": _missing,
    "additionalProperties": _unknown,
    "type": lambda kind, value, _: (
        f"is {_kind(value)}, should be {kind if isinstance(kind, str) else ' or '.join(kind)}"
    ),
    "enum": lambda allowed, value, _: f"is {_show(value)}, should be one of {', '.join(map(repr, allowed))}",
    "const": lambda expected, value, _: f"is {_show(value)}, should be {expected!r}",
    "minLength": lambda least, value, _: f"has {len(value)} characters, should have at least {least}",
    "maxLength": lambda most, value, _: f"has {len(value)} characters, should have at most {most}",
    "minItems": lambda least, value, _: f"has {len(value)} items, should have at least {least}",
    "maxItems": lambda most, value, _: f"has {len(value)} items, should have at most {most}",
    "uniqueItems": lambda _unique, _value, _error: "has an item more than once",
    "minimum": lambda least, value, _: f"is {value}, should be at least {least}",
    "maximum": lambda most, value, _: f"is {value}, should be at most {most}",
    "pattern": lambda pattern, value, _: f"is {_show(value)}, should match {pattern}",
    "format": lambda name, value, _: f"is {_show(value)}, should be a {name}",
}
