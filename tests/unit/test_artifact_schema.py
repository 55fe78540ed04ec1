import json
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.artifact_schema import DIALECT, ArtifactSchemaRegistry
from holdfast.definitions import schema_validator
from holdfast.errors import SchemaInvalid, SchemaNotFound


def write(root: Path, schema_id: str, schema: Any) -> Path:
    file = root / f"{schema_id}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(schema if isinstance(schema, str) else json.dumps(schema))
    return file


def findings(root: Path, instance: object, schema_id: str = "a@1") -> list[tuple[str, str, str]]:
    found = ArtifactSchemaRegistry(roots=[root]).validate(schema_id, instance)
    return [(finding.path, finding.message, finding.rule) for finding in found]


def test_an_id_is_a_file_and_the_first_root_wins(tmp_path: Path) -> None:
    write(tmp_path / "mine", "dev/spec@1", {"type": "string"})
    write(tmp_path / "theirs", "dev/spec@1", {"type": "integer"})
    write(tmp_path / "theirs", "dev/plan@2", {})
    registry = ArtifactSchemaRegistry(roots=[tmp_path / "mine", tmp_path / "theirs", tmp_path / "missing"])

    assert registry.validate("dev/spec@1", "text") == []
    assert registry.find_path("dev/plan@2") == tmp_path / "theirs/dev/plan@2.json"
    assert registry.list_ids() == ["dev/plan@2", "dev/spec@1"]


def test_findings_say_where_what_and_by_which_rule(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "additionalProperties": False,
        "required": ["name", "kind"],
        "properties": {
            "name": {"type": "string", "minLength": 3},
            "kind": {"enum": ["x", "y"]},
            "runId": {"type": "string", "format": "uuid"},
            "items": {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 1}},
            "at": {"format": "date-time"},
        },
    }
    write(tmp_path, "a@1", schema)

    found = findings(tmp_path, {"name": "ab", "runId": "no", "items": [0, "1"], "zz": 1, "at": "2024-01-01T00:00:00"})

    assert found == [
        (
            "$",
            "has fields that are not allowed: 'zz'; allowed are at, items, kind, name, runId",
            "additionalProperties",
        ),
        ("$", "lacks the field 'kind'", "required"),
        ("$.at", "is '2024-01-01T00:00:00', should be a date-time", "format"),
        ("$.items[0]", "is 0, should be at least 1", "minimum"),
        ("$.items[1]", "is string, should be integer", "type"),
        ("$.name", "has 2 characters, should have at least 3", "minLength"),
        ("$.runId", "is 'no', should be a uuid", "format"),
    ]


def test_a_finding_does_not_repeat_a_giant_value(tmp_path: Path) -> None:
    write(tmp_path, "a@1", {"enum": ["x"], "not": {"type": "string"}})

    found = findings(tmp_path, "y" * 100_000)

    assert len(found) == 2
    assert all(len(message) < 300 for _, message, _ in found)


def test_of_several_alternatives_the_closest_is_explained(tmp_path: Path) -> None:
    near = {"type": "object", "required": ["a", "b"], "properties": {"a": {"const": 1}}}
    write(tmp_path, "a@1", {"anyOf": [{"type": "string"}, near]})

    found = findings(tmp_path, {"a": 1})

    assert found == [("$", "lacks the field 'b'", "required")]


@pytest.mark.parametrize(
    ("text", "rule"),
    [("{", "json"), (b"\xff", "json"), ('{"a": 1, "a": 2}', "json"), ("NaN", "json"), ("[" * 100_000, "depth")],
)
def test_an_artifact_that_is_not_json_is_a_finding_and_no_crash(tmp_path: Path, text: str | bytes, rule: str) -> None:
    write(tmp_path, "a@1", {})

    instance, found = ArtifactSchemaRegistry(roots=[tmp_path]).validate_text("a@1", text)

    assert instance is None
    assert [(finding.path, finding.rule) for finding in found] == [("$", rule)]


