"""A model call as people read it: what was sent, what came back, what it used and with which settings.

Rule: what was sent is put together from the journal alone. Of a part that is not there it is said that it is missing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.presentation.format import duration, plural
from holdfast.runtime.event_text import content_text, iter_messages
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.run_fold.payload_text import error_text

_ROLES = {"human": "Person", "ai": "Model", "tool": "Tool", "system": "System"}
_NOT_STORED = "What was sent is not in the journal: `keep_prompts` was off, or an earlier version made the call."
_NO_CALL = "There is no model call of this key in the run."
_MISSING = "(not in the journal)"
_COUNTS = (
    ("input_tokens", "tokens in"),
    ("cached_tokens", "of them from the cache"),
    ("cache_write_tokens", "written to the cache"),
    ("output_tokens", "tokens out"),
)


@dataclass(frozen=True)
class ToolRequest:
    """A tool call that a model asked for."""

    name: str
    args: Any


@dataclass(frozen=True)
class RequestMessage:
    """A message of a request; `is_new` is one that the call before did not have."""

    role: str
    text: str
    name: str = ""
    calls: Sequence[ToolRequest] = ()
    is_new: bool = False


@dataclass(frozen=True)
class RequestTool:
    """A tool that the model could call."""

    name: str
    description: str
    parameters: Any = None


@dataclass(frozen=True)
class CallFailure:
    """An attempt that failed, in words."""

    text: str
    seq: int


@dataclass
class ModelCallDetail:
    """All that the journal knows of one model call."""

    key: str
    note: str = ""
    """Why nothing is known of what was sent."""
    summary: str = ""
    """What was sent, in a few words."""
    system: str = ""
    messages: list[RequestMessage] = field(default_factory=list)
    tools: list[RequestTool] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    answer: str = ""
    reasoning: str = ""
    calls: list[ToolRequest] = field(default_factory=list)
    usage: list[str] = field(default_factory=list)
    finish_reason: str = ""
    tries: list[CallFailure] = field(default_factory=list)


@dataclass
class _RequestState:
    names: list[str] = field(default_factory=list)
    system: str = ""
    tools: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


def describe_model_call(events: Iterable[Event], key: str) -> ModelCallDetail:
    """Describe the model call of this key from the events of its run; if there is none, the note says so."""
    found = _Requests()
    detail = ModelCallDetail(key)
    is_known = False
    for event in events:
        found.add(event)
        if event.payload.get("key") != key:
            continue
        if event.kind == EventKind.MODEL_REQUEST:
            is_known = True
        elif event.kind == EventKind.MODEL_ERROR:
            detail.tries.append(CallFailure(error_text(event.payload.get("error")) or "failed", event.seq))
        elif event.kind == EventKind.MODEL_RESPONSE:
            is_known = True
            _add_answer(detail, event.payload.get("result"))
    if is_known:
        found.describe(detail)
    else:
        detail.note = _NO_CALL
    return detail


class _Requests:
    """The requests of a run as its journal tells them, each by its difference to the one before."""

    def __init__(self) -> None:
        self._lanes: dict[str, _RequestState] = {}
        self._parts: dict[str, Any] = {}
        self._answers: dict[str, Any] = {}
        self._by_key: dict[str, tuple[_RequestState, int]] = {}

    def add(self, event: Event) -> None:
        key, sent = event.payload.get("key"), event.payload.get("sent")
        if event.kind in (EventKind.MODEL_RESPONSE, EventKind.TOOL_RESULT) and isinstance(key, str):
            self._answers[key] = event.payload.get("result")
        if event.kind != EventKind.MODEL_REQUEST or not isinstance(sent, Mapping) or not isinstance(key, str):
            return
        last = self._lanes.get(event.lane_id, _RequestState())
        keeps = sent.get("keeps")
        keeps = keeps if isinstance(keeps, int) and keeps > 0 else 0
        adds = [name for name in _to_list(sent.get("adds")) if isinstance(name, str)]
        # A call that a later process makes again tells the same difference to the same request before.
        before = self._by_key[key][0].names[: self._by_key[key][1]] if key in self._by_key else last.names
        names = [*before[:keeps], *[""] * (keeps - len(before)), *adds]
        settings = sent.get("settings", last.settings)
        lane = _RequestState(
            names,
            str(sent.get("system", last.system)),
            str(sent.get("tools", last.tools)),
            dict(settings) if isinstance(settings, Mapping) else {},
        )
        parts = sent.get("parts")
        self._parts.update(parts if isinstance(parts, Mapping) else {})
        self._lanes[event.lane_id] = lane
        self._by_key[key] = (lane, keeps)

    def describe(self, detail: ModelCallDetail) -> None:
        if detail.key not in self._by_key:
            detail.note = _NOT_STORED
            return
        lane, keeps = self._by_key[detail.key]
        detail.messages = [self._to_message(name, is_new=n >= keeps) for n, name in enumerate(lane.names)]
        detail.system = _to_text(self._parts.get(lane.system, ""))
        detail.tools = [_to_tool(tool) for tool in _to_list(self._parts.get(lane.tools))]
        detail.settings = lane.settings
        detail.summary = _summarize(detail)

    def _to_message(self, name: str, *, is_new: bool) -> RequestMessage:
        part = self._parts.get(name)
        if isinstance(part, Mapping):
            role, calls = str(part.get("role")), _to_calls(part.get("calls"))
            label = str(part.get("name") or "")
            return RequestMessage(_ROLES.get(role, role), _to_text(part.get("content")), label, calls, is_new)
        message = next(iter_messages(self._answers.get(name)), None)
        if message is None:
            result = self._answers.get(name)
            is_stated = name in self._answers  # a person told the result of a call in doubt
            return RequestMessage("Tool" if is_stated else "", str(result) if is_stated else _MISSING, is_new=is_new)
        is_tool = "tool_call_id" in message
        label = str(message.get("name") or "")
        calls = _to_calls(message.get("tool_calls"))
        return RequestMessage("Tool" if is_tool else "Model", content_text(message), label, calls, is_new)


def _add_answer(detail: ModelCallDetail, result: Any) -> None:
    facts = result if isinstance(result, Mapping) else {}
    messages = list(iter_messages(facts.get("value")))
    detail.answer = "\n\n".join(filter(None, map(content_text, messages)))
    detail.calls = [call for message in messages for call in _to_calls(message.get("tool_calls"))]
    detail.reasoning = "\n\n".join(filter(None, map(_find_reasoning, messages)))
    usage = facts.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    counted = [(usage.get(name), word) for name, word in _COUNTS]
    detail.usage = [f"{count:,} {word}" for count, word in counted if isinstance(count, int) and count]
    thought = sum(_count_reasoning(message) for message in messages)
    detail.usage += [f"{thought:,} of them for reasoning"] if thought else []
    took = facts.get("took_s")
    detail.usage += [f"answered in {duration(took)}"] if isinstance(took, int | float) else []
    metadata = [message.get("response_metadata") for message in messages]
    reasons = [
        facts.get("finish_reason") or facts.get("stop_reason") for facts in metadata if isinstance(facts, Mapping)
    ]
    detail.finish_reason = next((str(reason) for reason in reasons if reason), "")


def _summarize(detail: ModelCallDetail) -> str:
    new = sum(message.is_new for message in detail.messages)
    messages = plural(len(detail.messages), "message")
    some_new = f", {new} of them new" if new < len(detail.messages) else ""
    return f"{messages}{some_new}; {plural(len(detail.tools), 'tool')}"


def _find_reasoning(message: Mapping[str, Any]) -> str:
    extra = message.get("additional_kwargs")
    spoken = extra.get("reasoning_content") if isinstance(extra, Mapping) else None
    blocks = [block for block in _to_list(message.get("content")) if isinstance(block, Mapping)]
    thoughts = [block.get("thinking") or block.get("reasoning") for block in blocks]
    return "\n\n".join(text for text in [spoken, *thoughts] if isinstance(text, str) and text)


def _count_reasoning(message: Mapping[str, Any]) -> int:
    usage = message.get("usage_metadata")
    details = usage.get("output_token_details") if isinstance(usage, Mapping) else None
    count = details.get("reasoning") if isinstance(details, Mapping) else None
    return count if isinstance(count, int) else 0


def _to_calls(value: Any) -> list[ToolRequest]:
    return [
        ToolRequest(str(call.get("name")), call.get("args")) for call in _to_list(value) if isinstance(call, Mapping)
    ]


def _to_tool(value: Any) -> RequestTool:
    tool = value if isinstance(value, Mapping) else {}
    facts = tool.get("function") if isinstance(tool.get("function"), Mapping) else tool
    assert isinstance(facts, Mapping)
    return RequestTool(str(facts.get("name")), str(facts.get("description") or ""), facts.get("parameters"))


def _to_text(content: Any) -> str:
    return content if isinstance(content, str) else content_text({"content": content})


def _to_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
