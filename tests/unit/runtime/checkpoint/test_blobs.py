"""Big values are moved out and put back without a trace; a missing or changed one is an error."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import JournalCorrupt
from holdfast.runtime.checkpoint.blobs import INLINE_BYTES, MARK, digests_in, move_out_big_values, put_back
from holdfast.runtime.events import content_of, create_event, from_content, to_body

values = st.one_of(st.integers(), st.text(max_size=5), st.integers(0, 50_000).map(lambda size: "x" * size))


def stored(**payload: Any) -> tuple[dict[str, Any], dict[str, bytes], dict[str, Any]]:
    """The stored content, its blobs, and the content it was made from."""
    event = create_event("r", "tool.result", **payload)
    body, copy = to_body(event)
    content = content_of(event, copy)
    moved, blobs = move_out_big_values(body, content)
    return json.loads(moved), blobs, content


def test_a_small_event_stays_as_it_is() -> None:
    content, blobs, whole = stored(text="x" * 1000)

    assert blobs == {}
    assert content == {name: whole[name] for name in ("kind", "ts", "span_id", "payload")}


def test_a_big_value_is_replaced_by_its_digest_and_the_rest_stays_readable() -> None:
    text = "x" * INLINE_BYTES

    content, blobs, _ = stored(name="report", text=text)

    digest = hashlib.sha256(json.dumps(text).encode()).hexdigest()
    assert content["payload"] == {"name": "report"}
    assert content[MARK] == {"text": digest}
    assert digests_in([content]) == set(blobs) == {digest}


def test_many_small_values_are_moved_out_together() -> None:
    content, blobs, _ = stored(**{f"k{n}": "x" * 100 for n in range(1000)})

    assert content["payload"] == {}
    assert isinstance(content[MARK], str)
    assert digests_in([content]) == set(blobs)


def test_the_same_value_twice_is_one_blob() -> None:
    _, blobs, _ = stored(a="x" * 50_000, b="x" * 50_000)

    assert len(blobs) == 1


@given(st.dictionaries(st.text(max_size=3), values, max_size=8))
def test_what_is_moved_out_is_put_back(payload: dict[str, Any]) -> None:
    content, blobs, whole = stored(**{f"_{key}": value for key, value in payload.items()})

    put_back(content, blobs, "here")

    assert from_content("r", 1, content) == from_content("r", 1, whole)


@pytest.mark.parametrize("damage", [lambda blobs: {}, lambda blobs: dict.fromkeys(blobs, b'"y"')])
def test_a_missing_or_changed_blob_is_an_error(damage: Any) -> None:
    content, blobs, _ = stored(text="x" * 50_000)

    with pytest.raises(JournalCorrupt, match="run 'r' event 3"):
        put_back(content, damage(blobs), "run 'r' event 3")