def test_a_valid_artifact_comes_back_as_data_without_findings(tmp_path: Path) -> None:
    write(tmp_path, "a@1", {"type": "object"})

    assert ArtifactSchemaRegistry(roots=[tmp_path]).validate_text("a@1", b'{"n": 1}') == ({"n": 1}, [])


@pytest.mark.parametrize(
    "schema_id", ["../a@1", "/etc/a@1", "a/../b@1", "a", "a@", "a@x", ".hidden@1", "a\\b@1", "", "a@1\n", "a@1.json/.."]
)
def test_what_is_not_an_id_is_refused_before_any_file_is_looked_at(tmp_path: Path, schema_id: str) -> None:
    with pytest.raises(SchemaInvalid, match="is not a schema id"):
        ArtifactSchemaRegistry(roots=[tmp_path]).validate(schema_id, {})


def test_a_link_that_leads_out_of_the_root_is_refused(tmp_path: Path) -> None:
    outside = write(tmp_path, "secret@1", {})
    (tmp_path / "root").mkdir()
    (tmp_path / "root/a@1.json").symlink_to(outside)

    with pytest.raises(SchemaInvalid, match="leads out of"):
        ArtifactSchemaRegistry(roots=[tmp_path / "root"]).get_schema("a@1")


def test_an_unknown_id_has_its_own_error(tmp_path: Path) -> None:
    with pytest.raises(SchemaNotFound, match="There is no schema dev/none@1") as refused:
        ArtifactSchemaRegistry(roots=[tmp_path]).validate("dev/none@1", {})

    assert refused.value.code == "schema_not_found"


@pytest.mark.parametrize(
    "schema",
    [
        "{",
        "[]",
        "\ud800".encode(errors="surrogatepass").decode("latin-1") + "{}",
        {"type": "strang"},
        {"minLength": -1},
        {"$schema": "http://json-schema.org/draft-07/schema#"},
        {"$ref": "https://example.org/x.json"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "other@1"},
        {"$ref": "#/$defs/none"},
        {"properties": {"a": {"$dynamicRef": "http://example.org"}}},
        '{"type": "string", "type": "object"}',
    ],
)
def test_a_schema_that_cannot_be_used_is_an_error_that_names_the_file(tmp_path: Path, schema: Any) -> None:
    file = write(tmp_path, "a@1", schema)

    with pytest.raises(SchemaInvalid) as refused:
        ArtifactSchemaRegistry(roots=[tmp_path]).validate("a@1", {})

    assert refused.value.code == "schema_invalid"
    assert str(file) in refused.value.message


def test_a_reference_may_name_another_schema_from_wherever_it_stands(tmp_path: Path) -> None:
    write(tmp_path, "a@1", {"properties": {"x": {"$ref": "deep/b@1"}}})
    write(tmp_path, "deep/b@1", {"properties": {"y": {"$ref": "other/c@1#/$defs/count"}}})
    write(tmp_path, "other/c@1", {"$defs": {"count": {"type": "integer"}}})

    assert findings(tmp_path, {"x": {"y": 1}}) == []
    assert findings(tmp_path, {"x": {"y": "1"}}) == [("$.x.y", "is string, should be integer", "type")]


def test_schemas_may_refer_to_each_other_and_to_themselves(tmp_path: Path) -> None:
    write(tmp_path, "a@1", {"properties": {"b": {"$ref": "b@1"}, "self": {"$ref": "#"}}, "required": ["n"]})
    write(tmp_path, "b@1", {"properties": {"a": {"$ref": "a@1"}}})

    found = findings(tmp_path, {"n": 1, "self": {"n": 2}, "b": {"a": {}}})

    assert found == [("$.b.a", "lacks the field 'n'", "required")]


