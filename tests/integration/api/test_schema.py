"""The OpenAPI document, tried out request by request: nothing breaks, and nothing answers what is not written there."""

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, settings
from tests.integration.api.world import FAST, make_repository, make_tokens, use_note_agents

from holdfast import engine
from holdfast.api.app import create_app
from holdfast.config import load_config


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A server in a thread of this process, and an admin's token for it."""
    folder = tmp_path_factory.mktemp("schema")
    (folder / "gates").mkdir()
    make_repository(folder / "work" / "repo")
    before = engine.build_agent
    use_note_agents(folder / "gates")
    config = load_config(data_dir=folder / "data", workspace_root=folder / "work")
    token = asyncio.run(make_tokens(config, ["admin"]))["admin"]
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_app(config, options=FAST), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    listening.listen()
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}", token
    server.should_exit = True
    thread.join(timeout=30)
    engine.build_agent = before


schema = schemathesis.openapi.from_dict(create_app(load_config()).openapi())  # opens nothing
CHECKS = [
    schemathesis.checks.not_a_server_error,
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_schema_conformance,
]


@schema.parametrize()
@settings(
    max_examples=5,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
def test_the_api_keeps_to_its_document(case: schemathesis.Case, served: tuple[str, str]) -> None:
    url, token = served

    answer = case.call(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=20)

    case.validate_response(answer, checks=CHECKS)
