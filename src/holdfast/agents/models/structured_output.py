"""How each provider is asked for an answer that is JSON by a schema, in its own way, where it has one.

What a provider then gives is checked like everything else: no promise rests on its word.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain.agents.middleware import ModelRequest

_NAME = "artifact"
# What a strict schema may say, where a provider enforces it. Leaving out a keyword makes the schema wider, not wrong.
_STRICT_KEYWORDS = frozenset(
    {
        *("type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref", "$defs"),
        *("description", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minItems", "maxItems", "pattern", "format"),
    }
)
# What cannot be left out without asking for something else.
_NOT_STRICT = frozenset(
    {
        *("oneOf", "allOf", "not", "if", "then", "else", "patternProperties", "dependentSchemas", "dependentRequired"),
        *("prefixItems", "contains", "propertyNames", "unevaluatedProperties", "unevaluatedItems"),
        *("$dynamicRef", "$anchor"),
    }
)


def ask_for_schema(request: "ModelRequest[Any]", schema: Mapping[str, Any]) -> "ModelRequest[Any] | None":
    """Return the request that asks for an answer by this schema and no tools; `None` if its client has no way to."""
    for model_class in type(request.model).__mro__:
        if (ask := _BY_CLIENT.get(model_class.__name__)) is not None:
            return ask(request, schema)
    return None


def _ask_openai(request: "ModelRequest[Any]", schema: Mapping[str, Any]) -> "ModelRequest[Any]":
    strict = to_strict(schema)
    named = {"name": _NAME, "strict": strict is not None, "schema": dict(schema) if strict is None else strict}
    body = {
        **(getattr(request.model, "extra_body", None) or {}),
        # Not as the client's own argument: with that it demands strict tools, and parses what we check ourselves.
        "response_format": {"type": "json_schema", "json_schema": named},
    }
    # The tools stay, so that what the provider has cached of the conversation still counts.
    choice = "none" if request.tools else None
    return request.override(model_settings={**request.model_settings, "extra_body": body}, tool_choice=choice)


def _ask_anthropic(request: "ModelRequest[Any]", schema: Mapping[str, Any]) -> "ModelRequest[Any]":
    response = {"type": "json_schema", "json_schema": {"name": _NAME, "schema": dict(schema)}}
    # It refuses a conversation with tool calls in it and no tools.
    choice = {"type": "none"} if request.tools else None
    return request.override(model_settings={**request.model_settings, "response_format": response}, tool_choice=choice)


def _ask_ollama(request: "ModelRequest[Any]", schema: Mapping[str, Any]) -> "ModelRequest[Any]":
    # It knows no choice of tools, and with tools its models may answer with a call in the form of the schema.
    return request.override(tools=[], model_settings={**request.model_settings, "format": dict(schema)})


_BY_CLIENT: Mapping[str, Callable[["ModelRequest[Any]", Mapping[str, Any]], "ModelRequest[Any]"]] = {
    "ChatOpenAI": _ask_openai,
    "ChatAnthropic": _ask_anthropic,
    "ChatOllama": _ask_ollama,
}


def to_strict(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a schema that a provider can enforce word by word; `None` if this one cannot be brought into that form.

    It needs every object closed and every property required. Where a value may be an open object or something else, the
    strict form asks for the something else.
    """
    if _NOT_STRICT & schema.keys():
        return None
    strict: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword not in _STRICT_KEYWORDS:
            continue
        made = _to_strict_value(keyword, value)
        if made is None:
            return None
        strict[keyword] = made
    types = strict.get("type")
    if isinstance(types, list) and "object" in types and "properties" not in strict and len(types) > 1:
        types = [name for name in types if name != "object"]
        strict["type"] = types[0] if len(types) == 1 else types
    if not strict.keys() & {"type", "enum", "const", "anyOf", "$ref"} or not _is_closed(strict):
        return None
    return strict


def _to_strict_value(keyword: str, value: Any) -> Any:
    if keyword in ("properties", "$defs"):
        made = {name: to_strict(each) if isinstance(each, dict) else None for name, each in value.items()}
        return None if None in made.values() else made
    if keyword == "items":
        return to_strict(value) if isinstance(value, dict) else None
    if keyword == "anyOf":
        choices = [to_strict(each) if isinstance(each, dict) else None for each in value]
        return None if None in choices else choices
    return value


def _is_closed(schema: Mapping[str, Any]) -> bool:
    """Tell whether a schema names all that an object may have and must have, if it allows objects at all."""
    types = schema.get("type")
    if types != "object" and not (isinstance(types, list) and "object" in types):
        return True
    names = set(schema.get("properties", {}))
    return schema.get("additionalProperties") is False and names == set(schema.get("required", ()))