def test_text_that_only_looks_like_a_reference_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path, "a@1", {"const": {"$ref": "https://example.org"}})

    assert findings(tmp_path, {"$ref": "https://example.org"}) == []


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    file = write(tmp_path, "a@1", {"type": "string"})
    registry = ArtifactSchemaRegistry(roots=[tmp_path])
    assert registry.validate("a@1", 1) != []

    write(tmp_path, "a@1", {"type": "integer"})
    os.utime(file, ns=(1, 1))

    assert registry.validate("a@1", 1) == []


def test_what_is_handed_out_is_the_callers_own(tmp_path: Path) -> None:
    write(tmp_path, "a@1", {"type": "string"})
    registry = ArtifactSchemaRegistry(roots=[tmp_path])

    registry.get_schema("a@1")["type"] = "integer"

    assert registry.validate("a@1", "text") == []


def test_what_a_schema_refers_to_is_told_with_it_however_far(tmp_path: Path) -> None:
    write(tmp_path, "a@1", {"$defs": {"x": {"type": "string"}}, "properties": {"b": {"$ref": "dev/b@1#/$defs/item"}}})
    write(tmp_path, "dev/b@1", {"$defs": {"item": {"$ref": "c@2"}}})
    write(tmp_path, "c@2", {"properties": {"x": {"$ref": "a@1#/$defs/x"}, "more": {"$ref": "#"}}})
    write(tmp_path, "alone@1", {"properties": {"x": {"$ref": "#"}}})
    registry = ArtifactSchemaRegistry(roots=[tmp_path])

    referenced = registry.get_referenced("a@1")

    assert sorted(referenced) == ["holdfast:a@1", "holdfast:c@2", "holdfast:dev/b@1"]
    assert referenced["holdfast:dev/b@1"] == {"$defs": {"item": {"$ref": "holdfast:c@2"}}}
    assert registry.get_referenced("alone@1") == {}
    referenced["holdfast:c@2"].clear()
    assert registry.get_referenced("a@1")["holdfast:c@2"]


DOUBLING = {
    "$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)} | {"d30": {"type": "string"}},
    "$ref": "#/$defs/d0",
}


@pytest.mark.parametrize(
    ("schema", "instance"),
    [
        ({"pattern": "^(a+)+$"}, "a" * 60 + "!"),
        ({"patternProperties": {"^(a+)+$": False}}, {"a" * 60 + "!": 1}),
        ({"patternProperties": {"^(a+)+$": True}, "additionalProperties": False}, {"a" * 60 + "!": 1}),
        ({"$schema": DIALECT, "$ref": "b@1"}, "a" * 60 + "!"),
        ({"properties": {"x": {"$schema": DIALECT, "pattern": "^(a+)+$"}}}, {"x": "a" * 60 + "!"}),
    ],
)
def test_a_pattern_that_backtracks_for_ever_takes_no_time(tmp_path: Path, schema: Any, instance: Any) -> None:
    write(tmp_path, "a@1", schema)
    write(tmp_path, "b@1", {"$schema": DIALECT, "pattern": "^(a+)+$"})

    findings(tmp_path, instance)  # it would not come back


@pytest.mark.parametrize(
    ("schema", "instance"),
    [
        (DOUBLING, "x"),
        ({"items": {"enum": list(range(5000))}}, ["x"] * 1_000_000),
        ({"allOf": [{"minItems": 10**6 - n} for n in range(3000)]}, ["x" * 100] * 10_000),
        ({"items": {"pattern": "(?:a|b|c|d){900}x"}}, ["abcd" * 1_000] * 200),
    ],
)
def test_a_check_that_would_take_hours_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schema: Any, instance: Any
) -> None:
    monkeypatch.setattr(schema_validator, "MAX_WORK", 20_000)
    write(tmp_path, "a@1", schema)

    assert findings(tmp_path, instance) == [("$", "takes too much work to be checked by this schema", "work")]


def test_items_are_compared_by_value_and_not_each_with_each(tmp_path: Path) -> None:
    write(tmp_path, "a@1", {"uniqueItems": True})

    assert findings(tmp_path, [{"n": n} for n in range(20_000)]) == []  # two hundred million comparisons
    assert findings(tmp_path, [1, True, "1", [1], [True], {"a": 0}, {"a": False}, None]) == []
    assert [rule for _, _, rule in findings(tmp_path, [{"a": 1, "b": [2]}, {"b": [2.0], "a": 1.0}])] == ["uniqueItems"]


