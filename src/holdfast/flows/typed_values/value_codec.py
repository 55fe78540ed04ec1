"""Values that are no JSON data, recorded by their declared type so that a replay returns the same type.

Rule: what a function returned is encoded, decoded again at once, and compared. The flow gets the decoded value, now and
on every replay; what does not come back equal and of the same type is refused on the first try.
"""

import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from holdfast.errors import Nondeterminism, PayloadInvalid
from holdfast.runtime.jsondata import check_limits, from_json, to_json, to_json_as_is

_T = TypeVar("_T")
_own: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {}


def register_codec(cls: type[_T], *, encode: Callable[[_T], Any], decode: Callable[[Any], _T]) -> None:
    """Record values of `cls`, where a function declares them, as what `encode` makes of them: JSON data.

    `decode` turns that into an equal value. Registering a class again replaces what was registered for it; a class that
    holdfast knows by itself (a dataclass, `datetime`) cannot be registered.
    """
    if not isinstance(cls, type):
        raise TypeError(f"register_codec takes a class, not {cls!r}.")
    if not isinstance(msgspec.inspect.type_info(cls), msgspec.inspect.CustomType) or _is_known(cls):
        raise TypeError(f"{cls.__name__} is recorded without a codec of your own.")
    _own[cls] = (encode, decode)


def _is_known(cls: type) -> bool:
    return _is_path(cls) or _is_pydantic(cls)


def _is_path(cls: Any) -> bool:
    pathlib = sys.modules.get("pathlib")  # whoever has a path has loaded it; without one it is not worth its 5 ms
    return pathlib is not None and isinstance(cls, type) and issubclass(cls, pathlib.PurePath)


def _is_pydantic(cls: Any) -> bool:
    """Tell a pydantic model by its looks: the core neither needs nor loads pydantic."""
    return hasattr(cls, "__pydantic_validator__") and hasattr(cls, "model_validate_json")


def _to_known(value: Any) -> Any:
    """Turn what msgspec does not know into what it does. Raises `TypeError` with advice."""
    cls = type(value)
    if cls in _own:
        return _own[cls][0](value)
    if _is_path(cls):
        return os.fspath(value)
    if _is_pydantic(cls):
        return msgspec.Raw(value.model_dump_json(by_alias=True, round_trip=True).encode())
    if cls.__module__.partition(".")[0] == "numpy":
        raise TypeError(f"numpy's {cls.__name__} is not recorded; use .item() for one number, .tolist() for an array")
    for plain in (str, int, float):
        if isinstance(value, plain):
            return plain(value)
    raise TypeError(f"a {cls.__name__} is not recorded; return another type, or use holdfast.register_codec")


def _from_known(cls: Any, data: Any) -> Any:
    if cls in _own:
        return _own[cls][1](data)
    if _is_path(cls):
        return cls(data)
    if _is_pydantic(cls):
        return cls.model_validate_json(msgspec.json.encode(data))
    raise TypeError(f"a {getattr(cls, '__name__', cls)} cannot be read back; use holdfast.register_codec")


_encode = msgspec.json.Encoder(enc_hook=_to_known).encode
_encode_sorted = msgspec.json.Encoder(enc_hook=_to_known, order="deterministic").encode


def fingerprint_arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, str]:
    """Hash what a step is called with; an empty text for what cannot be recorded, and is therefore not compared."""
    try:
        text = _encode_sorted((args, kwargs))
    except Exception:
        return {"arguments": ""}
    return {"arguments": hashlib.sha256(text).hexdigest()[:16]}


