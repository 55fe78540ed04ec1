"""What may be journaled comes back equal; everything else is refused with its place."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import PayloadInvalid
from holdfast.runtime.jsondata import MAX_BYTES, MAX_DEPTH, from_json, is_json, to_json

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
anything = st.recursive(
    st.none() | st.integers() | st.floats() | st.binary() | st.complex_numbers() | st.text(st.characters()),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner)
        | st.dictionaries(st.integers() | st.text(), inner)
        | st.frozensets(st.integers())
    ),
    max_leaves=10,
)


def in_lists(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


def is_same(left: Any, right: Any) -> bool:
    return repr(left) == repr(right)  # unlike ==, this tells 1 from True and 1.0, and 0.0 from -0.0


@given(json_values)
def test_json_data_comes_back_exactly(value: Any) -> None:
    text, copy = to_json(value)

    assert is_same(copy, value)
    assert is_same(from_json(text), value)
    assert is_same(json.loads(text), value)


@given(anything)
def test_anything_else_is_refused_or_becomes_what_its_text_says(value: Any) -> None:
    try:
        text, copy = to_json(value)
    except PayloadInvalid:
        return
    assert is_same(from_json(text), copy)
    assert to_json(copy)[0] == text


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": [1, {"b": {1, 2}}]}, "payload.a[1].b"),
        ({"a": float("nan")}, "payload.a"),
        ({"a": {1: 2}}, "payload.a"),
        (["x", "\ud800"], "payload[1]"),
        ({"\udfff": 1}, "a key of payload"),
        ([b""], "payload[0]"),
    ],
)
def test_a_refusal_names_the_place(value: Any, place: str) -> None:
    with pytest.raises(PayloadInvalid) as caught:
        to_json(value)

    assert caught.value.message.startswith(f"{place} ")
    assert caught.value.hint


def test_the_deepest_data_allowed_comes_back() -> None:
    assert from_json(to_json(in_lists(MAX_DEPTH))[0]) == in_lists(MAX_DEPTH)


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 500, 100_000])
def test_deeper_data_is_refused(levels: int) -> None:
    with pytest.raises(PayloadInvalid, match="nested"):
        to_json(in_lists(levels))


def test_brackets_in_text_are_not_depth() -> None:
    assert is_json({"text": "[" * 10_000, "many": [[] for _ in range(1000)]})


def test_data_over_the_limit_is_refused() -> None:
    with pytest.raises(PayloadInvalid, match="limit"):
        to_json("x" * MAX_BYTES)


def test_a_value_that_equals_everything_is_no_way_in() -> None:
    class Equal:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None

    assert not is_json({"x": Equal()})


@pytest.mark.parametrize("number", [2**64, -(2**200), 5e-324, math.pi * 1e300, 1e16, 123456789.123456789])
def test_numbers_are_exact(number: float) -> None:
    assert is_same(from_json(to_json([number])[0]), [number])
