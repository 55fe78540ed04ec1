"""By what replay tells whether a model is asked the same as before: one hash per component of its request.

Left out is what differs each time without meaning anything: message ids, usage, response metadata.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain.agents.middleware import ModelRequest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from holdfast.agents.codec import encode_or_opaque
from holdfast.runtime.jsondata import to_json
from holdfast.runtime.records import fingerprint_of


@dataclass(frozen=True, slots=True)
class RequestPrint:
    """The hashes of a request, and how many bytes it has."""

    hashes: Mapping[str, str]
    size: int


class Fingerprints:
    """Takes the prints of requests; remembers the tools, which stay the same from call to call."""

    def __init__(self) -> None:
        self._tools: list[BaseTool | dict[str, Any]] = []
        self._schemas: list[Any] = []

    def of_request(self, request: "ModelRequest[Any]") -> RequestPrint:
        parts = {
            "model": [model_name(request.model), getattr(request.model, "_llm_type", ""), *_settings(request)],
            "system": encode_or_opaque(request.system_message.content if request.system_message else ""),
            "tools": self._schemas_of(request.tools or []),
            "messages": [_essence(message) for message in request.messages],
        }
        size = sum(len(to_json(parts[name])[0]) for name in ("system", "tools", "messages"))
        return RequestPrint(fingerprint_of(**parts), size)

    def _schemas_of(self, tools: Sequence[BaseTool | dict[str, Any]]) -> list[Any]:
        same = len(tools) == len(self._tools) and all(a is b for a, b in zip(tools, self._tools, strict=True))
        if not same:
            self._tools, self._schemas = list(tools), [encode_or_opaque(_schema(tool)) for tool in tools]
        return self._schemas


def model_name(model: Any) -> str:
    """The identifier a chat model was made with, under whichever of the usual names its class keeps it."""
    named = (getattr(model, name, None) for name in ("model_name", "model", "model_id"))
    return next((value for value in named if isinstance(value, str) and value), type(model).__name__)


def _settings(request: "ModelRequest[Any]") -> list[Any]:
    return [encode_or_opaque(request.model_settings), encode_or_opaque(request.tool_choice)]


def _schema(tool: BaseTool | dict[str, Any]) -> Any:
    return tool if isinstance(tool, dict) else convert_to_openai_tool(tool)


def _essence(message: BaseMessage) -> list[Any]:
    essence: list[Any] = [message.type, message.name, encode_or_opaque(message.content)]
    if isinstance(message, AIMessage):
        essence += [encode_or_opaque([call["name"], call["args"], call["id"]]) for call in message.tool_calls]
    if isinstance(message, ToolMessage):
        essence += [message.tool_call_id, message.status]
    return essence
