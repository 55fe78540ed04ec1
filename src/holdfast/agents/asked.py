"""What a model or a tool is asked, read from the framework's requests, or from stand-ins that look like them."""

import copy
from collections.abc import Mapping
from typing import Any

from langchain.agents.middleware import ModelRequest
from langchain_core.messages import AIMessage
from langgraph.prebuilt.tool_node import ToolCallRequest

from holdfast.agents.answers import STEP_MARK
from holdfast.agents.codec import encode_or_opaque
from holdfast.agents.fingerprints import model_name
from holdfast.agents.model_calls import ModelCall
from holdfast.agents.secrets import SECRETS
from holdfast.agents.tool_rules import ToolCall

_CLIP_CHARS = 500


def to_model_call(key: str, lane_id: str, request: "ModelRequest[Any]", size: int) -> ModelCall:
    # Two bytes a token is below what any tokenizer of text reaches on average.
    return ModelCall(key, lane_id, priced_name(request.model), size // 2 + 1, output_limit(request.model))


def priced_name(model: Any) -> str:
    return getattr(model, "priced_as", None) or model_name(model)


def output_limit(model: Any) -> int | None:
    limit = getattr(model, "max_tokens", None)
    return limit if isinstance(limit, int) else None


def to_tool_call(asked: Mapping[str, Any]) -> ToolCall:
    args = asked.get("args")
    return ToolCall(str(asked.get("name") or ""), args if isinstance(args, dict) else {}, str(asked.get("id") or ""))


def with_args(request: Any, args: Mapping[str, Any]) -> Any:
    """The request with other arguments; it may be a stand-in that cannot do that itself."""
    changed: Any = {**request.tool_call, "args": dict(args)}
    if isinstance(request, ToolCallRequest):
        return request.override(tool_call=changed)
    stand_in = copy.copy(request)
    stand_in.tool_call = changed
    return stand_in


def find_asking_message(request: ToolCallRequest, call_id: str) -> AIMessage | None:
    """The journaled answer in which a model asked for this call; `None` if this is no call of a journaled model."""
    state = getattr(request, "state", None)
    messages = state.get("messages") if isinstance(state, dict) else None
    for message in reversed(messages) if isinstance(messages, list) else ():
        if isinstance(message, AIMessage) and STEP_MARK in message.response_metadata:
            return message if any(asked["id"] == call_id for asked in message.tool_calls) else None
    return None


def describe_args(call: ToolCall) -> Any:
    """The arguments for readers of the journal, long ones cut short: the whole of them stands in the model's answer."""
    return _clip(SECRETS.scrub(encode_or_opaque(dict(call.args))))


def _clip(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _CLIP_CHARS:
        return f"{value[:_CLIP_CHARS]}… ({len(value)} characters)"
    if isinstance(value, dict):
        return {key: _clip(item) for key, item in value.items()}
    return [_clip(item) for item in value] if isinstance(value, list) else value