@pytest.mark.parametrize("number", [10**400, float("inf"), -(10**400)])
def test_a_number_beyond_every_float_is_a_finding_and_no_crash(tmp_path: Path, number: Any) -> None:
    write(tmp_path, "a@1", {"multipleOf": 0.5})

    assert {rule for _, _, rule in findings(tmp_path, number)} <= {"multipleOf"}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"pattern": "(?=a)b"}, "the pattern"),
        ({"pattern": r"(a)\1"}, "the pattern"),
        ({"pattern": "a{99999999999}b{1,2000}"}, "the pattern"),
        ({"patternProperties": {"((": {}}}, "the pattern"),
        ({"pattern": "a" * 1001}, "longer than 1000"),
        ({"pattern": r"[\p{L}]{900}" * 9}, "the pattern"),
        ({"enum": list(range(10_001))}, "more than 10000 values"),
        ({"minLength": 10**12}, "no artifact can satisfy its minLength"),
        ({"minItems": 1e300}, "no artifact can satisfy its minItems"),
        ({"description": "x" * 300_001}, "larger than 300000"),
        ({"patternProperties": {"a": {}}, "unevaluatedProperties": False}, "do not go together"),
    ],
)
def test_a_schema_that_asks_for_too_much_is_refused_when_it_is_read(tmp_path: Path, schema: Any, reason: str) -> None:
    write(tmp_path, "a@1", schema)

    with pytest.raises(SchemaInvalid, match=reason):
        ArtifactSchemaRegistry(roots=[tmp_path]).get_schema("a@1")


def test_a_schema_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a@1", '{"not":' * 100 + "{}" + "}" * 100)

    with pytest.raises(SchemaInvalid, match="nested more than"):
        ArtifactSchemaRegistry(roots=[tmp_path]).get_schema("a@1")


def test_a_chain_of_many_schemas_is_refused(tmp_path: Path) -> None:
    for number in range(100):
        write(tmp_path, f"a@{number}", {"$ref": f"a@{number + 1}"})
    write(tmp_path, "a@100", {})

    with pytest.raises(SchemaInvalid, match="leads to more than"):
        ArtifactSchemaRegistry(roots=[tmp_path]).get_schema("a@0")


@pytest.mark.parametrize("schema", [{"$ref": "#"}, {"allOf": [{"$ref": "a@1"}]}])
def test_a_schema_that_is_only_itself_is_a_finding_and_no_crash(tmp_path: Path, schema: Any) -> None:
    write(tmp_path, "a@1", schema)

    assert [rule for _, _, rule in findings(tmp_path, {})] == ["depth"]


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^\d+$", "12", "12\n"),
        (r"\u00e9", "é", "e"),
        (r"\\u0041", "\\u0041", "A"),
        (r"^[^\s]+@\w+\.[a-z]{2,}$", "a@b.de", "a b@c.de"),
        (r"^(?:feat|fix)(\([a-z-]+\))?: .{1,72}$", "fix(web): words", "words"),
    ],
)
def test_patterns_are_searched_as_json_schema_says(tmp_path: Path, pattern: str, good: str, bad: str) -> None:
    write(tmp_path, "a@1", {"pattern": pattern})

    assert findings(tmp_path, good) == []
    assert [rule for _, _, rule in findings(tmp_path, bad)] == ["pattern"]


def test_a_schema_id_that_is_too_long_for_a_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(SchemaNotFound):
        ArtifactSchemaRegistry(roots=[tmp_path]).get_schema("a" * 300 + "@1")


def test_no_pipe_is_opened_as_a_schema(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a@1.json")

    with pytest.raises(SchemaNotFound):
        ArtifactSchemaRegistry(roots=[tmp_path]).get_schema("a@1")
