"""What each provider's client sends when an answer by a schema is asked for."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
from langchain.agents.middleware import ModelRequest
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from tests.support.model_server import ModelServer, Refuses

from holdfast.agents.models.factory import open_models
from holdfast.agents.models.structured_output import ask_for_schema, to_strict
from holdfast.artifact_schema import ArtifactSchemaRegistry
from holdfast.config import Config
from holdfast.enums import Backend
from holdfast.persona import AgentPersona

ROOM = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name"],
    "properties": {"name": {"type": "string"}},
}


@tool
def look() -> str:
    """Look around."""
    return "nothing"


async def send(backend: Backend, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ask for a room, and return the body of the request."""
    monkeypatch.setenv("A_KEY", "a-key-for-tests")
    config = Config(data_dir=folder, database_url="", workspace_root=folder, config_dir=folder)
    with ModelServer({"": [Refuses(500)]}) as server:
        address = server.address if backend in (Backend.OPENAI, Backend.OPENROUTER) else server.address[: -len("/v1")]
        persona = AgentPersona(
            name="own",
            version=1,
            backend=backend,
            model="some-model",
            capabilities=("research",),
            base_url=address,
            api_key_env="A_KEY",
        )
        model = open_models(persona, config)[0]
        request = ask_for_schema(ModelRequest(model=model, messages=[HumanMessage("A room?")], tools=[look]), ROOM)
        assert request is not None
        bound: Any = (
            model.bind_tools(request.tools, tool_choice=request.tool_choice, **request.model_settings)
            if request.tools
            else model.bind(**request.model_settings)
        )
        with contextlib.suppress(Exception):  # the server understands none of them
            await bound.ainvoke(request.messages)
    return server.received[0].body


@pytest.mark.parametrize("backend", [Backend.OPENAI, Backend.OPENROUTER])
async def test_openai_and_openrouter(backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = await send(backend, tmp_path, monkeypatch)

    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "artifact", "strict": True, "schema": ROOM},
    }
    assert (body["tool_choice"], body["stream"], len(body["tools"])) == ("none", True, 1)
    assert ("usage" in body) is (backend is Backend.OPENROUTER)


async def test_anthropic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = await send(Backend.ANTHROPIC, tmp_path, monkeypatch)

    assert body["output_config"]["format"] == {"type": "json_schema", "schema": ROOM}
    assert (body["tool_choice"], len(body["tools"])) == ({"type": "none"}, 1)


async def test_ollama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = await send(Backend.OLLAMA, tmp_path, monkeypatch)

    assert body["format"] == ROOM
    assert not body.get("tools")


def test_every_schema_of_the_catalog_is_strict_or_not_and_no_strict_one_is_open() -> None:
    import holdfast.catalog

    registry = ArtifactSchemaRegistry(roots=[Path(holdfast.catalog.__file__).parent / "artifacts"])
    strict = {name: to_strict(registry.get_schema(name)) for name in registry.list_ids()}

    assert strict["dev/spec@1"] is not None
    assert strict["dev/spec@1"]["properties"]["risks"]["items"] == {"type": "string"}
    assert all("minLength" not in str(made) for made in strict.values())


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
        {"type": "array", "items": {"type": "object"}},
        {"oneOf": [{"type": "string"}]},
        {"type": "array", "items": True},
        {},
    ],
)
def test_what_cannot_be_enforced_is_not_called_strict(schema: dict[str, Any]) -> None:
    assert to_strict(schema) is None
