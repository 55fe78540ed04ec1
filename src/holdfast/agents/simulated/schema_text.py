"""Strings that satisfy a JSON Schema: by format, by pattern, by length. Deterministic; `index` gives the next one."""

import re
import re._constants as sre  # type: ignore[import-not-found]  # the standard library's own reading of a pattern,
import re._parser as sre_parser  # type: ignore[import-not-found]  # without which we would need a second parser
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.definitions.patterns import MatchTooLong, PatternRefused, compile_pattern, matches

_MAX_TRIES = 64
_MAX_LENGTH = 2000
_PRINTABLE = "aA0_ -./:" + "".join(chr(code) for code in range(0x21, 0x7F)) + "é\t\n"


def of_format(name: str, index: int) -> str | None:
    """Return the `index`-th example of a format, or `None` for one that is not known."""
    number = index + 1
    examples = {
        "uuid": str(uuid.UUID(int=(4 << 76) | (8 << 60) | number)),
        "date": f"2025-01-{1 + index % 28:02}",
        "time": f"12:{index % 60:02}:00Z",
        "date-time": f"2025-01-{1 + index % 28:02}T12:00:00Z",
        "duration": f"PT{number}M",
        "email": f"person{number}@example.org",
        "idn-email": f"person{number}@example.org",
        "hostname": f"host{number}.example.org",
        "idn-hostname": f"host{number}.example.org",
        "ipv4": f"192.0.2.{1 + index % 254}",
        "ipv6": f"2001:db8::{number:x}",
        "uri": f"https://example.org/{number}",
        "uri-reference": f"/{number}",
        "iri": f"https://example.org/{number}",
        "iri-reference": f"/{number}",
        "uri-template": f"/{{item}}/{number}",
        "json-pointer": f"/{number}",
        "relative-json-pointer": str(index),
        "regex": f"^item{number}$",
    }
    return examples.get(name)


def of_pattern(pattern: str, min_length: int, max_length: int | None, index: int) -> str | None:
    """Find the `index`-th text that matches a pattern and has a fitting length; `None` if simple means find none."""
    if min_length > _MAX_LENGTH or not _can_be_matched(pattern):
        return None
    found: list[str] = []
    for text in _texts_of(pattern, min_length):
        is_long_enough = min_length <= len(text) and (max_length is None or len(text) <= max_length)
        if is_long_enough and text not in found and _is_match(pattern, text):
            found.append(text)
            if len(found) > index:
                return text
    return found[-1] if found else None


def _can_be_matched(pattern: str) -> bool:
    try:
        return compile_pattern(pattern) is not None
    except PatternRefused:
        return False


def _is_match(pattern: str, text: str) -> bool:
    try:
        return matches(pattern, text)
    except MatchTooLong:
        return False


def _texts_of(pattern: str, min_length: int) -> Iterator[str]:
    try:
        parsed = sre_parser.parse(pattern)
    except (re.error, RecursionError, OverflowError):
        return
    for extra in range(max(min_length, 0) + _MAX_TRIES):
        for turn in range(3):
            yield "".join(_piece(op, argument, extra, turn) for op, argument in parsed)
    for text in list(_texts_of(pattern, 0)) if min_length else ():
        yield text.ljust(min_length, "x")  # a pattern without an end leaves room after it


def _piece(op: Any, argument: Any, extra: int, turn: int) -> str:
    if op is sre.LITERAL:
        return chr(argument)
    if op is sre.NOT_LITERAL:
        return next(char for char in _PRINTABLE if ord(char) != argument)
    if op is sre.ANY:
        return "abc"[turn % 3]
    if op is sre.IN:
        return _one_of(argument, turn)
    if op is sre.BRANCH:
        branches = argument[1]
        return _all_of(branches[turn % len(branches)], extra, turn)
    if op is sre.SUBPATTERN:
        return _all_of(argument[-1], extra, turn)
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        low, high, inner = argument
        count = low + extra if high is sre.MAXREPEAT else min(low + extra, high)
        return "".join(_all_of(inner, 0, turn + position) for position in range(count))
    return ""  # anchors and look-arounds take no room; what they demand is checked afterwards


def _all_of(parsed: Any, extra: int, turn: int) -> str:
    return "".join(_piece(op, argument, extra, turn) for op, argument in parsed)


def _one_of(members: Any, turn: int) -> str:
    allowed = [char for char in _PRINTABLE + _named_characters(members) if _is_member(char, members)]
    return allowed[turn % len(allowed)] if allowed else ""


def _named_characters(members: Any) -> str:
    """Return the ends of the ranges: a class of other letters than ours has at least these."""
    named = [chr(argument) for op, argument in members if op is sre.LITERAL]
    return "".join(named + [chr(argument[0]) for op, argument in members if op is sre.RANGE])


def _is_member(char: str, members: Any) -> bool:
    is_negated = bool(members) and members[0][0] is sre.NEGATE
    is_named = any(_matches(char, op, argument) for op, argument in members if op is not sre.NEGATE)
    return is_named != is_negated


_CATEGORIES: Mapping[Any, str] = {
    sre.CATEGORY_DIGIT: r"\d",
    sre.CATEGORY_NOT_DIGIT: r"\D",
    sre.CATEGORY_SPACE: r"\s",
    sre.CATEGORY_NOT_SPACE: r"\S",
    sre.CATEGORY_WORD: r"\w",
    sre.CATEGORY_NOT_WORD: r"\W",
}


def _matches(char: str, op: Any, argument: Any) -> bool:
    if op is sre.LITERAL:
        return bool(ord(char) == argument)
    if op is sre.RANGE:
        return bool(argument[0] <= ord(char) <= argument[1])
    return op is sre.CATEGORY and re.fullmatch(_CATEGORIES[argument], char) is not None
