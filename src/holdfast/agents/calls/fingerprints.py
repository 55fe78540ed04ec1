"""By what replay tells whether a model is asked the same as before: one hash per component of its request.

Left out is what differs each time without meaning anything: message ids, usage, response metadata.
"""

import hashlib
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from langchain.agents.middleware import ModelRequest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool

from holdfast.agents.calls.codec import encode_or_opaque
from holdfast.agents.image_blocks import measure_images
from holdfast.agents.tool_schemas import describe_tools, tool_schema
from holdfast.runtime.jsondata import to_canonical_json


@dataclass(frozen=True, slots=True)
class RequestPrint:
    """The hashes of a request, how many bytes it has without those of images, and how many images."""

    hashes: Mapping[str, str]
    size: int
    message_hashes: Sequence[str] = ()
    """Of each message; the same list for the lane's next request, as long as that goes on with these messages."""
    images: int = 0


class Fingerprints:
    """Takes the prints of requests; remembers those of what comes again with every call."""

    def __init__(self) -> None:
        self._hashed: dict[str, _HashedMessages] = {}
        self._tools: list[Any] | None = None
        self._tools_print = _Print("", 0)
        self._system_print: tuple[Any, _Print] = (None, _to_print(""))

    def of_request(self, request: "ModelRequest[Any]", lane_id: str) -> RequestPrint:
        model = [model_name(request.model), getattr(request.model, "_llm_type", ""), *_settings(request)]
        system, tools = self._of_system(request.system_message), self._of_tools(request.tools or [])
        messages = self._of_messages(request.messages, lane_id)
        chain = messages.chain.hexdigest()[:16]
        hashes = {"model": _to_print(model).hash, "system": system.hash, "tools": tools.hash, "messages": chain}
        return RequestPrint(hashes, messages.size + system.size + tools.size, messages.hashes, messages.images)

    def _of_messages(self, messages: Sequence[BaseMessage], lane_id: str) -> "_HashedMessages":
        """Return the hashes of the messages and their size; only messages new to the lane are hashed."""
        known = self._hashed.get(lane_id)
        if known is None or not known.is_beginning_of(messages):
            known = self._hashed[lane_id] = _HashedMessages()
        known.add(messages[len(known.messages) :])
        return known

    def _of_system(self, message: BaseMessage | None) -> "_Print":
        if message is not self._system_print[0]:
            content = encode_or_opaque(message.content) if message is not None else ""
            self._system_print = (message, _to_print(content))
        return self._system_print[1]

    def _of_tools(self, tools: Sequence[BaseTool | dict[str, Any]]) -> "_Print":
        described = describe_tools(tools)
        if described != self._tools:
            self._tools = described
            self._tools_print = _to_print([encode_or_opaque(tool_schema(tool)) for tool in tools])
        return self._tools_print


class _HashedMessages:
    """The messages of a lane's last request, already hashed."""

    def __init__(self) -> None:
        self.messages: list[BaseMessage] = []
        self.hashes: list[str] = []
        self.chain = hashlib.sha256()
        self.size = 0
        self.images = 0

    def is_beginning_of(self, messages: Sequence[BaseMessage]) -> bool:
        known = self.messages
        return len(known) <= len(messages) and all(map(operator.is_, known, messages))

    def add(self, messages: Sequence[BaseMessage]) -> None:
        for message in messages:
            printed = _to_print(_essence(message))
            self.chain.update(printed.hash.encode())
            images, data_chars = measure_images(message.content)
            self.images += images
            self.size += printed.size - data_chars
            self.messages.append(message)
            self.hashes.append(printed.hash)


class _Print(NamedTuple):
    hash: str
    size: int


def _to_print(part: Any) -> _Print:
    text = to_canonical_json(part)
    return _Print(hashlib.sha256(text).hexdigest()[:16], len(text))


def model_name(model: Any) -> str:
    """Return the identifier a chat model was made with, under whichever of the usual names its class has it."""
    named = (getattr(model, name, None) for name in ("model_name", "model", "model_id"))
    return next((value for value in named if isinstance(value, str) and value), type(model).__name__)


def _settings(request: "ModelRequest[Any]") -> list[Any]:
    return [encode_or_opaque(request.model_settings), encode_or_opaque(request.tool_choice)]


def _essence(message: BaseMessage) -> list[Any]:
    essence: list[Any] = [message.type, message.name, encode_or_opaque(message.content)]
    if isinstance(message, AIMessage):
        essence += [encode_or_opaque([call["name"], call["args"], call["id"]]) for call in message.tool_calls]
    if isinstance(message, ToolMessage):
        essence += [message.tool_call_id, message.status]
    return essence
