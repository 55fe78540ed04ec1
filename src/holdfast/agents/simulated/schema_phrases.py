"""Short texts for the fields of an artifact, by the field's name: what was asked for, and that it is a rehearsal.

The same name and index give the same text; another index gives another one.
"""

import re
from dataclasses import dataclass

_PLACES = ("path", "file", "where", "location", "place")
# By the field's name; any other field is {sentence}, which is one of the request's own.
_PHRASES = {
    "requirements": "{request}",
    "approach": "The smallest change that meets the request, with a test beside it. A rewrite was rejected.",
    "summary": "A rehearsal of “{topic}”: the steps and the tool calls are real, the content is a placeholder.",
    "title": "{topic}",
    "name": "{topic}",
    "change": "A placeholder for what was asked for: {sentence}",
    "changes": "A placeholder for what was asked for: {sentence}",
    "tests": "The project's own tests, and one for this: {sentence}",
    "risk": "A rehearsal looks for no risks.",
    "reversal": "Drop the run's branch; nothing else was touched.",
    "note": "A rehearsal runs no tests.",
    "evidence": "{place} was read.",
    "observation": "{place} was read; nothing was judged.",
    "what": "A rehearsal judges nothing. Read the change before you merge it.",
    "remedy": "Run the workflow with a real model.",
    "root cause": "Nothing in the project does this yet: {sentence}",
    "proposed fix": "Make this hold, and test it: {sentence}",
    "observed": "That does not hold yet.",
    "step": "Try it: {sentence}",
    "tests added": "{test}",
    "command": "python -m pytest",
}
# Lists in which a good report has nothing, if there is nothing to report.
_MAY_BE_EMPTY = (
    *("deviations", "left_open", "open_questions", "not_checked", "uncovered_requirements", "refuted", "tried"),
    *("elsewhere", "remaining_risks"),
)
_ANSWERS_REMARKS = ("requirements", "summary", "root cause", "approach", "expected")
_MANY = ("acceptance_criteria",)
_MOST_ITEMS = 3


@dataclass(frozen=True, slots=True)
class Facts:
    """What the texts of an instance are about."""

    run_id: str = ""
    phase_key: str = ""
    topic: str = "the work"
    sentences: tuple[str, ...] = ("Done as described.",)
    paths: tuple[str, ...] = ("README.md",)
    remarks: tuple[str, ...] = ()
    """What a person or a check objected to, answered."""


def make_phrase(facts: Facts, name: str, index: int) -> str:
    """Make a text for the field `name`; the `index`-th of several."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").strip().lower()
    if facts.paths and words.endswith(_PLACES):
        return facts.paths[index % len(facts.paths)]
    known = words if words in _PHRASES else ""
    text = _PHRASES.get(known, "{sentence}").format(
        topic=facts.topic,
        request=" ".join(facts.sentences),
        sentence=facts.sentences[index % len(facts.sentences)],
        place=facts.paths[0] if facts.paths else "The repository",
        test=f"test_{_to_slug(facts.topic)}",
    )
    if not index and (not known or known in _ANSWERS_REMARKS):
        text = " ".join((*facts.remarks, text))
    is_repeated = index >= len(facts.sentences) if "{sentence}" in _PHRASES.get(known, "{sentence}") else index
    return f"{text} ({index + 1})" if is_repeated else text


def count_items(facts: Facts, name: str) -> int:
    """Count the entries with which a list reads best, if its schema lets us choose."""
    if name in _MAY_BE_EMPTY:
        return 0
    return min(len(facts.sentences), _MOST_ITEMS) if name in _MANY else 1


def _to_slug(text: str) -> str:
    return "_".join(word.lower() for word in re.findall(r"[A-Za-z0-9]+", text)[:4]) or "it"
