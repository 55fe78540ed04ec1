"""A model server on loopback that speaks the OpenAI chat protocol over real HTTP, and says what a test wrote down.

It runs in a thread of its own, so that clients in this process and in others can use it. Which answer is next depends
on the conversation it is shown: by a word in its first message, and by the number of answers in it. So a client that
was killed and goes on finds its place, and one that asks twice is answered twice.
"""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


@dataclass(frozen=True)
class Says:
    """An answer without tool calls."""

    text: str
    usage: Mapping[str, Any] | None = field(default_factory=lambda: USAGE)
    reasoning: str = ""
    piece_chars: int = 8
    pause_s: float = 0.0
    """Between pieces: slow bytes."""
    holds: threading.Event | None = None
    """After its text it says nothing more until this is set."""
    refusal: str = ""
    """The words with which the model refuses, in place of an answer."""
    finish_reason: str = "stop"


@dataclass(frozen=True)
class Asks:
    """An answer with tool calls; arguments that are a string are sent as they are, JSON or not."""

    calls: tuple[tuple[str, Any], ...]
    text: str = ""
    usage: Mapping[str, Any] | None = field(default_factory=lambda: USAGE)
    piece_chars: int = 1000
    pause_s: float = 0.0
    holds: threading.Event | None = None


@dataclass(frozen=True)
class Refuses:
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str = "no"
    code: str | None = None
    body: str | None = None
    """The whole body, where a provider has a form of its own."""


@dataclass(frozen=True)
class Breaks:
    """An answer that does not end well: `cut` in the middle, `ended` early without saying so, or `garbage`."""

    how: str


@dataclass(frozen=True)
class Hangs:
    """Never says a word, or nothing after its head."""

    has_head: bool = False
    has_comments: bool = False
    """It sends signs of life, as some servers do, and no answer."""


@dataclass(frozen=True)
class Drips:
    """Goes on for ever: one piece after the other, as fast as the client takes them or with pauses."""

    piece: str = "on and on "
    pause_s: float = 0.0


Reply = Says | Asks | Refuses | Breaks | Hangs | Drips
Script = Mapping[str, Sequence[Reply | Sequence[Reply]]]
"""By a word of the first message, the answers in their order. A sequence in place of one is gone through, call by call
at this place, and its last is given from then on."""


def asks(*calls: tuple[str, Any], text: str = "") -> Asks:
    return Asks(calls, text)


def own_persona(address: str, capabilities: str, *more: str) -> str:
    """The file of a persona on this server, as a user would write it."""
    lines = [
        "name: mine",
        "version: 1",
        "backend: openai_compatible",
        f"base_url: {address}",
        "model: my-model",
        f"capabilities: [{capabilities}]",
        *more,
    ]
    return "\n".join(lines) + "\n"


ASKS_BEFORE_TOUCH = "permissions: {commands: {ask: [touch]}}"
WITH_KEY = "api_key_env: MY_MODEL_KEY"


@dataclass(frozen=True)
class Received:
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    place: tuple[str, int]


class ModelServer:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.received: list[Received] = []
        self.looked_at: list[str] = []
        """The paths of requests that are no calls: somebody looks who answers here."""
        self.costs: dict[str, float] = {}
        """What the answers of a name have cost, for who asks later."""
        self.has_request = threading.Event()
        self.most_at_once = 0
        """The most calls that were under way at the same time."""
        self._under_way = 0
        self._times: Counter[tuple[str, int]] = Counter()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def places(self) -> list[tuple[str, int]]:
        return [received.place for received in self.received]

    def __enter__(self) -> "ModelServer":
        self._thread.start()
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result()
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
            if head[0].startswith("GET "):
                await self._list_models(head[0].split()[1], writer)
                return
            body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))))
            received = Received(head[0].split()[1], headers, body, self._place_of(body))
            self.received.append(received)
            self.has_request.set()
            self._under_way += 1
            self.most_at_once = max(self.most_at_once, self._under_way)
            try:
                await self._answer(received, writer)
            finally:
                self._under_way -= 1
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client was killed, or the test is over
        finally:
            writer.close()

    async def _list_models(self, path: str, writer: asyncio.StreamWriter) -> None:
        self.looked_at.append(path)
        name = path.partition("?id=")[2]
        if name in self.costs:
            facts = {"id": name, "total_cost": self.costs[name], "tokens_prompt": 90, "tokens_completion": 7}
            await send(writer, 200, json.dumps({"data": facts}).encode())
            return
        models = {"object": "list", "data": [{"id": "my-model", "object": "model"}]}
        await send(writer, 200 if path == "/v1/models" else 404, json.dumps(models).encode())

    def _place_of(self, body: Mapping[str, Any]) -> tuple[str, int]:
        messages = body["messages"]
        first = json.dumps(next((m["content"] for m in messages if m["role"] == "user"), ""))
        # The longest word first: a script for everything else is the empty one.
        word = next(word for word in sorted(self.script, key=len, reverse=True) if word in first)
        return word, sum(message["role"] == "assistant" for message in messages)

    def _next_reply(self, place: tuple[str, int]) -> Reply:
        planned = self.script[place[0]][place[1]]
        if not isinstance(planned, Sequence):
            return planned
        number = self._times[place]
        self._times[place] += 1
        return planned[min(number, len(planned) - 1)]

    async def _answer(self, received: Received, writer: asyncio.StreamWriter) -> None:
        reply = self._next_reply(received.place)
        if isinstance(reply, Hangs):
            await _hang(writer, reply)
        elif isinstance(reply, Refuses):
            error = {"error": {"message": reply.message, "type": "error", "code": reply.code}}
            body = json.dumps(error) if reply.body is None else reply.body
            await send(writer, reply.status, body.encode(), reply.headers)
        elif not received.body.get("stream"):
            whole = b'{"choices": [{"mess' if isinstance(reply, Breaks) else json.dumps(_whole(reply)).encode()
            await send(writer, 200, whole)
        else:
            await _stream(writer, reply, has_usage=bool(received.body.get("stream_options")))


