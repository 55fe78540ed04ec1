"""The layout is explained: pages name files that exist, the glossary has the words of the public names."""

import enum
import re
from pathlib import Path

import pytest

import holdfast
import holdfast.engine
import holdfast.enums
import holdfast.persistence.models
import holdfast.runtime.checkpoint
import holdfast.workspace
from holdfast.runtime.events import EventKind

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "holdfast"
GLOSSARY = ROOT / "docs" / "glossary.md"
PAGES = [GLOSSARY, ROOT / "docs" / "architecture.md", ROOT / "CONTRIBUTING.md"]
# Words of public names that mean here what they mean everywhere.
COMMON = {
    "accept",
    "action",
    "args",
    "author",
    "branch",
    "bubblewrap",
    "build",
    "cancel",
    "change",
    "check",
    "checkpoint",
    "class",
    "clean",
    "close",
    "code",
    "complete",
    "copy",
    "create",
    "current",
    "decide",
    "delete",
    "deliver",
    "delta",
    "details",
    "diff",
    "done",
    "duration",
    "emitt",
    "end",
    "environment",
    "error",
    "exhaust",
    "exist",
    "expire",
    "fail",
    "file",
    "find",
    "finish",
    "first",
    "folder",
    "follow",
    "get",
    "git",
    "group",
    "has",
    "holdfast",
    "human",
    "idempotency",
    "in",
    "inherit",
    "is",
    "jsonl",
    "key",
    "leave",
    "left",
    "level",
    "limit",
    "list",
    "log",
    "lose",
    "lost",
    "make",
    "mark",
    "memory",
    "name",
    "not",
    "object",
    "open",
    "options",
    "order",
    "out",
    "past",
    "path",
    "pause",
    "plan",
    "postgres",
    "prepare",
    "probe",
    "progress",
    "raise",
    "read",
    "reason",
    "reasoning",
    "receive",
    "record",
    "reject",
    "remove",
    "reopen",
    "reserve",
    "response",
    "restore",
    "resume",
    "revoke",
    "row",
    "rule",
    "save",
    "send",
    "set",
    "settle",
    "skip",
    "spend",
    "sqlite",
    "start",
    "state",
    "status",
    "step",
    "stop",
    "summarize",
    "summary",
    "sync",
    "text",
    "timeout",
    "to",
    "value",
    "with",
    "write",
}
ENDINGS = ("ed", "d", "s", "ing", "ten", "n", "led", "ped", "ged", "med", "ded", "rs", "ver", "r")


def paths_on(page: Path) -> list[str]:
    return [
        path
        for path in re.findall(r"`([a-z_]+(?:/[\w.-]+)*/?)`", page.read_text())
        if "/" in path or path.endswith(".py")
    ]


def exists(path: str) -> bool:
    """Look for a path below the root, the package, or by its end anywhere in the package."""
    return (ROOT / path).exists() or any(True for _ in SOURCE.rglob(path.rstrip("/")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_files_that_exist(page: Path) -> None:
    assert [path for path in paths_on(page) if not exists(path)] == []
    assert len(paths_on(page)) > 20


def test_rooms_are_described_by_files_that_they_have() -> None:
    """A bare name in a row of the rooms is a file of that room, not of any other; every package has a row."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| (`[a-z_/]+/`(?:, `[a-z_/]+/`)*) \| (.+?) \| ", text, re.MULTILINE)
    rooms = {room: files for first, files in rows for room in re.findall(r"`([a-z_/]+)/`", first)}
    missing = [
        (room, name)
        for room, files in rooms.items()
        for name in re.findall(r"`([a-z_]+\.py|[a-z_]+/)`", files)
        if not any((SOURCE / other / name).exists() for other in rooms if rooms[other] is files)
    ]
    assert missing == []
    packages = {path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("__init__.py")} - {"."}
    parents = {"cli/commands/runs", "api/routes/run", "persistence/migrations", "persistence/migrations/versions"}
    parents |= {"persistence/statements", *(f"runtime/checkpoint/{store}" for store in ("jsonl", "sqlite", "postgres"))}
    assert packages - rooms.keys() - parents == set(), "described by the row of the package around it, or by none"


def public_names() -> set[str]:
    packages = (holdfast, holdfast.engine, holdfast.runtime.checkpoint, holdfast.workspace)
    names = {name for package in packages for name in package.__all__} | {kind.value for kind in EventKind}
    names |= {name for name in vars(holdfast.persistence.models) if name.endswith("Row")}
    return names | {
        name for name, value in vars(holdfast.enums).items() if isinstance(value, enum.EnumMeta) and name != "StrEnum"
    }


def glossary_words() -> set[str]:
    terms = re.findall(r"^\| \*\*([^*]+)\*\*", GLOSSARY.read_text(), re.MULTILINE)
    return {word for term in terms for word in term.split()}


def is_known(word: str, words: set[str]) -> bool:
    stems = [word, *(word.removesuffix(ending) for ending in ENDINGS if word.endswith(ending))]
    return any(stem in words or f"{stem}e" in words for stem in stems)


def test_the_glossary_has_the_words_of_the_public_names() -> None:
    known = glossary_words() | COMMON
    unknown = {
        (name, word.lower())
        for name in public_names()
        for word in re.findall(r"[A-Z]{2,}(?=[A-Z][a-z])|[A-Z][a-z]+|[A-Z]+|[a-z]+", name.replace("SQLite", "Sqlite"))
        if not is_known(word.lower(), known)
    }
    assert unknown == set()


def test_the_glossary_is_in_alphabetical_order_and_has_each_word_once() -> None:
    terms = re.findall(r"^\| \*\*([^*]+)\*\*", GLOSSARY.read_text(), re.MULTILINE)
    assert terms == sorted(set(terms))
