"""Differences that people read: a git patch taken apart, and two versions of a text compared line by line."""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

_AROUND = 3
_MOST_CELLS = 4_000_000  # beyond this a comparison takes too long; the middle is visible as replaced
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)$")
_HEADER = re.compile(r"(\+\+\+ |--- |rename from |rename to )(.*)$")


@dataclass(frozen=True)
class DiffLine:
    """`add`, `del` or `same` with its numbers on both sides; `gap` says what is left out."""

    type: str
    text: str
    a: int | None = None
    b: int | None = None
    marks: Sequence[tuple[int, int]] = ()
    """The places of words that changed."""
    tokens: Sequence[tuple[int, int, str]] = ()
    """Places to colour: `k` a keyword, `s` a text, `c` a comment, `n` a number, `f` a name that is defined."""


@dataclass(frozen=True)
class Pair:
    """A row of two columns."""

    left: DiffLine | None
    right: DiffLine | None


@dataclass
class FileDiff:
    path: str
    kind: str = "changed"
    """`changed`, `added`, `deleted` or `renamed`."""
    was: str = ""
    """The name before it was renamed."""
    added: int = 0
    removed: int = 0
    is_binary: bool = False
    is_own: bool = False
    """Whether the file is one of holdfast's own, such as an artifact, and not a part of the user's project."""
    lines: list[DiffLine] = field(default_factory=list)
    digest: str = ""
    """Which content it had and has, for whoever has seen it."""
    note: str = ""
    """What is left out of its marks and colours, if anything is."""


def parse_patch(patch: str, own: Sequence[str] = ()) -> list[FileDiff]:
    """Return the files of a git patch; those of the engine last: of its folder, or by a glob of `own`."""
    files: list[FileDiff] = []
    a = b = left_a = left_b = 0
    for line in patch.split("\n"):
        text = line[1:]
        if left_a > 0 or left_b > 0:
            mark, file = line[:1], files[-1]
            if mark == "+":
                file.lines.append(DiffLine("add", text, None, b))
                file.added, b, left_b = file.added + 1, b + 1, left_b - 1
            elif mark == "-":
                file.lines.append(DiffLine("del", text, a, None))
                file.removed, a, left_a = file.removed + 1, a + 1, left_a - 1
            elif mark != "\\":
                file.lines.append(DiffLine("same", text, a, b))
                a, b, left_a, left_b = a + 1, b + 1, left_a - 1, left_b - 1
        elif line.startswith("diff --git "):
            found = re.search(r' "?b/(.*)$', line)
            files.append(FileDiff(_unquote(found.group(1) if found else line[11:])))
        elif files and (hunk := _HUNK.match(line)):
            a, left_a, b, left_b = (int(number if number is not None else 1) for number in hunk.groups()[:4])
            if hunk.group(5) or files[-1].lines:
                files[-1].lines.append(DiffLine("gap", f"⋯ {hunk.group(5)}"))
        elif files:
            _take_header(files[-1], line)
    for file in files:
        file.is_own = file.path.startswith(".holdfast/") or any(fnmatchcase(file.path, each) for each in own)
    return sorted(files, key=lambda file: file.is_own)


def _take_header(file: FileDiff, line: str) -> None:
    found = _HEADER.match(line)
    name, path = found.groups() if found else ("", "")
    if line.startswith("new file"):
        file.kind = "added"
    elif line.startswith("deleted file"):
        file.kind = "deleted"
    elif name == "rename from ":
        file.kind, file.was = "renamed", _unquote(path)
    elif name == "rename to ":
        file.path = _unquote(path)
    elif name and path != "/dev/null" and (name == "+++ " or file.kind == "deleted"):
        file.path = re.sub(r"^[ab]/", "", _unquote(path))
    elif line.startswith("index "):
        file.digest = line.split()[1]
    elif line.startswith(("Binary files", "GIT binary patch")):
        file.is_binary = True


def _unquote(text: str) -> str:
    return text.removesuffix("\t").removeprefix('"').removesuffix('"')


def compare(path: str, before: str, after: str) -> FileDiff:
    """Compare two versions of a text: what changed with a few lines around it; no lines where they are the same."""
    old, new = before.split("\n"), after.split("\n")
    lines = list(_diff(old, new))
    added, removed = (sum(line.type == kind for line in lines) for kind in ("add", "del"))
    return FileDiff(path, added=added, removed=removed, lines=_near(lines) if added or removed else [])


def _diff(old: Sequence[str], new: Sequence[str]) -> Iterator[DiffLine]:
    start = _count_same(old, new)
    end = _count_same(old[start:][::-1], new[start:][::-1])
    middle, fresh = old[start : len(old) - end], new[start : len(new) - end]
    yield from (DiffLine("same", text, n, n) for n, text in enumerate(old[:start], 1))
    for tag, a, a_end, b, b_end in _find_blocks(middle, fresh):
        if tag == "equal":
            yield from (DiffLine("same", middle[a + n], start + a + n + 1, start + b + n + 1) for n in range(a_end - a))
        else:
            yield from (DiffLine("del", middle[n], start + n + 1, None) for n in range(a, a_end))
            yield from (DiffLine("add", fresh[n], None, start + n + 1) for n in range(b, b_end))
    for n in range(end, 0, -1):
        yield DiffLine("same", old[-n], len(old) - n + 1, len(new) - n + 1)


def _count_same(old: Sequence[str], new: Sequence[str]) -> int:
    return next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))


def _find_blocks(old: Sequence[str], new: Sequence[str]) -> list[tuple[str, int, int, int, int]]:
    if len(old) * len(new) > _MOST_CELLS:
        return [("replace", 0, len(old), 0, len(new))]
    return list(difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes())


def _near(lines: Sequence[DiffLine]) -> list[DiffLine]:
    near = {
        index + by for index, line in enumerate(lines) if line.type != "same" for by in range(-_AROUND, _AROUND + 1)
    }
    visible: list[DiffLine] = []
    left_out = 0
    for index, line in enumerate(lines):
        if index not in near:
            left_out += 1
            continue
        if left_out:
            visible.append(_gap(left_out))
        left_out = 0
        visible.append(line)
    return [*visible, _gap(left_out)] if left_out else visible


def _gap(count: int) -> DiffLine:
    return DiffLine("gap", f"⋯ {count:,} {'line' if count == 1 else 'lines'} the same")


def to_pairs(lines: Iterable[DiffLine]) -> list[Pair]:
    """Arrange lines as rows of two columns: what went beside what came."""
    rows: list[Pair] = []
    gone: list[DiffLine] = []
    come: list[DiffLine] = []

    def flush() -> None:
        for index in range(max(len(gone), len(come))):
            rows.append(Pair(*(side[index] if index < len(side) else None for side in (gone, come))))
        gone.clear()
        come.clear()

    for line in lines:
        if line.type == "del":
            gone.append(line)
        elif line.type == "add":
            come.append(line)
        else:
            flush()
            rows.append(Pair(line, line))
    flush()
    return rows
