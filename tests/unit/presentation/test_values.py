"""JSON data as people read it."""

import json

import pytest

from holdfast.presentation.values import describe_json, describe_values


def test_fields_are_lines_and_lists_are_bullets() -> None:
    artifact = {
        "approach": "The smallest change.",
        "acceptance_criteria": ["It adds.", "It is tested."],
        "risks": [],
        "notes": "one\ntwo\n",
        "findings": [{"file": "calc.py", "line": 2}, ["a", "b"]],
        "limits": {"network": None, "enabled": True, "paths": ()},
    }

    assert describe_values(artifact) == [
        "approach: The smallest change.",
        "acceptance_criteria:",
        "  - It adds.",
        "  - It is tested.",
        "risks: []",
        "notes:",
        "  one",
        "  two",
        "findings:",
        "  - file: calc.py",
        "    line: 2",
        "  - - a",
        "    - b",
        "limits:",
        "  network: null",
        "  enabled: true",
        "  paths: []",
    ]
    assert describe_json(json.dumps(artifact, default=list)).splitlines()[:2] == describe_values(artifact)[:2]


@pytest.mark.parametrize("text", ['{"cut": "in the mid', "# Title\n\nText", "3", "", "{}", "[" * 100_000])
def test_what_is_no_object_stays_as_it_is(text: str) -> None:
    assert describe_json(text) == text
