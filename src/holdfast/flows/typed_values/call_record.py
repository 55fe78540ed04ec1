"""The arguments of a flow, as they are recorded when it starts and as whoever recovers it gets them back.

JSON data is recorded as it is. Other values are recorded with the name of their type, those that the codec knows with
their content too; of the rest, a client or a connection, only the type is known and compared.
"""

import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.errors import Nondeterminism, PayloadInvalid
from holdfast.flows.typed_values.declared_types import argument_codecs
from holdfast.flows.typed_values.value_codec import TypeCodec
from holdfast.runtime.jsondata import to_json
from holdfast.runtime.records import check_fingerprint, fingerprint_of

_TYPE, _VALUE = "$type", "$value"
_MAX_CHARS = 100  # of an argument that is shown
_HOMES = {"pathlib._local": "pathlib"}  # Python 3.13 alone says so; a run goes on under any version


def record_call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is recorded of a flow's arguments."""
    return {"args": [_record(arg) for arg in args], "kwargs": {name: _record(arg) for name, arg in kwargs.items()}}


def _record(value: Any) -> Any:
    try:
        data = to_json(value)[1]
        return {_TYPE: "builtins.dict", _VALUE: data} if _is_marked(data) else data
    except PayloadInvalid:
        pass
    module = type(value).__module__
    name = f"{_HOMES.get(module, module)}.{type(value).__qualname__}"
    try:
        return {_TYPE: name, _VALUE: TypeCodec(type(value), name).encode(value, "an argument")[0]}
    except PayloadInvalid:
        return {_TYPE: name}


def check_recorded(call: Mapping[str, Any], flow: str) -> None:
    """Raise `PayloadInvalid` if an argument is known by its type only: nobody could have it later."""
    for name, item in (*enumerate(call["args"], 1), *call["kwargs"].items()):
        if isinstance(item, dict) and set(item) == {_TYPE}:
            raise PayloadInvalid(
                f"Argument {name} of flow {flow!r} is a {item[_TYPE]}, which cannot be recorded.",
                hint="Start a flow with JSON data, dataclasses, dates and the like; make clients in its steps.",
            )


def check_call(run_id: str, created: Mapping[str, Any], call: Mapping[str, Any]) -> None:
    """Raise `Nondeterminism` if a run was started with other arguments than these."""
    recorded = created.get("fingerprint", {})
    try:
        check_fingerprint(f"Run {run_id!r}", recorded, fingerprint_of(**call))
    except Nondeterminism as error:
        # A run that was started before values of other types were recorded has but the types of them.
        if recorded != fingerprint_of(**{name: _types_only(part) for name, part in call.items()}):
            before, now = _to_text(created), _to_text(call)
            raise Nondeterminism(
                f"{error.message.removesuffix('.')}: ({before}) then, ({now}) now.",
                hint="Run it with the arguments of then, or start a new run under another id.",
                **error.facts,
            ) from None


def _to_text(call: Mapping[str, Any]) -> str:
    args, kwargs = call.get("args") or (), call.get("kwargs") or {}
    parts = [_shorten(item) for item in args] + [f"{name}={_shorten(item)}" for name, item in kwargs.items()]
    return ", ".join(parts)


def _shorten(item: Any) -> str:
    text = json.dumps(to_plain_argument(item), ensure_ascii=False)
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}…"


def to_plain_argument(item: Any) -> Any:
    """Return a recorded argument as people see it: without how its type was recorded."""
    if _is_typed(item):
        return item[_VALUE]
    return f"a {item[_TYPE]}" if isinstance(item, dict) and set(item) == {_TYPE} else item


def _types_only(part: Any) -> Any:
    items = part.items() if isinstance(part, dict) else enumerate(part)
    found = {name: {_TYPE: item[_TYPE]} if _is_typed(item) else item for name, item in items}
    return found if isinstance(part, dict) else list(found.values())


def _is_typed(item: Any) -> bool:
    return isinstance(item, dict) and set(item) == {_TYPE, _VALUE}


def _is_marked(item: Any) -> bool:
    """Return true for what looks like a record of ours, be it a user's own data."""
    return isinstance(item, dict) and _TYPE in item and set(item) <= {_TYPE, _VALUE}


def restore_call(flow: Callable[..., Any], created: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments a run was started with, for whoever goes on with it without being told them.

    Raises `Nondeterminism` if one of them was not recorded, or cannot be read as what the flow declares now.
    """
    codecs = argument_codecs(flow)
    names = list(inspect.signature(flow).parameters)[1:]  # without the context
    args = created.get("args", ())
    kwargs = created.get("kwargs", {})
    positional = [_restore(item, names[index] if index < len(names) else "", codecs) for index, item in enumerate(args)]
    return tuple(positional), {name: _restore(item, name, codecs) for name, item in kwargs.items()}


def _restore(item: Any, name: str, codecs: Mapping[str, Any]) -> Any:
    what, codec = f"Argument {name!r}", codecs.get(name)
    if _is_typed(item):
        if not isinstance(codec, TypeCodec):
            codec = TypeCodec(_find_type(item[_TYPE], what), item[_TYPE])
        return codec.decode(item[_VALUE], item[_TYPE], what)
    if isinstance(item, dict) and set(item) == {_TYPE}:
        raise Nondeterminism(
            f"{what} was a {item[_TYPE]}, which is not recorded.",
            hint="Give the run its arguments: run_flow(flow, …, run_id=…); or make it in a step.",
        )
    if isinstance(codec, TypeCodec):
        return codec.decode(item, codec.name, what)  # a tuple, say, which is recorded as a list
    return item


def _find_type(name: str, what: str) -> type:
    module_name, _, type_name = name.rpartition(".")
    found = getattr(sys.modules.get(module_name), type_name, None)
    if not isinstance(found, type):
        raise Nondeterminism(f"{what} was a {name}, which is not there.", hint="Declare its type at the flow.")
    return found
