import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from holdfast.agents.simulated.schema_sample import CannotSample, Facts, sample
from holdfast.artifact_schema import FORMATS
from holdfast.catalog import PACKAGE_DIR

FACTS = Facts("7f3c1a52-9d0e-4c5b-8a41-2b6d0f9e1c33", "spec", "Add a greeting", ("It greets.", "It ends."), ("a.py",))
SHIPPED = sorted(PACKAGE_DIR.rglob("artifacts/**/*.json"))


def problems(schema: Any, value: Any) -> list[str]:
    return [error.message for error in Draft202012Validator(schema, format_checker=FORMATS).iter_errors(value)]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_schema_has_an_instance(path: Any) -> None:
    schema = json.loads(path.read_text())

    value = sample(schema, FACTS)

    assert problems(schema, value) == []
    assert value["runId"] == FACTS.run_id
    assert value.get("phaseKey", "spec") == "spec"
    assert value == sample(schema, FACTS)


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": ["null", "integer"]},
        {"const": {"a": [1]}},
        {"enum": [None, "a", 3]},
        {"type": "string", "pattern": "^[a-z]+-\\d{4}$", "minLength": 12},
        {"type": "string", "pattern": "^v(0|[1-9]\\d*)\\.\\d+$"},
        {"type": "string", "pattern": "^(feat|fix): .{10,}$", "maxLength": 30},
        {"type": "string", "pattern": "[^a-z]", "minLength": 40},
        {"type": "string", "format": "uri"},
        {"type": "string", "minLength": 300},
        {"type": "string", "maxLength": 0},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.5},
        {"type": "integer", "exclusiveMaximum": -3, "multipleOf": 4},
        {"type": "array", "items": {"type": "integer", "minimum": 3}, "minItems": 4, "uniqueItems": True},
        {"type": "array", "items": {"enum": ["a", "b", "c"]}, "minItems": 3, "uniqueItems": True},
        {"type": "array", "prefixItems": [{"type": "string"}, {"const": 2}], "items": False, "minItems": 2},
        {"type": "array", "contains": {"const": "x"}, "minContains": 2, "minItems": 3},
        {"type": "object", "minProperties": 3, "additionalProperties": {"type": "boolean"}},
        {"type": "object", "minProperties": 2, "additionalProperties": False,
         "patternProperties": {"^k\\d$": {"type": "integer"}}},
        {"type": "object", "minProperties": 2, "propertyNames": {"pattern": "^[A-Z]{2,}$"}},
        {"type": "object", "required": ["a"], "dependentRequired": {"a": ["b"]}, "properties": {"b": {"type": "null"}}},
        {"type": "object", "properties": {"k": {"enum": ["x", "y"]}}, "required": ["k"],
         "if": {"properties": {"k": {"const": "x"}}}, "then": {"required": ["z"]}},
        {"oneOf": [{"type": "integer", "multipleOf": 3, "minimum": 10}, {"type": "string"}]},
        {"anyOf": [False, {"type": "object", "required": ["a"]}]},
        {"allOf": [{"required": ["a"]}, {"properties": {"a": {"const": 1}}}], "type": "object"},
        {"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "required": ["kids"], "properties": {
            "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}, "next": {"$ref": "#/$defs/node"}}}}},
        {"$ref": "#/$defs/list", "$defs": {"list": {"anyOf": [
            {"type": "object", "required": ["rest"], "properties": {"rest": {"$ref": "#/$defs/list"}}},
            {"type": "null"}]}}},
        {"type": "string", "not": {"const": "x"}},
    ],
    ids=str,
)  # fmt: skip
def test_the_usual_keywords_are_satisfied(schema: Any) -> None:
    assert problems(schema, sample(schema, FACTS)) == []


def test_other_documents_are_found_by_their_id() -> None:
    schema = {"type": "object", "required": ["x"], "properties": {"x": {"$ref": "holdfast:own/part@1"}}}

    assert sample(schema, schemas={"holdfast:own/part@1": {"const": 7}}) == {"x": 7}


@pytest.mark.parametrize("schema", [False, {"type": "object", "required": ["a"], "properties": {"a": False}}])
def test_what_allows_nothing_is_said(schema: Any) -> None:
    with pytest.raises(CannotSample):
        sample(schema)


def _sized(low: str, high: str, most: int) -> st.SearchStrategy[dict[str, int]]:
    pair = st.tuples(st.integers(0, most), st.integers(0, most)).map(sorted)
    return pair.flatmap(
        lambda sizes: st.sampled_from([{}, {low: sizes[0]}, {high: sizes[1]}, {low: sizes[0], high: sizes[1]}])
    )


_strings = st.one_of(
    _sized("minLength", "maxLength", 60).map(lambda sizes: {"type": "string", **sizes}),
    st.sampled_from(["uuid", "date", "date-time", "uri", "email"]).map(lambda name: {"type": "string", "format": name}),
    st.sampled_from([r"^[A-Z]{2}-\d+$", r"^[a-z][a-z0-9_]*$", r"^(a|b)+$", r"\w{3,5}", r"^#[0-9a-f]{6}$"]).map(
        lambda pattern: {"type": "string", "pattern": pattern}
    ),
    st.lists(st.text(max_size=5), min_size=1, max_size=4, unique=True).map(lambda values: {"enum": values}),
)
_numbers = st.one_of(
    st.tuples(st.integers(-50, 50), st.integers(0, 50), st.sampled_from([1, 2, 5])).map(
        lambda t: {"type": "integer", "minimum": t[0], "maximum": t[0] + t[1] + t[2], "multipleOf": t[2]}
    ),
    st.tuples(st.floats(-1e6, 1e6), st.floats(0.001, 1e6)).map(
        lambda t: {"type": "number", "exclusiveMinimum": t[0], "exclusiveMaximum": t[0] + t[1]}
    ),
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"const": {"a": 1}}, {"type": ["integer", "string"]}]),
)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.sampled_from(["title", "runId", "files", "note_text", "a b", "é"])
    objects = st.dictionaries(names, inner, max_size=4).flatmap(
        lambda parts: st.tuples(
            st.sets(st.sampled_from(sorted(parts))) if parts else st.just(set()), st.booleans()
        ).map(lambda t: {"type": "object", "properties": parts, "required": sorted(t[0]), "additionalProperties": t[1]})
    )
    arrays = st.tuples(inner, _sized("minItems", "maxItems", 4)).map(lambda t: {"type": "array", "items": t[0], **t[1]})
    choices = st.tuples(st.sampled_from(["anyOf", "allOf"]), inner).map(lambda t: {t[0]: [t[1]]})
    references = inner.map(lambda part: {"$defs": {"part": part}, "properties": {}, "allOf": [part]})
    return st.one_of(objects, arrays, choices, references)


@pytest.mark.parametrize(
    "items",
    [
        {"type": "integer", "minimum": 0, "maximum": 1},
        {"type": "integer", "minimum": 4, "exclusiveMaximum": 6, "multipleOf": 2},
        {"type": "integer", "maximum": 1},
        {"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.5},
    ],
)
def test_more_items_than_there_are_numbers_stay_within_the_bounds(items: Any) -> None:
    schema = {"type": "array", "items": items, "minItems": 4}
    assert problems(schema, sample(schema, FACTS)) == []


@settings(max_examples=150, deadline=None)
@given(st.recursive(st.one_of(_strings, _numbers), _nested, max_leaves=8))
def test_an_instance_of_any_schema_is_valid(schema: Any) -> None:
    assert problems(schema, sample(schema, FACTS)) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    ],
)
def test_a_schema_that_refers_to_itself_without_end_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(CannotSample):
        sample(schema)
