import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents.middleware import ExtendedModelResponse, ModelResponse
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.types import Command, Overwrite, Send

from holdfast.agents.calls.codec import OPAQUE_TEXT, decode, encode, encode_or_opaque, is_opaque

ANSWER = AIMessage(
    content=[{"type": "text", "text": "hé"}],
    tool_calls=[{"name": "ls", "args": {"path": "/"}, "id": "1"}],
    invalid_tool_calls=[{"name": "x", "args": "{", "id": "2", "error": "cut", "type": "invalid_tool_call"}],
    usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3, "input_token_details": {"cache_read": 1}},
    response_metadata={"cost": 0.5},
    id="run-1",
)
RESULT = ToolMessage("x", tool_call_id="1", artifact={"exit": (1, 2), 3: [b"\0"]}, status="error", name="ls")
VALUES: list[Any] = [
    ANSWER,
    RESULT,
    HumanMessage("hi", id="h", name="someone"),
    SystemMessage([{"type": "text", "text": "be good"}]),
    ChatMessage("a", role="critic"),
    RemoveMessage(id="1"),
    AIMessageChunk(content="a"),
    Command(update={"messages": [RESULT], "todos": [{"content": "x"}]}, goto=["a", Send("b", {"m": RESULT})]),
    Command(update=[("a", 1)], graph=Command.PARENT, resume={"x": 1}),
    Overwrite([1]),
    ModelResponse(result=[ANSWER, RESULT]),
    ExtendedModelResponse(model_response=ModelResponse(result=[ANSWER]), command=Command(update={"a": 1})),
    {"$msg": 1, "plain": {"$tup": []}},
    {1: "a", None: "b", (1, 2): "c", False: "d"},
    "half a character: \ud83d",
    {"\ud83d": 1},
    [float("inf"), 2**70, -0.0],
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_is_encoded_comes_back_equal_and_of_the_same_type(value: Any) -> None:
    back = decode(json.loads(json.dumps(encode(value))))

    assert type(back) is type(value)
    assert back == value


_keys = st.one_of(st.text(), st.integers(), st.none(), st.booleans(), st.tuples(st.integers(), st.text()))
_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(st.characters(categories=None)),
    st.binary(),
)
_data = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.tuples(inner, inner), st.dictionaries(_keys, inner, max_size=4)
    ),
    max_leaves=12,
)


@given(_data)
def test_any_plain_data_comes_back_equal(value: Any) -> None:
    back = decode(json.loads(json.dumps(encode(value))))

    assert back == value
    assert repr(back) == repr(value)


class Shouted(str):
    __slots__ = ()


@pytest.mark.parametrize("value", [object(), {1, 2}, Shouted("a"), lambda: None, [object()], {"a": {1}}])
def test_an_unknown_type_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be journaled"):
        encode(value)


def test_what_cannot_be_kept_is_marked_and_read_as_done() -> None:
    data = encode_or_opaque(object())

    assert is_opaque(data)
    assert json.loads(json.dumps(data)) == data
    assert decode(data).content == OPAQUE_TEXT


def test_something_circular_is_opaque() -> None:
    value: list[Any] = []
    value.append(value)

    assert is_opaque(encode_or_opaque(value))


def test_of_a_tool_message_only_the_odd_artifact_is_lost() -> None:
    back = decode(encode_or_opaque(ToolMessage("done", tool_call_id="1", artifact=object())))

    assert back == ToolMessage("done", tool_call_id="1", artifact={"not_recorded": "builtins.object"})


def test_an_odd_message_is_opaque() -> None:
    assert is_opaque(encode_or_opaque(ToolMessage.model_construct(content=object(), artifact=object())))


@pytest.mark.parametrize("data", [{"$new": 1}, {"$msg": ["NewMessage", {}]}])
def test_a_newer_versions_value_is_not_guessed(data: Any) -> None:
    with pytest.raises(ValueError, match="does not know"):
        decode(data)
