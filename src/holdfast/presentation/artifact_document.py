"""An artifact as it is read: its verdict first, then its parts in an order and under names of its schema's own.

Rule: an agent wrote it. Every field is shown; one that has not the expected shape is shown as the data it is.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from holdfast.presentation.format import plural, sentence_case
from holdfast.presentation.run_outcome import SEVERITIES
from holdfast.presentation.status import Note
from holdfast.presentation.verdict import find_verdict

MOST_ITEMS = 200
_OWN = ("runId", "phaseKey")
"""Which run and phase it belongs to is said above it."""
_MOST_NESTED = 40


@dataclass(frozen=True)
class DocumentItem:
    """One step, finding, file or command: a mark, a name, a place or command as code, text, and what else is said."""

    tone: str = ""
    mark: str = ""
    title: str = ""
    code: str = ""
    text: str = ""
    notes: list[tuple[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class DocumentPart:
    """A field of an artifact: text, items (numbered where they are steps), or a value of any other shape."""

    kind: Literal["text", "items", "steps", "value"]
    label: str
    text: str = ""
    items: list[DocumentItem] = field(default_factory=list)
    value: Any = None
    summary: str = ""
    """How many there are of what, or how many are left out."""


@dataclass(frozen=True)
class ArtifactDocument:
    headline: Note | None
    parts: list[DocumentPart]


# The fields of each schema in the order of reading, with what stands above them; fields that are not here follow.
_SCHEMAS: Mapping[str, Mapping[str, str]] = {
    "dev/plan": {
        "summary": "",
        "open_questions": "Questions for you",
        "steps": "Steps",
        "commands": "Commands to check it with",
        "reversal": "How it is taken back",
    },
    "dev/spec": {
        "requirements": "What is wanted",
        "acceptance_criteria": "Accepted when",
        "approach": "Approach",
        "risks": "Risks",
    },
    "dev/review": {
        "summary": "",
        "findings": "Findings",
        "criteria": "Acceptance criteria",
        "not_checked": "Not checked",
    },
    "dev/spec-review": {"summary": "", "findings": "Findings", "uncovered_requirements": "Requirements nobody checks"},
    "dev/change": {
        "summary": "",
        "deviations": "Where it differs from the plan",
        "files": "Files",
        "commands": "Checks",
        "tests_added": "New tests",
        "left_open": "Left open",
    },
    "bug/reproduction": {
        "expected": "Expected",
        "observed": "Observed",
        "steps": "Steps",
        "test": "Test",
        "tried": "Tried",
    },
    "bug/diagnosis": {
        "root_cause": "Cause",
        "location": "Where",
        "proposed_fix": "Proposed fix",
        "evidence": "Evidence",
        "refuted": "Refuted",
        "elsewhere": "Elsewhere",
    },
    "bug/verification": {
        "summary": "",
        "findings": "Findings",
        "observations": "What was seen",
        "remaining_risks": "Risks that remain",
    },
}
_FLAGS = {
    "reproduced": (Note("good", "The fault was reproduced."), Note("bad", "The fault was not reproduced.")),
    "reproducing_test_passes": (
        Note("good", "The test that showed the fault passes."),
        Note("bad", "The test that showed the fault still fails."),
    ),
}
_RESULTS = {
    "met": Note("good", "met"),
    "not_met": Note("bad", "not met"),
    "not_checkable": Note("waiting", "not checkable"),
    "passed": Note("good", "passed"),
    "failed": Note("bad", "failed"),
    "not_run": Note("waiting", "not run"),
}
_NAMES = ("title", "name", "criterion", "promise", "question", "risk", "what", "summary", "text", "description")
_CODES = ("path", "command", "where", "location", "file", "id", "key")
_MARKS = ("severity", "result", "outcome", "covered")


def to_document(schema_id: str, content: str) -> ArtifactDocument:
    """Take an artifact apart for reading; what is no JSON object is one part."""
    try:
        value = _read(content)
    except (ValueError, RecursionError):
        return ArtifactDocument(None, [DocumentPart("text", "", content.encode(errors="replace").decode())])
    if not isinstance(value, dict):
        return ArtifactDocument(None, [DocumentPart("value", "", value=value)])
    labels = _SCHEMAS.get(schema_id.partition("@")[0], {"summary": ""})
    fields = {name: each for name, each in value.items() if name not in _OWN}
    headline = _find_headline(fields)
    order = [name for name in labels if name in fields] + [name for name in fields if name not in labels]
    parts = [_to_part(name, fields[name], labels.get(name, _to_words(name))) for name in order]
    return ArtifactDocument(headline, parts)


def _read(content: str) -> Any:
    """Parse JSON into data that can be sent again; numbers that JSON has not, and half characters, become text.

    Raises `ValueError`.
    """
    value = json.loads(content, parse_constant=str)
    if _depth(value) > _MOST_NESTED:
        raise ValueError("nested too deeply")
    return json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))


def _find_headline(fields: dict[str, Any]) -> Note | None:
    """Take the field out that says how it is, and return what it says."""
    verdict = fields.get("verdict")
    if isinstance(verdict, str) and (found := find_verdict(verdict)) is not None:
        del fields["verdict"]
        return Note(found.tone, found.sentence)
    for name, (yes, no) in _FLAGS.items():
        if isinstance(fields.get(name), bool):
            return yes if fields.pop(name) else no
    return None


def _to_part(name: str, value: Any, label: str) -> DocumentPart:
    if isinstance(value, str):
        return DocumentPart("text", label, value)
    if isinstance(value, list) and value and (items := _to_items(name, value)) is not None:
        is_numbered = name == "steps"
        return DocumentPart("steps" if is_numbered else "items", label, items=items, summary=_count(value))
    if value == []:
        return DocumentPart("text", label, "None.")
    return DocumentPart("value", label, value=value)


def _to_items(name: str, values: list[Any]) -> list[DocumentItem] | None:
    to_item: Callable[[Any], DocumentItem | None] = _to_command if name == "commands" else _to_item
    items = [to_item(each) for each in values[:MOST_ITEMS]]
    found = [item for item in items if item is not None]
    return found if len(found) == len(items) else None


def _to_command(value: Any) -> DocumentItem | None:
    return DocumentItem(code=value) if isinstance(value, str) else _to_item(value)


def _to_item(value: Any) -> DocumentItem | None:
    """Read an entry of a list: text, or an object of texts and lists of texts; `None` if it is anything else."""
    if isinstance(value, str):
        return DocumentItem(text=value)
    if not isinstance(value, dict) or not all(_is_flat(each) for each in value.values()):
        return None
    left = dict(value)
    mark = _take_mark(left)
    code = _take_text(left, _CODES)
    title = _take_text(left, _NAMES)
    paths = left.pop("files", [])
    body = _take_text(left, ("change", "changes"))
    # What has a name of one line is headed by it; a sentence of its own is text.
    is_heading = bool(body) or any(isinstance(each, str) for each in left.values())
    is_heading = is_heading and "what" not in value
    notes = [(_to_words(name), _to_text(each)) for name, each in left.items() if each not in ("", [], None)]
    return DocumentItem(
        tone=mark.tone if mark else "",
        mark=mark.text if mark else "",
        title=title if is_heading else "",
        code=code,
        text=body if is_heading else "\n\n".join(each for each in (title, body) if each),
        notes=notes,
        paths=[str(each) for each in paths] if isinstance(paths, list) else [str(paths)],
    )


def _take_mark(left: dict[str, Any]) -> Note | None:
    for name in _MARKS:
        value = left.get(name)
        if name == "severity" and isinstance(value, str):
            return Note(SEVERITIES.get(left.pop(name), "idle"), value)
        if isinstance(value, str) and value in _RESULTS:
            return _RESULTS[left.pop(name)]
        if name == "covered" and isinstance(value, bool):
            return Note("good", "tested") if left.pop(name) else Note("waiting", "not tested")
    return None


def _take_text(left: dict[str, Any], names: Sequence[str]) -> str:
    name = next((name for name in names if isinstance(left.get(name), str) and left[name]), None)
    return left.pop(name) if name is not None else ""


def _is_flat(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(one, str) for one in value)
    return not isinstance(value, dict)


def _to_text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    return value if isinstance(value, str) else json.dumps(value)


def _count(values: list[Any]) -> str:
    """Say how many entries there are: by severity where they have one; and how many are left out."""
    severities = Counter(each["severity"] for each in values if isinstance(each, dict) and _has_severity(each))
    counted = [f"{severities[name]} {name}" for name in SEVERITIES if severities[name]]
    if len(values) > MOST_ITEMS:
        counted.append(f"{plural(len(values) - MOST_ITEMS, 'more entry', 'more entries')} in the raw view")
    return ", ".join(counted)


def _has_severity(value: Mapping[str, Any]) -> bool:
    return isinstance(value.get("severity"), str)


def _to_words(name: str) -> str:
    """Make a name of data readable: `open_questions` is "Open questions"; a name of another kind stays."""
    if not re.fullmatch(r"[a-z][a-zA-Z0-9_]*", name):
        return name
    return sentence_case(re.sub(r"(?<=[a-z])([A-Z])", lambda found: f" {found[1].lower()}", name).replace("_", " "))


def _depth(value: Any) -> int:
    """Measure how deep data is nested, as far as it matters."""
    level, depth = [value], 0
    while level and depth <= _MOST_NESTED:
        depth += 1
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return depth
