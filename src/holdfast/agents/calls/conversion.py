"""What is recorded of an answer: the answer itself, and the facts that others read without knowing the framework.

    {"codec": 1, "usage": {…}, "tree": "…", "value": …}

`value` is for replay alone; `codec` is the version of its encoding.
"""

import copy
import hashlib
import inspect
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest

from holdfast.agents.calls.codec import decode, encode, encode_or_opaque, is_opaque
from holdfast.agents.calls.fingerprints import RequestPrint, model_name
from holdfast.agents.calls.gate import ModelCall, Usage
from holdfast.agents.image_blocks import IMAGE_TOKENS
from holdfast.agents.redaction import SECRETS
from holdfast.agents.tools.rules import ToolCall
from holdfast.runtime.jsondata import to_json

CODEC = 1
STEP_MARK = "hf_step"
"""Where a model's answer keeps the key of its step, by which its tool calls are found."""
COST = "cost_usd"
"""Where an answer keeps the cost that its provider has reported."""
_REFUSALS = frozenset({"content_filter", "refusal"})
"""Why an answer ended, as providers say it, where it is none."""


def pack(answer: Any, *, usage: Usage | None = None, **facts: Any) -> dict[str, Any]:
    """Encode an answer for the journal: a model's whole and unchanged, a tool's as far as it can be encoded."""
    packed: dict[str, Any] = {**facts, "codec": CODEC}
    if usage is not None:
        packed["usage"] = usage.to_dict()
    if isinstance(answer, ModelResponse):
        # Known secrets only: what merely has the form of one may be a sample that belongs into a file.
        return {**packed, "value": SECRETS.scrub(encode(answer), with_forms=False)}
    return {**packed, "value": SECRETS.scrub(encode_or_opaque(answer))}


def unpack(recorded: Any, call: ToolCall | None) -> Any:
    """Decode a recorded answer; for a tool call also a result that a person stated for one in doubt."""
    if not (isinstance(recorded, dict) and recorded.get("codec") == CODEC and "value" in recorded):
        if call is None:
            raise ValueError("The journal holds an answer of a model in a form that this version does not know.")
        text = recorded if isinstance(recorded, str) else to_json(recorded)[0].decode()
        return ToolMessage(content=text, name=call.name, tool_call_id=call.call_id)
    answer = decode(recorded["value"])
    if call is not None and is_opaque(recorded["value"]):
        return answer.model_copy(update={"name": call.name, "tool_call_id": call.call_id})
    return answer


def stamp(response: Any, key: str, before: Sequence[BaseMessage]) -> "ModelResponse[Any]":
    """Put the step's key into a model's answer, give each tool call an id of its own, and drop odd metadata."""
    if isinstance(response, BaseMessage):
        response = ModelResponse(result=[response])
    seen = {call["id"] for message in before if isinstance(message, AIMessage) for call in message.tool_calls}
    return ModelResponse(
        result=[_stamp_message(message, key, seen) for message in response.result],
        structured_response=response.structured_response,
    )


def _stamp_message(message: BaseMessage, key: str, seen: set[str | None]) -> BaseMessage:
    if not isinstance(message, AIMessage):
        return message
    calls = []
    for position, call in enumerate(message.tool_calls):
        # Servers repeat ids, within an answer and from turn to turn, or give none.
        call_id = call["id"] if call["id"] and call["id"] not in seen else _call_id(key, position)
        seen.add(call_id)
        calls.append({**call, "id": call_id})
    return message.model_copy(
        update={
            "tool_calls": calls,
            "response_metadata": {**_encodable(message.response_metadata), STEP_MARK: key},
            "additional_kwargs": _encodable(message.additional_kwargs),
        }
    )


def _call_id(key: str, position: int) -> str:
    return f"call_{hashlib.sha256(key.encode()).hexdigest()[:16]}_{position}"


def _encodable(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if not is_opaque(encode_or_opaque(value))}


def to_usage(answer: Any) -> Usage | None:
    """Read from a model's answer, live or recorded, what it has used."""
    if isinstance(answer, dict):
        return Usage(**answer["usage"]) if "usage" in answer else None
    messages = answer.result if isinstance(answer, ModelResponse) else [answer]
    reports = [
        message.usage_metadata for message in messages if isinstance(message, AIMessage) and message.usage_metadata
    ]
    if not reports:
        return None
    details = [usage.get("input_token_details") or {} for usage in reports]
    return Usage(
        input_tokens=sum(usage["input_tokens"] for usage in reports),
        output_tokens=sum(usage["output_tokens"] for usage in reports),
        cached_tokens=sum(detail.get("cache_read") or 0 for detail in details),
        cache_write_tokens=sum(detail.get("cache_creation") or 0 for detail in details),
        cost_micros=_cost_micros(messages),
    )