class TypeCodec:
    """Encodes and decodes values of one declared type, which is not made of JSON types alone."""

    __slots__ = ("_decode", "_type", "name")

    def __init__(self, declared: Any, name: str) -> None:
        self._type = declared
        self._decode: Callable[[bytes], Any] | None = None
        self.name = name

    def encode(self, value: Any, what: str) -> tuple[Any, str | None, Any]:
        try:
            text = _encode(value)
            data = from_json(text)
            copy = self._read(text)
            is_same = type(copy) is type(value) and (copy == value or _encode(copy) == text)
        except PayloadInvalid:
            raise
        except Exception as error:  # of msgspec, of pydantic, or of the user's own codec
            raise PayloadInvalid(f"{what} cannot be recorded as {self.name}: {error}.", hint=_ADVICE) from error
        if not is_same:
            raise PayloadInvalid(
                f"{what} is declared as {self.name}, and as such a replay would return another value than this "
                f"{type(value).__name__}.",
                hint="Declare the type that the function returns.",
            )
        check_limits(text, data, what)
        return data, self.name, copy

    def decode(self, data: Any, type_name: str | None, what: str) -> Any:
        if type_name is None:
            return data  # JSON data, as it was returned then
        try:
            return self.read(data)
        except Exception as error:
            raise Nondeterminism(
                f"{what} is recorded as {type_name}, which cannot be read as {self.name}: {error}.",
                hint="Keep the fields that were recorded, or let a new step return the new type.",
            ) from error

    def read(self, data: Any) -> Any:
        """Return what was recorded. Raises whatever reading it raises, without a word on where it was."""
        decode = self._decode or self._open()
        return decode(to_json_as_is(data))  # twice as fast as `msgspec.convert`, with the text made for it

    def accept(self, data: Any, what: str) -> Any:
        try:
            self.encode(data, what)
            return data  # a value of the type itself
        except PayloadInvalid:
            pass
        try:
            return self._read(to_json(data, what)[0])
        except PayloadInvalid:
            raise
        except Exception as error:
            raise PayloadInvalid(f"{what} is no {self.name}: {error}.") from error

    def _read(self, text: bytes) -> Any:
        return (self._decode or self._open())(text)

    def _open(self) -> Callable[[bytes], Any]:
        # Not before: a type that cannot be read may be declared by what never returns.
        self._decode = msgspec.json.Decoder(self._type, dec_hook=_from_known).decode
        return self._decode


class UnionCodec:
    """Chooses among the types that are declared by what was returned, and records which."""

    __slots__ = ("_by_class", "_by_name", "name")

    def __init__(self, members: Mapping[type, TypeCodec | None], name: str) -> None:
        self._by_class = members
        self._by_name = {codec.name: codec for codec in members.values() if codec is not None}
        self.name = name

    def encode(self, value: Any, what: str) -> tuple[Any, str | None, Any]:
        codec = self._by_class.get(type(value))
        if codec is not None:
            return codec.encode(value, what)
        copy = to_json(value, what)[1]
        return copy, None, copy

    def decode(self, data: Any, type_name: str | None, what: str) -> Any:
        if type_name is None:
            return data
        codec = self._by_name.get(type_name)
        if codec is None:
            raise Nondeterminism(f"{what} is recorded as {type_name}, which is not among {self.name}.")
        return codec.decode(data, type_name, what)

    def accept(self, data: Any, what: str) -> Any:
        if type(data) in self._by_class:
            return data
        for codec in self._by_name.values():
            try:
                return codec.accept(data, what)
            except PayloadInvalid:
                continue
        return data


class UndeclaredCodec:
    """Records JSON data only: for functions that declare nothing else."""

    __slots__ = ()

    def encode(self, value: Any, what: str) -> tuple[Any, str | None, Any]:
        copy = to_json(value, what)[1]
        return copy, None, copy

    def decode(self, data: Any, type_name: str | None, what: str) -> Any:
        if type_name is None:
            return data
        raise Nondeterminism(
            f"{what} is recorded as {type_name}, and the function declares no such type any more.",
            hint="Declare it again: `-> …` at the function.",
        )

    def accept(self, data: Any, what: str) -> Any:
        return data


Codec = TypeCodec | UnionCodec | UndeclaredCodec
UNDECLARED = UndeclaredCodec()
_ADVICE = (
    "Return JSON data, a dataclass, a pydantic model, datetime, UUID, Decimal, Path, bytes, Enum, a set, or the like; "
    "holdfast.register_codec teaches it others."
)
