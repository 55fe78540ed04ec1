"""What a function declares to return or to take, and the codec for it.

Only types that JSON does not bring back by itself need one: `dict`, `list[str]`, a `TypedDict` or `Any` do not, and a
function that declares them is believed without a look.
"""

import collections.abc
import contextlib
import functools
import inspect
import types
import typing
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.flows.typed_values.value_codec import UNDECLARED, Codec, TypeCodec, UnionCodec

_PLAIN = {Any, object, None, type(None), str, int, float, bool, list, dict}
_PLAIN_CONTAINERS = {
    list,
    dict,
    collections.abc.Mapping,
    collections.abc.MutableMapping,
    collections.abc.Sequence,
    collections.abc.MutableSequence,
    collections.abc.Iterable,
    collections.abc.Collection,
}
_AWAITABLES = (collections.abc.Awaitable, collections.abc.Coroutine)
_results: "weakref.WeakKeyDictionary[Any, Codec]" = weakref.WeakKeyDictionary()
_arguments: "weakref.WeakKeyDictionary[Any, Mapping[str, Codec]]" = weakref.WeakKeyDictionary()


def result_codec(fn: Callable[..., Any]) -> Codec:
    """Return the codec for what `fn` returns, by its declaration."""
    if type(fn) is types.FunctionType:
        declared = fn.__annotations__.get("return")
        if declared is None:
            return UNDECLARED
        if isinstance(declared, type):
            return _codec_for_class(declared)  # nothing to look up by name
        target: Any = fn
    else:
        target = _target(fn)
    try:
        return _results[target]
    except (KeyError, TypeError):  # met for the first time, or nothing that can be looked up
        codec = codec_for(_hints(target).get("return", Any))
    with contextlib.suppress(TypeError):
        _results[target] = codec
    return codec


def argument_codecs(fn: Callable[..., Any]) -> Mapping[str, Codec]:
    """Return the codec of each parameter that declares its type."""
    target = _target(fn)
    try:
        return _arguments[target]
    except (KeyError, TypeError):  # as above
        codecs = {name: codec_for(declared) for name, declared in _hints(target).items() if name != "return"}
    with contextlib.suppress(TypeError):
        _arguments[target] = codecs
    return codecs


def _target(fn: Any) -> Any:
    """Return what declares the types of a callable: a function, or a class that is called for an instance of it."""
    while isinstance(fn, functools.partial | types.MethodType):
        fn = fn.func if isinstance(fn, functools.partial) else fn.__func__
    if isinstance(fn, type) or inspect.isroutine(fn):
        return fn
    return getattr(type(fn), "__call__", fn)  # noqa: B004 - looked up for its declaration


def _hints(target: Any) -> Mapping[str, Any]:
    if isinstance(target, type):
        return {"return": target}
    try:
        return typing.get_type_hints(target)
    except Exception:  # it names what is not there at run time: nothing is declared that could be used
        return {}


def codec_for(declared: Any) -> Codec:
    """Return the codec for a declared type."""
    try:
        declared = _resolve(declared)
        if typing.get_origin(declared) in _AWAITABLES:
            declared = _resolve(typing.get_args(declared)[-1])
        if _is_plain(declared):
            return UNDECLARED
        if typing.get_origin(declared) in (typing.Union, types.UnionType):
            return _union_codec(declared)
    except (TypeError, IndexError, RecursionError):
        return UNDECLARED
    return TypeCodec(declared, _name(declared))


_codec_for_class = functools.lru_cache(maxsize=1024)(codec_for)


def _union_codec(declared: Any) -> Codec:
    members: dict[type, TypeCodec | None] = {}
    for member in map(_resolve, typing.get_args(declared)):
        cls = typing.get_origin(member) or member
        codec = None if _is_plain(member) else TypeCodec(member, _name(member))
        if not isinstance(cls, type) or members.setdefault(cls, codec) is not codec:
            return TypeCodec(
                declared, _name(declared)
            )  # `list[A] | list[B]`: told apart by what is in it, or not at all
    return UnionCodec(members, _name(declared))


def _resolve(declared: Any) -> Any:
    """Look behind `Annotated`, `NewType`, and names for types."""
    while True:
        if typing.get_origin(declared) is typing.Annotated:
            declared = typing.get_args(declared)[0]
        elif hasattr(declared, "__supertype__"):
            declared = declared.__supertype__
        elif type(declared).__name__ == "TypeAliasType":
            declared = declared.__value__
        else:
            return declared


def _is_plain(declared: Any) -> bool:
    declared = _resolve(declared)
    if declared in _PLAIN or isinstance(declared, typing.TypeVar):
        return True
    if typing.is_typeddict(declared):
        return all(map(_is_plain, typing.get_type_hints(declared).values()))
    if declared in (typing.NoReturn, typing.Never):
        return True
    origin, args = typing.get_origin(declared), typing.get_args(declared)
    if origin is typing.Literal:
        return all(type(arg) in _PLAIN for arg in args)
    if origin in (typing.Union, types.UnionType):
        return all(map(_is_plain, args))
    if origin in _PLAIN_CONTAINERS:
        is_mapping = issubclass(origin, collections.abc.Mapping)
        return all(map(_is_plain, args)) and not (is_mapping and args and _resolve(args[0]) not in (str, Any))
    return declared in _PLAIN_CONTAINERS


def _name(declared: Any) -> str:
    if isinstance(declared, type) and typing.get_origin(declared) is None:
        name = declared.__qualname__
        return name if declared.__module__ == "builtins" else f"{declared.__module__}.{name}"
    return repr(declared).replace("typing.", "")
