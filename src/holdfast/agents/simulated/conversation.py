"""What the simulated model does in a conversation: an edit, a command that may need an approval, or a look around.

It understands two kinds of request, `edit FILE` and `run COMMAND`, and says so to everything else.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

HOW_TO_TRY = (
    "Try “edit README.md” and then /diff, “run git push --dry-run” to be asked for an approval, "
    "or /run feature-delivery once you have said what you want."
)
_RUN = re.compile(r"^\W*(?:please\s+)?(?:run|execute)\s+(?P<rest>\S.*)", re.IGNORECASE)
_EDIT = re.compile(
    r"\b(?:edit|change|fix|update|add|append|write|improve|extend|rename|remove|implement|correct)\b", re.IGNORECASE
)
_QUESTION = re.compile(r"^\W*(?:what|why|how|when|where|who|which|does|do|is|are|should)\b|\?\s*$", re.IGNORECASE)
_PATH = re.compile(r"(?<![\w/.])@?/?(?P<path>(?:[\w.-]+/)*[\w-]*\.?[\w-]+\.\w{1,8}|Makefile|Dockerfile)(?![\w/])")
_NUMBERED = re.compile(r"^\s*(\d+)\t(.*)$")
_HEADING = re.compile(r"^@@ lines .* @@$")
_HASH_COMMENTS = frozenset({".py", ".sh", ".toml", ".yaml", ".yml", ".rb", ".cfg", ".ini", ".mk", ".r", ".pl"})
_SLASH_COMMENTS = frozenset({".js", ".ts", ".tsx", ".jsx", ".c", ".h", ".cpp", ".go", ".rs", ".java", ".kt", ".swift"})
_NO_COMMENTS = frozenset({".json", ".lock", ".csv"})
_NOTES = "NOTES.md"
_MOST_NAMED = 5

Calls = tuple[tuple[str, Mapping[str, Any]], ...]


@dataclass(frozen=True, slots=True)
class PastCall:
    """A tool call that the model has made, and what came of it."""

    name: str
    args: Mapping[str, Any]
    result: str
    is_error: bool = False


def answer(message: str, outcomes: Iterable[PastCall], tools: frozenset[str]) -> tuple[str, Calls]:
    """Answer a person's last message: what is said next, and the calls; without calls the answer is over."""
    line = next((line.strip() for line in message.splitlines() if line.strip()), "")
    done = tuple(outcomes)
    request = _RUN.match(line)
    if request is not None and "execute" in tools:
        return _run(_to_command(request["rest"]), done)
    is_request = _EDIT.search(line) is not None and _QUESTION.search(line) is None
    if is_request and {"read_file", "edit_file", "write_file"} <= tools:
        return _edit(line, done)
    return _look_around(done)


def _run(command: str, done: tuple[PastCall, ...]) -> tuple[str, Calls]:
    ran = _find(done, "execute")
    if ran is None:
        return f"I run `{command}`.", (("execute", {"command": command}),)
    first = next((line.strip() for line in ran.result.splitlines() if line.strip()), "nothing")
    return (f"It was not run: {first}" if ran.is_error else f"It ran and said: {first}"), ()


def _to_command(rest: str) -> str:
    quoted = re.search(r"`([^`]+)`", rest)
    return quoted[1].strip() if quoted else rest.rstrip(" .!").removeprefix("the command ")


def _edit(line: str, done: tuple[PastCall, ...]) -> tuple[str, Calls]:
    listed, read = _find(done, "ls"), _find(done, "read_file")
    path = _find_path(line) or (_choose(list_names(listed.result)) if listed is not None else "")
    if not path:
        return "I look for a file that fits.", (("ls", {"path": "/"}),)
    if read is None:
        return f"I read {path} first.", (("read_file", {"file_path": f"/{path}"}),)
    changed = _find(done, "edit_file") or _find(done, "write_file")
    if changed is None:
        return f"I add a line to {path}.", (_make_change(path, line, read),)
    if changed.is_error:
        return f"{path} was not changed: {changed.result.strip()[:200]}", ()
    notice = f"{path} has one more line. /diff shows it, /merge takes it to your branch."
    return f"{notice} A real model would do what you asked for; this one only shows how it goes.", ()


def _make_change(path: str, line: str, read: PastCall) -> tuple[str, Mapping[str, Any]]:
    """Add a line behind the last one that is unique in the file; make a new file where there is none."""
    added = _to_added(path, line)
    lines = [] if read.is_error else _list_lines(read.result)
    last = next((text for text in reversed(lines) if text.strip() and lines.count(text) == 1), None)
    if last is None:
        return "write_file", {"file_path": f"/{path}", "content": f"{added}\n"}
    return "edit_file", {"file_path": f"/{path}", "old_string": last, "new_string": f"{last}\n{added}"}


def _list_lines(result: str) -> list[str]:
    """List the lines of a file in a tool's result, which numbers them or puts a heading above them."""
    numbered = [found[2] for found in map(_NUMBERED.match, result.splitlines()) if found]
    return numbered or [text for text in result.splitlines() if not _HEADING.match(text)]


def _to_added(path: str, line: str) -> str:
    text = f"Rehearsed change: {' '.join(line.split())[:160]}"
    suffix, name = PurePosixPath(path).suffix.lower(), PurePosixPath(path).name
    if suffix in _HASH_COMMENTS or name in ("Makefile", "Dockerfile"):
        return f"# {text}"
    return f"// {text}" if suffix in _SLASH_COMMENTS else f"\n{text}" if suffix == ".md" else text


def _find_path(line: str) -> str:
    found = _PATH.search(line)
    return found["path"] if found and PurePosixPath(found["path"]).suffix.lower() not in _NO_COMMENTS else ""


def _choose(names: tuple[str, ...]) -> str:
    """Choose the file at the top that another line hurts least."""
    texts = [name.lstrip("/") for name in names if name.lower().endswith(".md")]
    return next((name for name in texts if name.lower() == "readme.md"), texts[0] if texts else _NOTES)


def _look_around(done: tuple[PastCall, ...]) -> tuple[str, Calls]:
    listed = _find(done, "ls")
    if listed is None:
        return "I will look.", (("ls", {"path": "/"}),)
    names = ", ".join(list_names(listed.result)[:_MOST_NAMED]) or "nothing"
    return f"Looked at: {names}. This is a rehearsal, so I have no opinion on it. {HOW_TO_TRY}", ()


def list_names(listing: str) -> tuple[str, ...]:
    """Return the paths of a listing, as far as it is one."""
    quoted = (part.strip().strip("'\"") for part in listing.strip("[] \n").replace("\n", ",").split(","))
    return tuple(path for path in quoted if path.startswith("/") and not path.startswith("/.holdfast"))


def _find(done: tuple[PastCall, ...], name: str) -> PastCall | None:
    return next((outcome for outcome in done if outcome.name == name), None)
