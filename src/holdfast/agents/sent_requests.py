"""What models are sent, as the journal keeps it for people: of each request only what is new in it, secrets out.

    {"keeps": 12, "adds": ["plan/1/m3", "plan/1/m3.t0", "#a1b2…"], "system": "#…", "tools": "#…", "settings": {…},
     "parts": {"#a1b2…": …}}

`keeps` counts the messages at the beginning that the lane's request before had as well. What `adds` names by the key of
a call is that call's recorded answer; everything else is a part, stored when it is sent first. `system`, `tools` and
`settings` are there where they differ from the request before. No replay reads any of it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain.agents.middleware import ModelRequest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.types import Command

from holdfast.agents.calls.codec import encode_or_opaque
from holdfast.agents.calls.fingerprints import RequestPrint
from holdfast.agents.redaction import SECRETS
from holdfast.agents.tool_schemas import tool_schema

_SETTINGS = ("temperature", "max_tokens", "top_p", "top_k", "seed", "stop", "reasoning_effort", "reasoning", "thinking")


@dataclass
class _LaneRequest:
    """The request that a lane has sent last: its messages by their hashes, and its other components."""

    hashes: Sequence[str] = ()
    count: int = 0
    components: dict[str, Any] = field(default_factory=dict)


class SentRequests:
    """Tells what is new in each request; remembers what was sent and where it came from."""

    def __init__(self) -> None:
        self._lanes: dict[str, _LaneRequest] = {}
        self._stored: set[str] = set()
        self._origins: dict[int, tuple[BaseMessage, str]] = {}

    def note_answer(self, key: str, answer: Any) -> None:
        """Know the messages of a recorded answer: where they are sent as they are, the key stands for them."""
        messages = answer if isinstance(answer, list) else [answer]
        if isinstance(answer, Command):
            update = answer.update if isinstance(answer.update, dict) else {}
            messages = update.get("messages") or []
        # One key stands for one message, so an answer of several is stored anew.
        if len(messages) == 1 and isinstance(messages[0], AIMessage | ToolMessage):
            # Kept with it, so that no other message can have its identity.
            self._origins[id(messages[0])] = (messages[0], key)

    def describe(self, request: "ModelRequest[Any]", lane_id: str, printed: RequestPrint) -> dict[str, Any]:
        """Return what the journal keeps of the next request of a lane."""
        last = self._lanes.get(lane_id, _LaneRequest())
        hashes = printed.message_hashes
        keeps = last.count if hashes is last.hashes else _count_same(last.hashes[: last.count], hashes)
        parts: dict[str, Any] = {}
        adds = [
            self._name(message, f"#{hashes[keeps + number]}", parts)
            for number, message in enumerate(request.messages[keeps:])
        ]
        components = self._describe_components(request, printed, parts)
        changed = {name: value for name, value in components.items() if last.components.get(name) != value}
        self._lanes[lane_id] = _LaneRequest(hashes, len(request.messages), components)
        sent = {"keeps": keeps, "adds": adds, **changed, "parts": parts}
        return {name: value for name, value in sent.items() if value}

    def _name(self, message: BaseMessage, part: str, parts: dict[str, Any]) -> str:
        known, key = self._origins.get(id(message), (None, ""))
        if known is message:
            return key
        if part not in self._stored:
            self._stored.add(part)
            parts[part] = _describe_message(message)
        return part

    def _describe_components(
        self, request: "ModelRequest[Any]", printed: RequestPrint, parts: dict[str, Any]
    ) -> dict[str, Any]:
        contents: dict[str, Callable[[], Any]] = {
            "system": lambda: request.system_message and encode_or_opaque(request.system_message.content),
            "tools": lambda: [encode_or_opaque(tool_schema(tool)) for tool in request.tools or []],
        }
        for name, describe in contents.items():
            part = f"#{printed.hashes[name]}"
            if part not in self._stored:
                self._stored.add(part)
                parts[part] = SECRETS.scrub(describe())
        names = {name: f"#{printed.hashes[name]}" for name in contents}
        return {**names, "settings": _describe_settings(request)}


def _count_same(before: Sequence[str], now: Sequence[str]) -> int:
    return next((n for n, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), min(len(before), len(now)))


def _describe_message(message: BaseMessage) -> Mapping[str, Any]:
    described = {"role": message.type, "content": encode_or_opaque(message.content)}
    if isinstance(message, AIMessage) and message.tool_calls:
        calls = [{"name": call["name"], "args": call["args"]} for call in message.tool_calls]
        described["calls"] = encode_or_opaque(calls)
    if message.name:
        described["name"] = message.name
    return SECRETS.scrub(described)  # type: ignore[no-any-return]


def _describe_settings(request: "ModelRequest[Any]") -> dict[str, Any]:
    own = {name: getattr(request.model, name, None) for name in _SETTINGS}
    settings = {**own, **request.model_settings, "tool_choice": request.tool_choice}
    named = {name: encode_or_opaque(value) for name, value in settings.items() if value is not None}
    return SECRETS.scrub(named)  # type: ignore[no-any-return]
