"""What may be journaled: JSON data, checked once at the border, exact on the way back.

The rule: what `to_json` accepts, `from_json` returns equal, in any process and at any depth of the stack. msgspec does
the work; where its result differs from what was given (NaN, sets, bytes, integer keys, tuples), a slow walk decides.
"""

import math
from typing import Any

import msgspec

from holdfast.errors import PayloadInvalid

MAX_DEPTH = 100  # decoding recurses too, on a stack that may already be deep
MAX_BYTES = 64 * 1024 * 1024
_SURELY_FINE = 2 * MAX_DEPTH  # bytes: a level takes two, one to open it and one to close it

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode
from_json = msgspec.json.Decoder().decode


def to_json(value: Any, what: str = "payload") -> tuple[bytes, Any]:
    """Return `value` as JSON text and as a copy decoded from it. Raises `PayloadInvalid` naming the place."""
    found = try_json(value)
    if found is not None:
        return found
    copy = _to_plain(value, what, 0)
    text = _encode(copy)
    check_limits(text, copy, what)
    return text, copy


def try_json(value: Any) -> tuple[bytes, Any] | None:
    """Return what `to_json` returns, or `None` where that takes a closer look: for what is done thousands of times."""
    try:
        text = _encode(value)
        copy = from_json(text)
        is_exact = bool(copy == value)
    except (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError):
        return None
    if not is_exact or (len(text) > _SURELY_FINE and (len(text) > MAX_BYTES or _is_too_deep(text, copy))):
        return None
    return text, copy


def check_limits(text: bytes, copy: Any, what: str) -> None:
    """Raise `PayloadInvalid` if JSON data, as text and decoded, is too large or too deep to be journaled."""
    if len(text) > MAX_BYTES:
        raise PayloadInvalid(
            f"{what} has {len(text):,} bytes; the limit is {MAX_BYTES:,}.",
            hint="Write the data to a file or an artifact and journal its path and hash.",
        )
    if _is_too_deep(text, copy):
        raise PayloadInvalid(f"{what} is nested more than {MAX_DEPTH} levels deep.")


def _is_too_deep(text: bytes, copy: Any) -> bool:
    return text.count(b"[") + text.count(b"{") > MAX_DEPTH and _depth(copy) > MAX_DEPTH


def to_json_as_is(value: Any) -> bytes:
    """Serialize what came out of `to_json`, or is made of nothing else, without looking through it again."""
    return _encode(value)


def to_canonical_json(value: Any) -> bytes:
    """Serialize to text that is the same for equal values, in whichever order their keys were put in."""
    return _encode_sorted(to_json(value)[1])


def is_json(value: Any) -> bool:
    try:
        to_json(value)
    except PayloadInvalid:
        return False
    return True


_JSON_TYPES = (str, int, float, bool, type(None))


def is_exactly_json(value: Any) -> bool:
    """Return true if JSON data comes back as the very same types: no tuple, no enum, no class of the user's."""
    if type(value) is list:
        return all(is_exactly_json(item) for item in value)
    if type(value) is dict:
        return all(type(key) is str and is_exactly_json(item) for key, item in value.items())
    return type(value) in _JSON_TYPES


def _depth(value: Any) -> int:
    level, depth = [value], 0
    while level:
        depth += 1
        level = [
            child
            for node in level
            if type(node) in (dict, list)
            for child in (node.values() if type(node) is dict else node)
            if type(child) in (dict, list)
        ]
    return depth


def _to_plain(value: Any, path: str, depth: int) -> Any:
    """Rebuild `value` from the six JSON types, or say where it holds something else."""
    if depth > MAX_DEPTH:
        raise PayloadInvalid(f"{path.split('.')[0]} is circular or nested more than {MAX_DEPTH} levels deep.")
    if value is None or isinstance(value, bool):
        return value
    if _is_numpys(value):  # some are also floats
        raise PayloadInvalid(
            f"{path} is numpy's {type(value).__name__}, not a number of Python's.", hint=_advice(value)
        )
    if isinstance(value, str):
        return _to_plain_text(value, path)
    if isinstance(value, int):
        return _to_plain_int(value, path)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise PayloadInvalid(f"{path} is {value!r}, which JSON cannot hold.")
        return float(value)
    if isinstance(value, dict):
        return {_to_plain_key(key, path): _to_plain(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    raise PayloadInvalid(f"{path} is a {type(value).__name__}, which JSON cannot hold.", hint=_advice(value))


def _advice(value: Any) -> str:
    if _is_numpys(value):
        return "Convert it: .item() for one number, .tolist() for an array."
    return (
        "Journal JSON data, or declare the type that the function returns (`-> datetime`, `-> list[Order]`): "
        "then dataclasses, pydantic models, datetime, UUID, Decimal, Path, bytes, Enum and sets are recorded too."
    )


def _is_numpys(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "numpy"


def _to_plain_text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise PayloadInvalid(f"{path} holds a lone surrogate, which is not text.") from error
    return str.__str__(value)


def _to_plain_int(value: int, path: str) -> int:
    try:
        str(int(value))
    except ValueError as error:
        raise PayloadInvalid(f"{path} is an integer with too many digits.") from error
    return int(value)


def _to_plain_key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise PayloadInvalid(f"{path} has the key {key!r}, which is not a string.")
    return _to_plain_text(key, f"a key of {path}")
