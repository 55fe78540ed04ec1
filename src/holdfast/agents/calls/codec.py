"""What models and tools return, as JSON data and back without loss.

JSON's own types stand for themselves; everything else is an object with one key that begins with `$`. A type that is
not known here is refused, never guessed: a text that merely looks like the value would be replayed as the value.
"""

import base64
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

from langchain.agents.middleware import ExtendedModelResponse, ModelResponse
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    ToolMessageChunk,
)
from langgraph.types import Command, Overwrite, Send
from pydantic_core import PydanticUndefined

from holdfast.errors import PayloadInvalid
from holdfast.runtime.jsondata import to_json

OPAQUE_TEXT = "done, result not recorded"

_MESSAGES: Mapping[str, type[BaseMessage]] = {
    message_class.__name__: message_class
    for message_class in (
        AIMessage,
        AIMessageChunk,
        ChatMessage,
        FunctionMessage,
        HumanMessage,
        HumanMessageChunk,
        RemoveMessage,
        SystemMessage,
        ToolMessage,
        ToolMessageChunk,
    )
}
# Tag, class and the arguments that make an equal one. What a class holds besides is not for tools to return.
_RECORDS: Mapping[str, tuple[type[Any], tuple[str, ...]]] = {
    "$cmd": (Command, ("graph", "update", "resume", "goto")),
    "$send": (Send, ("node", "arg")),
    "$overwrite": (Overwrite, ("value",)),
    "$mr": (ModelResponse, ("result", "structured_response")),
    "$xmr": (ExtendedModelResponse, ("model_response", "command")),
}
_TAG_OF_RECORD = {record_class: tag for tag, (record_class, _) in _RECORDS.items()}


class _NotRecorded(dict[str, str]):
    """What stands for a tool message's `artifact` that could not be kept."""


def encode(value: Any) -> Any:
    """Return JSON data from which `decode` makes an equal value. Raises `TypeError` for a type that is not known."""
    if value is None or type(value) in (bool, int):
        return value
    encoder = _ENCODERS.get(type(value))
    if encoder is not None:
        return encoder(value)
    if _MESSAGES.get(type(value).__name__) is type(value):
        return {"$msg": [type(value).__name__, _encode_fields(value)]}
    tag = _TAG_OF_RECORD.get(type(value))
    if tag is None:
        raise TypeError(f"{type(value).__module__}.{type(value).__qualname__} cannot be journaled.")
    return {tag: {name: encode(getattr(value, name)) for name in _RECORDS[tag][1]}}


def decode(data: Any) -> Any:
    """Return the value that was encoded; for one that could not be, a message that says so. Raises `ValueError`."""
    if type(data) is list:
        return [decode(item) for item in data]
    if type(data) is not dict:
        return data
    tag = next(iter(data), "")
    if not tag.startswith("$"):
        return {key: decode(item) for key, item in data.items()}
    decoder = _DECODERS.get(tag)
    if decoder is None:
        raise ValueError(f"The journal holds a value with the tag {tag}, which this version does not know.")
    return decoder(data[tag])


def encode_or_opaque(value: Any) -> Any:
    """Encode as `encode` does, with a mark for what has no JSON form: all of it, or a tool message's `artifact`."""
    try:
        return _encode_checked(value)
    except Exception as error:  # a foreign object may raise anything when it is looked at
        if type(value) is ToolMessage and type(value.artifact) is not _NotRecorded and value.artifact is not None:
            mark = _NotRecorded(not_recorded=_type_name(value.artifact))
            return encode_or_opaque(value.model_copy(update={"artifact": mark}))
        return {"$opaque": {"type": _type_name(value), "reason": _reason(error)}}


def is_opaque(data: Any) -> bool:
    return type(data) is dict and "$opaque" in data


def _encode_checked(value: Any) -> Any:
    data = encode(value)
    to_json([[[[[[[[data]]]]]]]])  # an event around it must not be nested too deeply either
    return data


def _reason(error: Exception) -> str:
    if not isinstance(error, TypeError | PayloadInvalid):
        return ""
    text = error.message if isinstance(error, PayloadInvalid) else str(error)
    return text[:200].encode(errors="replace").decode()


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _encode_text(value: str) -> Any:
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:  # half a character, as some models stream it
        return {"$utf16": base64.b64encode(value.encode("utf-16-le", "surrogatepass")).decode()}
    return value


def _encode_float(value: float) -> Any:
    return value if math.isfinite(value) else {"$float": repr(value)}


def _encode_map(value: dict[Any, Any]) -> Any:
    if all(type(key) is str and key.isascii() and not key.startswith("$") for key in value):
        return {key: encode(item) for key, item in value.items()}
    return {"$map": [[encode(key), encode(item)] for key, item in value.items()]}


@functools.cache
def _defaults_of(message_class: type[BaseMessage]) -> tuple[tuple[str, Any], ...]:
    """Return what a new message has in each field; cached, for the framework reads signatures to find it."""
    fields = message_class.model_fields.items()
    return tuple((name, info.get_default(call_default_factory=True, validated_data={})) for name, info in fields)


def _encode_fields(message: BaseMessage) -> Any:
    """Encode the fields of a message, without those that are as a new message would have them."""
    held = message.__dict__
    fields = {name: held[name] for name, default in _defaults_of(type(message)) if held.get(name, default) != default}
    return encode({**fields, **(message.model_extra or {})})


def _decode_message(data: list[Any]) -> BaseMessage:
    name, fields = data
    if name not in _MESSAGES:
        raise ValueError(f"The journal holds a message of type {name}, which this version does not know.")
    message_class, recorded = _MESSAGES[name], decode(fields)
    fresh = {
        field: _copy(default) for field, default in _defaults_of(message_class) if default is not PydanticUndefined
    }
    # Not validated again: validation may drop or complete what the provider gave.
    return message_class.model_construct(set(recorded), **{**fresh, **recorded})


def _copy(default: Any) -> Any:
    return default.copy() if type(default) in (list, dict) else default


def _decode_opaque(_: Any) -> ToolMessage:
    return ToolMessage(content=OPAQUE_TEXT, tool_call_id="")


def _record_decoder(record_class: type[Any]) -> Callable[[Any], Any]:
    return lambda data: record_class(**{name: decode(item) for name, item in data.items()})


_ENCODERS: Mapping[type[Any], Callable[[Any], Any]] = {
    str: _encode_text,
    float: _encode_float,
    bytes: lambda value: {"$bytes": base64.b64encode(value).decode()},
    list: lambda value: [encode(item) for item in value],
    tuple: lambda value: {"$tup": [encode(item) for item in value]},
    dict: _encode_map,
    _NotRecorded: _encode_map,
}
_DECODERS: Mapping[str, Callable[[Any], Any]] = {
    "$utf16": lambda data: base64.b64decode(data).decode("utf-16-le", "surrogatepass"),
    "$float": float,
    "$bytes": base64.b64decode,
    "$tup": lambda data: tuple(decode(item) for item in data),
    "$map": lambda data: {decode(key): decode(item) for key, item in data},
    "$msg": _decode_message,
    "$opaque": _decode_opaque,
    **{tag: _record_decoder(record_class) for tag, (record_class, _) in _RECORDS.items()},
}
