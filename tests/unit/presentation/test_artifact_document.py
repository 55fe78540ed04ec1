"""Artifacts as they are read: by their schema, and whatever an agent wrote instead."""

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from holdfast.presentation.artifact_document import MOST_ITEMS, ArtifactDocument, DocumentItem, to_document
from holdfast.presentation.status import Note

PLAN = {
    "runId": "1",
    "phaseKey": "plan",
    "open_questions": ["Round up? Proposed: yes."],
    "commands": ["make test"],
    "steps": [{"title": "Add it", "changes": "A flag.", "files": ["a.py"], "tests": "One.", "serves": ["1", "2"]}],
    "summary": "First the flag.",
}


def read(schema_id: str, value: Any) -> ArtifactDocument:
    return to_document(schema_id, json.dumps(value))


def test_a_plan_begins_with_what_it_is_and_what_it_asks_and_has_its_steps_numbered() -> None:
    parts = read("dev/plan@1", PLAN).parts

    assert [(part.kind, part.label) for part in parts] == [
        ("text", ""),
        ("items", "Questions for you"),
        ("steps", "Steps"),
        ("items", "Commands to check it with"),
    ]
    notes = [("Tests", "One."), ("Serves", "1, 2")]
    assert parts[2].items == [DocumentItem(title="Add it", text="A flag.", notes=notes, paths=["a.py"])]
    assert parts[3].items == [DocumentItem(code="make test")]


def test_a_review_begins_with_its_verdict_and_counts_its_findings() -> None:
    findings = [
        {"severity": "major", "where": "a.py:3", "what": "It rounds.", "remedy": "Do not."},
        {"severity": "note", "where": "a.py", "what": "Fine."},
    ]
    criteria = [{"criterion": "It adds.", "result": "not_met", "evidence": "a.py"}]
    document = read("dev/review@1", {"verdict": "reject", "summary": "No.", "findings": findings, "criteria": criteria})

    assert document.headline == Note("bad", "The review rejects it.")
    assert [part.label for part in document.parts] == ["", "Findings", "Acceptance criteria"]
    assert document.parts[1].summary == "1 major, 1 note"
    assert document.parts[1].items[0] == DocumentItem(
        tone="bad", mark="major", code="a.py:3", text="It rounds.", notes=[("Remedy", "Do not.")]
    )
    (criterion,) = document.parts[2].items
    assert (criterion.tone, criterion.mark, criterion.title) == ("bad", "not met", "It adds.")


def test_a_change_has_its_files_and_checks_with_how_they_ended() -> None:
    value = {
        "summary": "Done.",
        "files": [{"path": "a.py", "change": "A flag."}],
        "commands": [{"command": "make", "outcome": "not_run", "note": "No make."}],
        "deviations": [],
    }
    labels = {part.label: part for part in read("dev/change@1", value).parts}

    assert labels["Where it differs from the plan"].text == "None."
    assert labels["Files"].items == [DocumentItem(code="a.py", text="A flag.")]
    assert labels["Checks"].items == [
        DocumentItem(tone="waiting", mark="not run", code="make", notes=[("Note", "No make.")])
    ]


def test_one_of_no_known_schema_has_its_fields_in_their_order_and_the_same_views() -> None:
    value = {"aField": {"deep": {"er": 1}}, "findings": [{"severity": "critical", "what": "x"}], "reproduced": False}
    document = read("own/thing@3", value)

    assert document.headline == Note("bad", "The fault was not reproduced.")
    assert [(part.kind, part.label) for part in document.parts] == [("value", "A field"), ("items", "Findings")]
    assert document.parts[1].items[0].mark == "critical"


@pytest.mark.parametrize(
    "content",
    [
        "# Not JSON \ud800",
        '"\\ud800"',
        '{"a": NaN, "steps": [1, {"title": {"x": []}}], "findings": {"severity": 1}, "verdict": ["reject"]}',
        '{"verdict": "\\ud800<b>", "findings": [{"severity": "\\ud800", "what": [], "files": "x"}], "summary": null}',
        '{"x":' * 300 + "1" + "}" * 300,
        "[" * 100_000,
        "",
    ],
)
def test_whatever_an_agent_wrote_is_shown_and_can_be_sent(content: str) -> None:
    document = to_document("dev/review@1", content)

    sent = TypeAdapter(ArtifactDocument).dump_json(document)
    assert document.parts or document.headline
    json.loads(sent, parse_constant=pytest.fail)


def test_of_very_many_entries_some_are_shown_and_the_rest_is_said() -> None:
    (part,) = read("dev/change@1", {"files": [{"path": f"{n}.py", "change": "x"} for n in range(MOST_ITEMS + 2)]}).parts

    assert len(part.items) == MOST_ITEMS
    assert part.summary == "2 more entries in the raw view"
