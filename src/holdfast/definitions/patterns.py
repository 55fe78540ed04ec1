"""Regular expressions that a stranger wrote, matched in time that grows with the text and never faster.

A schema of a repository brings patterns. Python's own engine can take years for thirty characters, and no thread of
the process runs meanwhile; RE2 cannot. What only a backtracking engine can do (looking around, references to groups)
is refused when the schema is read.
"""

import functools
import re
from typing import Any

import re2  # type: ignore[import-untyped]  # it comes without types

MAX_PATTERN_CHARS = 1000
MAX_PROGRAM_SIZE = 5000
# The engine takes up to forty nanoseconds for one character and one instruction, and no other thread runs in them.
MAX_MATCH_WORK = 20_000_000
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)


class PatternRefused(ValueError):
    """Says why a pattern cannot be used."""


class MatchTooLong(Exception):
    """Says that a pattern and a text are too long for each other."""


@functools.lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Any:
    """Return the pattern ready to be searched. Raises `PatternRefused`."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise PatternRefused(f"it is longer than {MAX_PATTERN_CHARS} characters")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = 1 << 20
    try:
        compiled = re2.compile(_ESCAPE.sub(_to_re2, pattern), options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise PatternRefused(f"{reason[:200]} (it has to be of the kind that RE2 knows)") from error
    except UnicodeEncodeError as error:
        raise PatternRefused("it holds half a character") from error
    if compiled.programsize > MAX_PROGRAM_SIZE:
        raise PatternRefused("its repetitions come to too much")
    return compiled


def match_work(pattern: str, text: str) -> int:
    """Return how much a search costs at most: the instructions of the pattern times the characters of the text."""
    return int(compile_pattern(pattern).programsize) * (len(text) + 1)


def matches(pattern: str, text: str) -> bool:
    """Tell whether the pattern is found in the text. Raises `PatternRefused`, `MatchTooLong`."""
    if match_work(pattern, text) > MAX_MATCH_WORK:
        raise MatchTooLong
    # Half a character cannot be encoded, and no pattern can name one; any other sign stands for it as well.
    return compile_pattern(pattern).search(text.encode("utf-8", "replace").decode()) is not None


def _to_re2(escape: re.Match[str]) -> str:
    """Write `\\u00e9` as RE2 does; every other escape stays as it is."""
    word = escape.group(1)
    return f"\\x{{{word[1:]}}}" if len(word) == 5 else escape.group(0)