def find_refusal(response: Any) -> str | None:
    """Find the words with which a model refuses to answer, perhaps none at all; `None` if it does answer."""
    messages = response.result if isinstance(response, ModelResponse) else [response]
    for message in messages:
        if not isinstance(message, AIMessage) or message.tool_calls:
            continue
        words = message.additional_kwargs.get("refusal")
        if isinstance(words, str) and words:
            return SECRETS.scrub_text(words)
        metadata = message.response_metadata
        if _REFUSALS & {metadata.get("finish_reason"), metadata.get("stop_reason")}:
            return SECRETS.scrub_text(message.text)
    return None


def with_change_notice(answer: Any, args: Mapping[str, Any]) -> Any:
    """Say in a tool's answer, for the agent, with which other arguments the call was made."""
    if not isinstance(answer, ToolMessage) or not isinstance(answer.content, str):
        return answer
    text = to_json(encode_or_opaque(dict(args)))[0].decode()
    content = f"A person changed the arguments of this call to {text}. It gave:\n{answer.content}"
    return answer.model_copy(update={"content": content})


def with_note(answer: Any, note: str) -> Any:
    """Add to a tool's answer, for the agent, what the commands after the call have said."""
    if not note or not isinstance(answer, ToolMessage) or not isinstance(answer.content, str):
        return answer
    return answer.model_copy(update={"content": f"{answer.content}\n\n{note}"})


def is_refused(result: Any) -> bool:
    """Tell whether the recorded result of a call is that it was not made."""
    return isinstance(result, dict) and result.get("refused") is True


def to_reported_usage(answer: Any) -> Usage | None:
    """Read from a tool's answer what it says that it has used by itself."""
    report = answer.artifact.get("usage") if isinstance(answer, ToolMessage) and type(answer.artifact) is dict else None
    return Usage(**report) if type(report) is dict and report.keys() <= set(Usage.__slots__) else None


def _cost_micros(messages: Sequence[Any]) -> int | None:
    reports = [message.response_metadata.get(COST) for message in messages if isinstance(message, AIMessage)]
    try:
        costs = [math.ceil(Decimal(str(cost)) * 1_000_000) for cost in reports if cost is not None]
    except (ArithmeticError, ValueError):
        return None
    return sum(costs) if costs else None


_CLIP_CHARS = 500
_QUESTION_CHARS = 20_000


def to_model_call(key: str, lane_id: str, request: "ModelRequest[Any]", printed: RequestPrint) -> ModelCall:
    # Two bytes a token is below what any tokenizer of text reaches on average.
    input_tokens = printed.size // 2 + 1 + printed.images * IMAGE_TOKENS
    return ModelCall(key, lane_id, priced_name(request.model), input_tokens, output_limit(request.model))


def priced_name(model: Any) -> str:
    return getattr(model, "priced_as", None) or model_name(model)


def output_limit(model: Any) -> int | None:
    limit = getattr(model, "max_tokens", None)
    return limit if isinstance(limit, int) else None


def to_tool_call(request: Mapping[str, Any]) -> ToolCall:
    args = request.get("args")
    return ToolCall(
        str(request.get("name") or ""), args if isinstance(args, dict) else {}, str(request.get("id") or "")
    )


def with_args(request: Any, args: Mapping[str, Any]) -> Any:
    """Return the request with other arguments; it may be a stand-in that cannot do that itself."""
    changed: Any = {**request.tool_call, "args": dict(args)}
    if isinstance(request, ToolCallRequest):
        return request.override(tool_call=changed)
    stand_in = copy.copy(request)
    stand_in.tool_call = changed
    return stand_in


def find_asking_message(request: ToolCallRequest, call_id: str) -> AIMessage | None:
    """Find the journaled answer in which a model made this call; `None` if no journaled model made it."""
    state = getattr(request, "state", None)
    messages = state.get("messages") if isinstance(state, dict) else None
    for message in reversed(messages) if isinstance(messages, list) else ():
        if isinstance(message, AIMessage) and STEP_MARK in message.response_metadata:
            return message if any(call["id"] == call_id for call in message.tool_calls) else None
    return None


def describe_args(call: ToolCall, *, most: int = _CLIP_CHARS) -> Any:
    """Describe the arguments for readers of the journal, long ones cut short: the model's answer holds the whole."""
    return _clip(SECRETS.scrub(encode_or_opaque(dict(call.args))), most)


def describe_for_person(call: ToolCall) -> Any:
    """Describe the arguments for whoever is to allow the call: nobody is to allow what they could not see."""
    return describe_args(call, most=_QUESTION_CHARS)


def is_described_whole(call: ToolCall) -> bool:
    """Tell whether a person is shown all of it, so that they may edit it and send it back."""
    return bool(describe_for_person(call) == encode_or_opaque(dict(call.args)))


async def await_if_needed(value: Any) -> Any:
    """Return what a handler gives, which may be a value or an awaitable of it: stand-ins give either."""
    return await value if inspect.isawaitable(value) else value


def _clip(value: Any, most: int) -> Any:
    if isinstance(value, str) and len(value) > most:
        return f"{value[:most]}… ({len(value)} characters)"
    if isinstance(value, dict):
        return {key: _clip(item, most) for key, item in value.items()}
    return [_clip(item, most) for item in value] if isinstance(value, list) else value
