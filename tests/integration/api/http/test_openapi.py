"""The OpenAPI document, tried out request by request: nothing breaks, and nothing answers what is not written there."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator

import httpx
import jsonschema
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, settings
from tests.support.api.server_world import FAST, make_repository, make_tokens, use_note_agents

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
    thread.join()
    engine.build_agent = before


schema = schemathesis.openapi.from_dict(create_app(load_config()).openapi())  # opens nothing
CHECKS = [
    schemathesis.checks.not_a_server_error,
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_schema_conformance,
]


@schema.exclude(path="/api/events").parametrize()  # it has no end; below it is left after its first bytes
@settings(
    max_examples=5,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
def test_the_api_keeps_to_its_document(case: schemathesis.Case, served: tuple[str, str]) -> None:
    url, token = served

    answer = case.call(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=None)

    case.validate_response(answer, checks=CHECKS)


@pytest.mark.parametrize(
    "params", [{}, {"last_event_id": "0"}, {"last_event_id": "x"}, {"kinds": "a" * 300}, {"without_text": "perhaps"}]
)
def test_the_stream_of_all_runs_keeps_to_its_document(served: tuple[str, str], params: dict[str, str]) -> None:
    url, token = served
    documented = schema["/api/events"]["GET"].definition.raw["responses"]

    headers = {"Authorization": f"Bearer {token}"}
    with httpx.stream("GET", f"{url}/api/events", params=params, headers=headers, timeout=None) as answer:
        content_type = answer.headers["content-type"].partition(";")[0]
        first = next(answer.iter_lines())

    assert content_type in documented[str(answer.status_code)]["content"]
    assert first == "retry: 1000" or json.loads(first)["status"] == answer.status_code


def test_every_route_shows_what_it_takes_and_gives_and_the_examples_fit() -> None:
    document = create_app(load_config()).openapi()
    missing, wrong = [], []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            answers = [answer for status, answer in operation["responses"].items() if status.startswith("2")]
            for part in [operation.get("requestBody", {}), *answers]:
                for media_type, content in part.get("content", {}).items():
                    place = f"{method.upper()} {path} {media_type}"
                    if "example" not in content:
                        missing.append(place)
                        continue
                    checked = {**content["schema"], "components": document["components"]}
                    found = jsonschema.Draft202012Validator(checked).iter_errors(content["example"])
                    wrong += [f"{place}: {error.json_path} {error.message}" for error in found]

    assert missing == []
    assert wrong == []