async def send(writer: asyncio.StreamWriter, status: int, body: bytes, more: Mapping[str, str] | None = None) -> None:
    headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"} | dict(
        more or {}
    )
    lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    writer.write("\r\n".join(lines).encode() + body)
    await writer.drain()


def _message(reply: Says | Asks) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if isinstance(reply, Says):
        if reply.refusal:
            message = {"role": "assistant", "content": None, "refusal": reply.refusal}
        return message | ({"reasoning_content": reply.reasoning} if reply.reasoning else {})
    calls = [
        {
            "id": f"call_{number}",
            "type": "function",
            "index": number,
            "function": {"name": name, "arguments": args if isinstance(args, str) else json.dumps(args)},
        }
        for number, (name, args) in enumerate(reply.calls)
    ]
    return message | {"tool_calls": calls}


def _whole(reply: Any) -> dict[str, Any]:
    reason = "tool_calls" if isinstance(reply, Asks) else reply.finish_reason
    return {
        "id": "answer",
        "object": "chat.completion",
        "model": "stub",
        "choices": [{"index": 0, "message": _message(reply), "finish_reason": reason}],
        "usage": dict(reply.usage or {}),
    }


def _chunk(delta: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": more.pop("finish_reason", None)}
    return {"id": "answer", "object": "chat.completion.chunk", "model": "stub", "choices": [choice], **more}


_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
)


async def _write_chunk(writer: asyncio.StreamWriter, text: str) -> None:
    raw = text.encode()
    writer.write(f"{len(raw):x}\r\n".encode() + raw + b"\r\n")
    await writer.drain()


async def _hang(writer: asyncio.StreamWriter, reply: Hangs) -> None:
    if reply.has_head or reply.has_comments:
        writer.write(_STREAM_HEAD)
        await writer.drain()
    while reply.has_comments:
        await _write_chunk(writer, ": still here\n\n")
        await asyncio.sleep(0.02)
    await asyncio.sleep(3600)


async def _stream(writer: asyncio.StreamWriter, reply: Any, *, has_usage: bool) -> None:
    writer.write(_STREAM_HEAD)

    async def send(data: str) -> None:
        await _write_chunk(writer, f"data: {data}\n\n")

    while isinstance(reply, Drips):
        await send(json.dumps(_chunk({"role": "assistant", "content": reply.piece})))
        await asyncio.sleep(reply.pause_s)
    if isinstance(reply, Breaks):
        await _stream_badly(writer, reply, send)
        return
    message = _message(reply)
    if message.get("reasoning_content"):
        await send(json.dumps(_chunk({"role": "assistant", "reasoning_content": message["reasoning_content"]})))
    refusal = message.get("refusal") or ""
    for start in range(0, len(refusal), 8):
        await send(json.dumps(_chunk({"role": "assistant", "refusal": refusal[start : start + 8]})))
    size = getattr(reply, "piece_chars", 1000)
    for start in range(0, len(reply.text), size):
        await asyncio.sleep(getattr(reply, "pause_s", 0.0))
        await send(json.dumps(_chunk({"role": "assistant", "content": reply.text[start : start + size]})))
    while reply.holds is not None and not reply.holds.is_set():
        await asyncio.sleep(0.01)
    for call in message.get("tool_calls", ()):
        await send(json.dumps(_chunk({"role": "assistant", "tool_calls": [call]})))
    await send(json.dumps(_chunk({}, finish_reason="tool_calls" if isinstance(reply, Asks) else reply.finish_reason)))
    if has_usage and reply.usage is not None:
        await send(json.dumps({**_chunk({}), "choices": [], "usage": dict(reply.usage)}))
    await send("[DONE]")
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _stream_badly(writer: asyncio.StreamWriter, reply: Breaks, send: Callable[[str], Awaitable[None]]) -> None:
    await send(json.dumps(_chunk({"role": "assistant", "content": "It begins well"})))
    if reply.how == "garbage":
        await send('{"choices": [{"delta": ')
    if reply.how != "cut":
        writer.write(b"0\r\n\r\n")
        await writer.drain()
