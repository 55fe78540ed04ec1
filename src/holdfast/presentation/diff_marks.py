"""What makes the lines of a difference easier to read: the words that changed, and the colours of the language.

Rule: marks are places in a text, never markup. Where it would take long there are none, and the file says so.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from holdfast.presentation.diff import DiffLine, FileDiff

_MOST_LINES = 4000
_MOST_LINE_CHARS = 400
_MOST_COMPARED = 2000
_LEAST_ALIKE = 0.35
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_KINDS: Mapping[str, str] = {
    "Keyword": "k",
    "String": "s",
    "Comment": "c",
    "Number": "n",
    "Function": "f",
    "Class": "f",
    "Decorator": "f",
}
_GENERATED = re.compile(
    r"(^|/)([^/]*\.lock|package-lock\.json|pnpm-lock\.yaml|go\.sum|constraints\.txt|[^/]*\.min\.(js|css))$"
)


def is_generated(path: str) -> bool:
    """Tell by its name whether a file is written by a tool, such as a lock file: people seldom read it."""
    return _GENERATED.search(path) is not None


def add_marks(files: Sequence[FileDiff]) -> None:
    """Mark the words that changed, and colour the lines by the language of their file, of so many lines in all."""
    left = _MOST_LINES
    for file in sorted(files, key=lambda file: len(file.lines)):  # a long one leaves the others theirs
        if is_generated(file.path):
            continue
        count, total = min(left, len(file.lines)), len(file.lines)
        left -= count
        file.lines[:count] = _mark_words(file.lines[:count])
        _colour(file, ("same", "add"), context=(), count=count)
        _colour(file, ("del",), context=("same",), count=count)
        if count < total:
            file.note = f"long: the first {count:,} lines have colours" if count else "long: without colours"


def _mark_words(lines: Sequence[DiffLine]) -> list[DiffLine]:
    marked = list(lines)
    compared = 0
    for gone, come in _replaced_blocks(lines):
        for old, new in zip(gone, come, strict=False):
            before, after = lines[old].text, lines[new].text
            compared += 1
            if compared > _MOST_COMPARED or max(len(before), len(after)) > _MOST_LINE_CHARS:
                continue
            left, right = _find_changed_words(before, after)
            marked[old], marked[new] = replace(lines[old], marks=left), replace(lines[new], marks=right)
    return marked


def _replaced_blocks(lines: Sequence[DiffLine]) -> Iterator[tuple[list[int], list[int]]]:
    gone: list[int] = []
    come: list[int] = []
    for number, line in enumerate(lines):
        if line.type == "del":
            if come:
                yield gone, come
                gone, come = [], []
            gone.append(number)
        elif line.type == "add":
            come.append(number)
        elif gone or come:
            yield gone, come
            gone, come = [], []
    yield gone, come


def _find_changed_words(before: str, after: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    if matcher.ratio() < _LEAST_ALIKE:  # a line in the place of another, not a changed one
        return [], []
    left: list[tuple[int, int]] = []
    right: list[tuple[int, int]] = []
    for tag, a, a_end, b, b_end in matcher.get_opcodes():
        if tag != "equal":
            left += _to_span(old, a, a_end)
            right += _to_span(new, b, b_end)
    return left, right


def _to_span(words: Sequence[str], first: int, last: int) -> list[tuple[int, int]]:
    start = sum(map(len, words[:first]))
    end = start + sum(map(len, words[first:last]))
    return [(start, end)] if end > start else []


def _colour(file: FileDiff, types: tuple[str, ...], *, context: tuple[str, ...], count: int) -> None:
    """Colour the first `count` lines, if of these types; a side is read as one text, for strings may span lines."""
    numbers = [n for n, line in enumerate(file.lines[:count]) if line.type in (*types, *context)]
    texts = [file.lines[n].text for n in numbers]
    texts = [text if len(text) <= _MOST_LINE_CHARS else "" for text in texts]
    for number, tokens in zip(numbers, _tokenize(file.path, texts), strict=False):
        if file.lines[number].type in types and tokens:
            file.lines[number] = replace(file.lines[number], tokens=tokens)


def _tokenize(path: str, lines: Sequence[str]) -> list[list[tuple[int, int, str]]]:
    # Not at the top: no other command needs it, and it takes its time.
    from pygments.lexers import get_lexer_for_filename  # type: ignore[import-untyped]  # has no types of its own
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        lexer = get_lexer_for_filename(path, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return []
    found: list[list[tuple[int, int, str]]] = [[] for _ in lines] or [[]]
    line, column = 0, 0
    for token, text in lexer.get_tokens("\n".join(lines)):
        kind = next((_KINDS[name] for name in reversed(token) if name in _KINDS), "")
        for index, piece in enumerate(text.split("\n")):
            if index:
                line, column = line + 1, 0
            if kind and piece and line < len(found):
                found[line].append((column, column + len(piece), kind))
            column += len(piece)
    return found
