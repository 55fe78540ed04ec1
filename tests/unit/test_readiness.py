"""What a persona needs of a machine, and which backends are there."""

import socket
import sys
from typing import Any

import pytest

from holdfast.enums import Backend
from holdfast.persona import AgentPersona
from holdfast.readiness import find_available, find_backends, is_ready, list_needs


def persona(backend: str, **options: Any) -> AgentPersona:
    given = {"name": "one", "version": 1, "backend": backend, "capabilities": ["research"], **options}
    return AgentPersona.model_validate(given if "argv" in options else {"model": "any", **given})


@pytest.fixture
def listening() -> Any:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"


def test_a_key_is_needed_where_the_backend_or_the_file_names_one() -> None:
    (need,) = list_needs(persona("openai"), {})

    assert need == (False, "OPENAI_API_KEY is not set", "Set OPENAI_API_KEY.")
    assert is_ready(persona("openai"), {"OPENAI_API_KEY": "k"})
    assert not is_ready(persona("openai", api_key_env="OTHER_KEY"), {"OPENAI_API_KEY": "k"})


def test_a_command_needs_its_program() -> None:
    assert is_ready(persona("command", argv=[sys.executable, "-V"]), {})
    (need,) = list_needs(persona("command", argv=["no-such-program"]), {})
    assert need.told == "no-such-program is not on the path"


def test_a_server_without_a_key_must_answer(listening: str) -> None:
    assert is_ready(persona("openai_compatible", base_url=listening), {})
    (need,) = list_needs(persona("openai_compatible", base_url="http://127.0.0.1:9/v1"), {})
    assert need.told == "http://127.0.0.1:9/v1 does not answer"


def test_a_backend_is_there_if_one_of_its_personas_could_work(listening: str) -> None:
    pool = [
        persona("openai"),
        persona("openai_compatible", base_url="http://127.0.0.1:9/v1"),
        persona("openai_compatible", base_url=listening),
        persona("simulated"),
    ]

    assert find_backends(pool, {}) == {Backend.OPENAI_COMPATIBLE}
    assert find_available(pool, is_simulated=True).available_backends == {Backend.SIMULATED}
