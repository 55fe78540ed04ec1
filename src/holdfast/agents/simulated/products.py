"""The products of the simulated model: a note per phase, a little code with its test, and the artifact."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.agents.envelope import Envelope
from holdfast.agents.simulated.schema_sample import Facts, sample

_FOLDER = "rehearsal"
_END = "<!-- end of notes -->"
_CODE_WORDS = ("change", "fix", "implement", "code", "build", "test", "reproduc", "refactor", "step")
_COMMON_WORDS = frozenset({"about", "after", "before", "should", "there", "their", "which", "while", "would", "with"})


@dataclass(frozen=True, slots=True)
class Topic:
    """What the requirements are about."""

    title: str
    slug: str
    keyword: str
    sentences: tuple[str, ...]


def find_topic(requirements: str, title: str) -> Topic:
    """Find a title (the first line), a name for files (its words) and a word to search for (the longest)."""
    lines = [line.strip(" #*-\t") for line in requirements.splitlines()]
    head = next((line for line in lines if line), "") or title or "the work"
    head = head[:80].rstrip(" .")
    words = re.findall(r"[A-Za-z][A-Za-z0-9]+", head)
    slug = "_".join(word.lower() for word in words[:4]) or "work"
    usual = [word for word in words if len(word) > 3 and word.lower() not in _COMMON_WORDS]
    sentences = [part.strip() for line in lines for part in re.split(r"(?<=[.!?])\s", line) if len(part.strip()) > 9]
    others = [part for part in sentences if part.rstrip(" .") != head] or [f"{head}."]
    return Topic(head, slug, max(usual, key=len, default="def"), tuple(others[:8]))


def notes_path(topic: Topic) -> str:
    return f"/{_FOLDER}/{topic.slug}.md"


def changed_paths(envelope: Envelope, topic: Topic) -> tuple[str, ...]:
    """List the files a phase changes, relative to the workspace."""
    if envelope.read_only:
        return ()
    code = (f"{_FOLDER}/{_module(topic)}.py", f"{_FOLDER}/test_{_module(topic)}.py") if _is_code(envelope) else ()
    return (*code, notes_path(topic).lstrip("/"))


def make_changes(envelope: Envelope, topic: Topic, *, notes: str | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the tool calls that change the repository; `notes` is the file of that name if it is there already."""
    if _is_code(envelope):
        yield "write_file", {"file_path": f"/{_FOLDER}/{_module(topic)}.py", "content": _code(topic)}
        yield "write_file", {"file_path": f"/{_FOLDER}/test_{_module(topic)}.py", "content": _test(topic)}
    section = _section(envelope)
    if notes is not None and _END in notes:
        yield (
            "edit_file",
            {"file_path": notes_path(topic), "old_string": _END, "new_string": f"{section}\n{_END}"},
        )
    else:
        request = "\n".join(f"- {sentence}" for sentence in topic.sentences)
        content = f"# {topic.title}\n\n{request}\n\n{section}\n{_END}\n"
        yield "write_file", {"file_path": notes_path(topic), "content": content}


def make_artifact(envelope: Envelope, topic: Topic, *, remark: str = "") -> Any:
    """Make an instance of the schema the phase asks for; its texts answer what a person or a check objected to."""
    answer = tuple(f"Changed as asked: {_one_line(text)}" for text in (envelope.comment, remark) if text)
    facts = Facts(
        run_id=envelope.run_id,
        phase_key=envelope.phase_key,
        topic=topic.title,
        sentences=topic.sentences,
        remarks=answer,
        paths=changed_paths(envelope, topic) or (notes_path(topic).lstrip("/"),),
    )
    return sample(dict(envelope.artifact.schema), facts, schemas=envelope.artifact.schemas)


def _module(topic: Topic) -> str:
    return f"rehearsed_{topic.slug}"  # never the name of a module or a keyword of the language


def _is_code(envelope: Envelope) -> bool:
    named = f"{envelope.phase_key} {envelope.artifact.schema_id}".lower()
    return any(word in named for word in _CODE_WORDS)


def _section(envelope: Envelope) -> str:
    again = f", attempt {envelope.attempt}" if envelope.attempt > 1 else ""
    lines = [f"## {envelope.title or envelope.phase_key}{again}", "", f"Rehearsed. Result: `{envelope.artifact.path}`."]
    if envelope.comment:
        lines += ["", f"Changed as asked: {_one_line(envelope.comment)}"]
    return "\n".join(lines) + "\n"


def _code(topic: Topic) -> str:
    return (
        f'"""{_plain(topic.title)}. Made by a rehearsal."""\n\n'
        f"REQUIREMENTS = {[_plain(sentence) for sentence in topic.sentences]!r}\n\n\n"
        "def describe() -> str:\n"
        f'    return "{_plain(topic.title)}"\n'
    )


def _test(topic: Topic) -> str:
    return (
        f"from {_module(topic)} import REQUIREMENTS, describe\n\n\n"
        f"def test_{topic.slug}_is_described() -> None:\n"
        f'    assert describe() == "{_plain(topic.title)}"\n'
        "    assert REQUIREMENTS\n"
    )


def _plain(text: str) -> str:
    return re.sub(r'["\\\x00-\x1f\x7f]', "", text)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
