"""A loopback server that speaks the protocols of the providers which coding agents know, and lets them run commands.

OpenAI chat completions and responses, Anthropic messages, Gemini generateContent; streamed and whole. A script is a
list of shell commands and a last text: the next answer depends on the number of results in the conversation it is sent,
so an agent that was killed and continues its session finds its place. An agent without tools gets the text alone.

    python -m tests.support.provider_fakes PORT SCRIPT.json [LOG.jsonl]
"""

import json
import sys
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

API_KEY = "fake-key-of-the-loopback-provider"
INPUT_TOKENS, OUTPUT_TOKENS = 100, 20
# What coding agents call the tool that runs a command, and how each takes it.
_SHELLS = (
    "Bash",
    "bash",
    "exec_command",
    "shell",
    "shell_command",
    "run_shell_command",
    "local_shell",
    "container.exec",
)


@dataclass(frozen=True)
class Script:
    """What the model has the agent do: commands in their order, then a text. `plain` answers requests without tools."""

    commands: Sequence[str] = ()
    text: str = "All done."
    plain: str = "All done."
    holds: threading.Event | None = None
    """An answer without tools waits for this."""


@dataclass(frozen=True)
class _Turn:
    """One answer: a command to run, or the last text."""

    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    call_id: str = field(default_factory=lambda: f"call_{uuid.uuid4().hex[:20]}")


class ProviderFake:
    """The server, in a thread of this process; `requests` is every request it got: path and body."""

    def __init__(self, script: Script, *, port: int = 0, log: Path | None = None, key: str = "") -> None:
        self.script = script
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self._log = log
        self._key = key
        fake = self

        class Handler(_Handler):
            provider = fake

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "ProviderFake":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def note(self, path: str, body: dict[str, Any], headers: Mapping[str, str]) -> None:
        self.requests.append((path, body))
        if self._log is not None:
            with self._log.open("a") as file:
                file.write(json.dumps({"path": path, "headers": dict(headers), "body": body}) + "\n")

    def is_allowed(self, headers: Mapping[str, str]) -> bool:
        keys = {
            headers.get("Authorization", "").removeprefix("Bearer "),
            headers.get("x-api-key"),
            headers.get("x-goog-api-key"),
        }
        return not self._key or self._key in keys

    def answer(self, tools: Mapping[str, Mapping[str, Any]], results: int) -> _Turn:
        """Choose the answer by the tools that the agent has and the number of results that it shows."""
        name = next((name for name in _SHELLS if name in tools), None)
        if name is None:
            if self.script.holds is not None:
                self.script.holds.wait()
            return _Turn(text=self.script.plain)
        if results >= len(self.script.commands):
            return _Turn(text=self.script.text)
        return _Turn(tool=name, arguments=_to_arguments(self.script.commands[results], tools[name]))


