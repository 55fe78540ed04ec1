"""Every provider's client as a persona asks for it, and the calls it really makes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.agents.phase import Phase
from tests.support.agents.served_phase import KEY, KEY_VARIABLE, ServedPhase
from tests.support.model_server import ModelServer, Says, asks, send

from holdfast.agents.models.factory import open_models
from holdfast.config import Config
from holdfast.enums import Backend
from holdfast.errors import BackendUnavailable
from holdfast.persona import AgentPersona

HAPPY = {"": [asks(("ls", {"path": "/"}), text="Let me see."), Says("All is well.")]}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    with ModelServer(HAPPY) as running:
        yield running


def persona(backend: Backend, model: str = "some-model", **more: Any) -> AgentPersona:
    return AgentPersona(name="own", version=1, backend=backend, model=model, capabilities=("research",), **more)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(data_dir=tmp_path, database_url="", workspace_root=tmp_path, config_dir=tmp_path)


async def test_an_agent_works_through_the_real_client(phase: Phase, server: ModelServer) -> None:
    served = ServedPhase(phase.folder, address=server.address)

    messages = await served.play(text="Go.")

    assert messages[-1].content == "All is well."
    assert [received.path for received in server.received] == ["/v1/chat/completions"] * 2
    assert server.received[0].headers["authorization"] == f"Bearer {KEY}"
    assert server.received[0].body["stream_options"] == {"include_usage": True}
    usages = [e.payload["result"]["usage"] for e in phase.events() if e.kind == "model.response"]
    assert usages == [{"input_tokens": 100, "output_tokens": 20}] * 2


async def test_a_foreign_server_gets_nothing_of_another_provider(
    phase: Phase, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-another-provider")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-another-provider")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    keyless = persona(Backend.OPENAI_COMPATIBLE, base_url=server.address, max_output_tokens=77)

    await open_models(keyless, phase.config)[0].ainvoke("Go.")

    assert "another-provider" not in json.dumps([dict(received.headers) for received in server.received])
    assert server.received[0].body["max_tokens"] == 77


@pytest.mark.parametrize("backend", [Backend.OPENAI, Backend.OPENROUTER, Backend.ANTHROPIC])
def test_a_missing_key_is_named(config: Config, monkeypatch: pytest.MonkeyPatch, backend: Backend) -> None:
    monkeypatch.delenv(persona(backend).key_variable or "", raising=False)

    with pytest.raises(BackendUnavailable) as refused:
        open_models(persona(backend), config)

    assert refused.value.facts["variable"] == persona(backend).key_variable
    assert persona(backend).key_variable in refused.value.message


def test_a_client_that_is_not_installed_is_named_with_its_extra(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "langchain_ollama", None)

    with pytest.raises(BackendUnavailable) as refused:
        open_models(persona(Backend.OLLAMA), config)

    assert "holdfast[ollama]" in refused.value.hint


def test_a_command_is_no_model(config: Config) -> None:
    with pytest.raises(BackendUnavailable) as refused:
        open_models(persona(Backend.COMMAND, model="", argv=("true",)), config)

    assert "--simulate" in refused.value.hint


@pytest.mark.parametrize(
    ("backend", "model", "limit", "context"),
    [
        (Backend.OPENAI, "gpt-6.1-sol", 128_000, 1_050_000 - 128_000),
        (Backend.OPENROUTER, "deepseek-v4-pro", 64_000, 936_000),
        (Backend.ANTHROPIC, "claude-haiku-5.5", 128_000, 872_000),
    ],
)
def test_limits_come_from_the_table(
    config: Config, monkeypatch: pytest.MonkeyPatch, backend: Backend, model: str, limit: int, context: int
) -> None:
    monkeypatch.setenv(persona(backend).key_variable or "", "a-key-for-tests")

    chat: Any = open_models(persona(backend, model), config)[0]

    assert chat.max_tokens == limit
    assert chat.profile["max_input_tokens"] == context
    assert chat.max_retries == 0


def test_fallbacks_follow_in_their_order_each_once(config: Config) -> None:
    several = persona(Backend.OLLAMA, "qwen3-coder", fallback_models=("qwen3", "qwen3-coder", "own:latest"))

    models: Any = open_models(several, config)

    assert [chat.model for chat in models] == ["qwen3-coder:30b", "qwen3:8b", "own:latest"]
    assert models[0].num_ctx == 32_768


SETTINGS = {"temperature": 0.2, "top_p": 0.9, "effort": "high"}


@pytest.mark.parametrize(
    ("backend", "reasoning"),
    [
        (Backend.OPENAI_COMPATIBLE, {"reasoning_effort": "high"}),
        (Backend.OPENAI, {"reasoning_effort": "high"}),
        (Backend.OPENROUTER, {"reasoning": {"effort": "high"}}),
    ],
)
async def test_model_settings_reach_the_server(
    config: Config, server: ModelServer, monkeypatch: pytest.MonkeyPatch, backend: Backend, reasoning: dict[str, Any]
) -> None:
    for variable in ("OPENAI_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.setenv(variable, KEY)
    own = persona(backend, base_url=server.address, model_settings=SETTINGS)

    await open_models(own, config)[0].ainvoke("Go.")

    body = server.received[0].body
    assert (body["temperature"], body["top_p"]) == (0.2, 0.9)
    assert {name: body[name] for name in reasoning} == reasoning


async def test_settings_that_nobody_made_are_not_sent(config: Config, server: ModelServer) -> None:
    await open_models(persona(Backend.OPENAI_COMPATIBLE, base_url=server.address), config)[0].ainvoke("Go.")
    assert not {"temperature", "top_p", "reasoning", "reasoning_effort"} & set(server.received[0].body)


def test_settings_reach_the_clients_of_other_protocols(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)

    def client(backend: Backend, **settings: Any) -> Any:
        return open_models(persona(backend, model_settings=settings), config)[0]

    thinking = client(Backend.ANTHROPIC, thinking_tokens=2048)
    assert thinking.thinking == {"type": "enabled", "budget_tokens": 2048}
    assert client(Backend.ANTHROPIC, effort="low", temperature=0.3).reasoning_effort == "low"
    assert client(Backend.ANTHROPIC, effort="none").thinking == {"type": "disabled"}
    assert client(Backend.OLLAMA, effort="none").reasoning is False
    assert client(Backend.OLLAMA, effort="medium", top_p=0.5).top_p == 0.5
    assert client(Backend.ANTHROPIC, max_output_tokens=77).max_tokens == 77


async def test_ollama_speaks_its_own_protocol(config: Config) -> None:
    answers = [{"message": {"role": "assistant", "content": text}, "done": False} for text in ("All ", "is well.")]
    end = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}
    lines = [{"model": "own", "created_at": "2026-11-15T00:00:00Z", **answer} for answer in [*answers, end]]
    lines[-1] |= {"prompt_eval_count": 9, "eval_count": 4}
    with LineServer("\n".join(json.dumps(line) for line in lines)) as server:
        own = persona(Backend.OLLAMA, "own", base_url=server.address.removesuffix("/v1"))
        answer: Any = await open_models(own, config)[0].ainvoke("Go.")

    assert answer.text == "All is well."
    assert (answer.usage_metadata["input_tokens"], answer.usage_metadata["output_tokens"]) == (9, 4)
    assert server.received[0].body["options"]["num_ctx"] == 32_768


async def test_anthropic_speaks_its_own_protocol(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    usage = {"input_tokens": 9, "output_tokens": 1}
    start = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "own", "usage": usage}
    frames = [
        {"type": "message_start", "message": {**start, "stop_reason": None, "stop_sequence": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "All is well."}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}},
        {"type": "message_stop"},
    ]
    events = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in frames)
    with LineServer(events, content_type="text/event-stream") as server:
        own = persona(Backend.ANTHROPIC, "own", base_url=server.address.removesuffix("/v1"), max_output_tokens=55)
        answer: Any = await open_models(own, config)[0].ainvoke("Go.")

    assert answer.text == "All is well."
    assert answer.usage_metadata["output_tokens"] == 4
    assert KEY in server.received[0].headers.get("x-api-key", server.received[0].headers.get("authorization", ""))
    assert server.received[0].body["max_tokens"] == 55


class LineServer(ModelServer):
    """Gives one and the same body, whatever it is asked."""

    def __init__(self, body: str, content_type: str = "application/x-ndjson") -> None:
        super().__init__({"": [Says("")]})
        self._body, self._content_type = body.encode(), content_type

    async def _answer(self, received: Any, writer: Any) -> None:
        await send(writer, 200, self._body, {"content-type": self._content_type})