def _to_arguments(command: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    name = next((name for name in ("command", "cmd") if name in properties), "command")
    is_list = properties.get(name, {}).get("type") in ("array", "ARRAY")
    arguments: dict[str, Any] = {name: ["sh", "-c", command] if is_list else command}
    for required in schema.get("required", ()):
        if required not in arguments:
            kind = str(properties.get(required, {}).get("type", "string")).lower()
            arguments[required] = {"boolean": False, "number": 1, "integer": 1}.get(kind, "runs a command")
    return arguments


class _Handler(BaseHTTPRequestHandler):
    provider: ProviderFake
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.provider.note(f"GET {self.path}", {}, self.headers)
        models = [{"id": "fake-model", "object": "model", "created": 1, "owned_by": "fake"}]
        if self.path.partition("?")[0].endswith("/models"):
            self._send({"object": "list", "data": models, "models": []})
        else:
            self._send({"error": {"message": "not here"}}, 404)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        body = self._read_body()
        path = self.path.partition("?")[0]
        self.provider.note(self.path, body, self.headers)
        if not self.provider.is_allowed(self.headers):
            self._send({"type": "error", "error": {"type": "authentication_error", "message": "wrong key"}}, 401)
        elif path.endswith("/chat/completions"):
            self._chat(body)
        elif path.endswith("/responses"):
            self._responses(body)
        elif path.endswith("/messages"):
            self._messages(body)
        elif "GenerateContent" in path or path.endswith(":generateContent"):
            self._gemini(body, is_streamed="stream" in path)
        elif path.endswith((":countTokens", "/count_tokens")):
            self._send({"totalTokens": INPUT_TOKENS, "input_tokens": INPUT_TOKENS})
        else:
            self._send({"error": {"message": "not here"}}, 404)

    def _read_body(self) -> dict[str, Any]:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            data = b""
            while size := int(self.rfile.readline().strip() or b"0", 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(data or b"{}")
        except ValueError:
            return {"unreadable": len(data)}
        return body if isinstance(body, dict) else {"list": body}

    # -- the protocols ------------------------------------------------------------------------------------------------

    def _chat(self, body: dict[str, Any]) -> None:
        tools = {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in body.get("tools") or ()}
        turn = self.provider.answer(tools, sum(message.get("role") == "tool" for message in body["messages"]))
        usage = {"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS, "total_tokens": 120}
        base = {"id": "chatcmpl-1", "created": 1, "model": body.get("model")}
        function = {"name": turn.tool, "arguments": json.dumps(turn.arguments)}
        calls = [{"index": 0, "id": turn.call_id, "type": "function", "function": function}] if turn.tool else []
        message = {"role": "assistant", "content": turn.text or None} | ({"tool_calls": calls} if calls else {})
        reason = "tool_calls" if calls else "stop"
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            self._send({**base, "object": "chat.completion", "choices": [choice], "usage": usage})
            return
        chunk = {**base, "object": "chat.completion.chunk"}
        parts = [{**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]}]
        parts += [{**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage}]
        self._stream([f"data: {json.dumps(part)}\n\n" for part in parts] + ["data: [DONE]\n\n"])

    def _responses(self, body: dict[str, Any]) -> None:
        tools = {tool.get("name") or tool["type"]: tool.get("parameters", {}) for tool in body.get("tools") or ()}
        items = body.get("input") if isinstance(body.get("input"), list) else []
        results = sum(
            str(item.get("type", "")).endswith("call_output") and item["output"] != "aborted" for item in items
        )
        turn = self.provider.answer(tools, results)
        item: dict[str, Any]
        if turn.tool:
            arguments = json.dumps(turn.arguments)
            item = {"type": "function_call", "id": "fc_1", "call_id": turn.call_id, "name": turn.tool}
            item |= {"arguments": arguments, "status": "completed"}
        else:
            content = [{"type": "output_text", "text": turn.text, "annotations": []}]
            item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
        usage = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS, "total_tokens": 120}
        usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        response = {"id": "resp_1", "object": "response", "created_at": 1, "model": body.get("model"), "output": []}
        whole = {**response, "status": "completed", "output": [item], "usage": usage}
        if not body.get("stream"):
            self._send(whole)
            return
        events: list[dict[str, Any]] = [{"type": "response.created", "response": {**response, "status": "in_progress"}}]
        empty = {**item, "status": "in_progress"} | ({"arguments": ""} if turn.tool else {"content": []})
        events.append({"type": "response.output_item.added", "output_index": 0, "item": empty})
        if turn.tool:
            events.append(
                {
                    "type": "response.function_call_arguments.done",
                    "output_index": 0,
                    "item_id": "fc_1",
                    "arguments": item["arguments"],
                }
            )
        else:
            place = {"output_index": 0, "content_index": 0, "item_id": "msg_1"}
            part = {"type": "output_text", "text": "", "annotations": []}
            events.append({"type": "response.content_part.added", **place, "part": part})
            events.append({"type": "response.output_text.delta", **place, "delta": turn.text})
            events.append({"type": "response.output_text.done", **place, "text": turn.text})
        events.append({"type": "response.output_item.done", "output_index": 0, "item": item})
        events.append({"type": "response.completed", "response": whole})
        numbered = [{**event, "sequence_number": number} for number, event in enumerate(events)]
        self._stream(_to_named_events(numbered))

    def _messages(self, body: dict[str, Any]) -> None:
        tools = {tool["name"]: tool.get("input_schema", {}) for tool in body.get("tools") or ()}
        blocks = [
            block
            for message in body["messages"]
            if isinstance(message["content"], list)
            for block in message["content"]
        ]
        turn = self.provider.answer(tools, sum(block.get("type") == "tool_result" for block in blocks))
        block: dict[str, Any] = {"type": "text", "text": turn.text}
        if turn.tool:
            block = {"type": "tool_use", "id": turn.call_id, "name": turn.tool, "input": dict(turn.arguments)}
        reason = "tool_use" if turn.tool else "end_turn"
        usage = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS}
        message = {
            "id": f"msg_{turn.call_id}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "content": [],
        }
        message |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
        if not body.get("stream"):
            self._send({**message, "content": [block], "stop_reason": reason})
            return
        if turn.tool:
            start: dict[str, Any] = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(turn.arguments)}
        else:
            start, delta = {**block, "text": ""}, {"type": "text_delta", "text": turn.text}
        events = [
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": start},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ]
        self._stream(_to_named_events(events))

    def _gemini(self, body: dict[str, Any], *, is_streamed: bool) -> None:
        declared = [one for tool in body.get("tools") or () for one in tool.get("functionDeclarations", ())]
        tools = {one["name"]: one.get("parametersJsonSchema") or one.get("parameters", {}) for one in declared}
        parts = [part for content in body.get("contents", ()) for part in content.get("parts", ())]
        turn = self.provider.answer(tools, sum("functionResponse" in part for part in parts))
        part: dict[str, Any] = {"text": turn.text}
        if schema := body.get("generationConfig", {}).get("responseJsonSchema"):
            part = {"text": json.dumps(_to_sample(schema))}  # a question beside the work: which model to use, …
        elif turn.tool:
            part = {"functionCall": {"id": turn.call_id, "name": turn.tool, "args": dict(turn.arguments)}}
        usage = {"promptTokenCount": INPUT_TOKENS, "candidatesTokenCount": OUTPUT_TOKENS, "totalTokenCount": 120}
        content = {"role": "model", "parts": [part]}
        answer = {"candidates": [{"index": 0, "content": content, "finishReason": "STOP"}], "usageMetadata": usage}
        if is_streamed:
            self._stream([f"data: {json.dumps(answer)}\r\n\r\n"])
        else:
            self._send(answer)

    # -- the wire -----------------------------------------------------------------------------------------------------

    def _send(self, body: Mapping[str, Any], status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _stream(self, pieces: Sequence[str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            data = piece.encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


def _to_sample(schema: Mapping[str, Any]) -> Any:
    """Return a value that fits a plain schema."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = str(schema.get("type", "object")).lower()
    if kind == "object":
        return {name: _to_sample(part) for name, part in schema.get("properties", {}).items()}
    return {"boolean": False, "number": 1, "integer": 1, "array": []}.get(kind, "model")


def _to_named_events(events: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]


def main(port: str, script: str, log: str = "") -> None:
    fake = ProviderFake(Script(**json.loads(Path(script).read_text())), port=int(port), log=Path(log) if log else None)
    with fake:
        print(fake.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
