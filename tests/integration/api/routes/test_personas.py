"""One question, one answer: who is ready, for the Personas page, the preview of a run, and starting it."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.api.server_world import Api
from tests.support.model_server import ModelServer, own_persona

from holdfast import readiness
from holdfast.api.serve import GracefulServer, to_uvicorn

ALL = "spec_write, phase_planning, code_write, test_write, code_review"


@pytest.fixture(autouse=True)
def nobody_has_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)


@pytest.fixture
def models() -> Iterator[ModelServer]:
    with ModelServer({}) as server:
        yield server


@pytest.fixture
async def own_address(api: Api) -> AsyncIterator[str]:
    """Where this holdfast serves."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    config = to_uvicorn(api.app)
    config.lifespan = "off"
    server = GracefulServer(config)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    await serving


def write_persona(api: Api, address: str, name: str = "mine", folder: Path | None = None) -> None:
    personas = (folder or api.config.config_dir) / "personas"
    personas.mkdir(parents=True, exist_ok=True)
    (personas / f"{name}.yaml").write_text(own_persona(address, ALL).replace("name: mine", f"name: {name}"))


async def read_ready(api: Api, **params: Any) -> dict[str, dict[str, Any]]:
    answer = await api.viewer.get("/api/personas/availability", params=params)
    return {item["name"]: item for item in answer.json()["items"]}


async def preview(api: Api, **changes: Any) -> dict[str, Any]:
    body = api.body(workflow="feature-delivery", simulate=False, **changes)
    answer: dict[str, Any] = (await api.operator.post("/api/runs/preview", json=body)).json()
    return answer


async def test_the_preview_chooses_only_whom_the_personas_page_calls_ready(api: Api, models: ModelServer) -> None:
    write_persona(api, "http://127.0.0.1:9/v1", "away")
    write_persona(api, models.address, "there")

    ready, roles = await read_ready(api), (await preview(api))["roles"]

    assert [name for name, item in ready.items() if item["portrait"]["group"] == "ready"] == ["there"]
    assert {role["persona"] for role in roles} == {"there"}
    for candidate in roles[0]["candidates"]:
        if candidate["is_eligible"]:
            assert ready[candidate["name"]]["is_available"], candidate
        elif not any(reason.startswith(("it lacks", "backend simulated")) for reason in candidate["reasons"]):
            assert candidate["reasons"] == ready[candidate["name"]]["reasons"][:1]
    away = next(candidate for candidate in roles[0]["candidates"] if candidate["name"] == "away")
    assert away["label"] == "away: http://127.0.0.1:9/v1 does not answer"


async def test_a_persona_shows_every_tool_that_its_agent_has(api: Api) -> None:
    personas = api.config.config_dir / "personas"
    personas.mkdir(parents=True, exist_ok=True)
    more = "permissions: {tools: [grep, execute, web_fetch, write_todos]}"
    (personas / "reader.yaml").write_text(own_persona("http://127.0.0.1:9/v1", ALL, more))

    item = (await read_ready(api))["mine"]

    assert item["tools"] == ["read_file", "grep", "execute", "write_todos", "web_fetch"]


async def test_holdfast_is_no_model_server(api: Api, own_address: str) -> None:
    write_persona(api, f"{own_address}/v1", "itself")

    ready = await read_ready(api)

    assert ready["itself"]["reasons"] == [f"{own_address}/v1 is holdfast itself, no model server"]
    form = ready["openai-compatible-generalist"]
    assert (form["is_available"], form["reasons"]) == (False, ["no model is named yet"])


async def test_a_run_that_nobody_is_ready_for_is_refused_in_few_words(api: Api) -> None:
    body = api.body(workflow="feature-delivery", simulate=False)

    answer = await api.operator.post("/api/runs", json=body)
    problem = answer.json()

    assert (answer.status_code, problem["code"], problem["role_id"]) == (422, "persona_ineligible", "author")
    assert len(problem["detail"]) < 200
    assert problem["detail"].startswith("Nobody is ready for role author: it needs OPENROUTER_API_KEY, ")
    missing = {entry["persona"]: entry for entry in problem["missing"]}
    assert missing["openrouter-deepseek-spec-writer"]["remedy"] == "Set OPENROUTER_API_KEY."
    (role_problem, *_) = [role["problem"] for role in (await preview(api))["roles"]]
    assert (role_problem["message"], role_problem["hint"]) == (problem["detail"], problem["hint"])


async def test_a_form_is_not_chosen_by_name_either_and_says_what_to_set(api: Api) -> None:
    form = "openai-compatible-generalist"

    answer = await api.operator.post(
        "/api/runs",
        json=api.body(workflow="feature-delivery", simulate=False, persona_overrides={"author": form}),
    )

    assert answer.json()["detail"] == f"Role author cannot be given to {form}: no model is named yet."
    assert "set base_url and model" in answer.json()["hint"]


async def test_no_server_of_a_strangers_repository_is_asked_before_somebody_agrees(
    api: Api, models: ModelServer
) -> None:
    write_persona(api, models.address, "stranger", folder=api.repo / ".holdfast")
    body = api.body(workflow="feature-delivery", simulate=False)

    listed = await read_ready(api, repo_path=str(api.repo))
    answer = await preview(api)
    started = await api.operator.post("/api/runs", json=body)

    assert listed["stranger"]["reasons"] == ["nobody has agreed to it yet"]
    assert {problem["code"] for problem in answer["problems"]} == {"consent_required"}
    assert (started.status_code, started.json()["code"]) == (409, "consent_required")
    assert models.looked_at == []


async def test_nothing_of_a_repository_that_nobody_trusts_is_contacted_or_looked_up(
    api: Api, models: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = api.repo / ".holdfast"
    write_persona(api, models.address, "caller", own)
    key = "name: keyed\nversion: 1\nbackend: openai\nmodel: m\ncapabilities: [spec_write]\napi_key_env: MY_SECRET\n"
    program = "name: runner\nversion: 1\nbackend: command\ncapabilities: [spec_write]\nargv: [git]\n"
    (own / "personas" / "keyed.yaml").write_text(key)
    (own / "personas" / "runner.yaml").write_text(program)
    monkeypatch.setenv("MY_SECRET", "x")
    looked_up: list[str] = []
    monkeypatch.setattr(readiness.shutil, "which", lambda name, *_a, **_kw: looked_up.append(name))
    monkeypatch.setattr(readiness, "find_key", lambda name, *_a, **_kw: looked_up.append(name))

    ready = await read_ready(api, repo_path=str(api.repo))

    assert [ready[name]["reasons"] for name in ("caller", "keyed", "runner")] == [["nobody has agreed to it yet"]] * 3
    assert not {"git", "MY_SECRET"} & set(looked_up)
    assert models.looked_at == []


async def test_many_servers_that_say_nothing_cost_little_and_hold_nobody_up(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = socket.socket()
    silent.bind(("127.0.0.1", 0))
    silent.listen(200)
    for number in range(40):
        write_persona(api, f"http://127.0.0.1:{silent.getsockname()[1]}/{number}", f"p{number}")
    under_way = most_at_once = count = 0
    real = readiness.ask_server

    def ask(*place: Any) -> Any:
        nonlocal under_way, most_at_once, count
        under_way, count = under_way + 1, count + 1
        most_at_once = max(most_at_once, under_way)
        try:
            return real(*place)
        finally:
            under_way -= 1

    monkeypatch.setattr(readiness, "ask_server", ask)
    asking = [asyncio.create_task(read_ready(api)) for _ in range(30)]
    try:
        health = await api.nobody.get("/api/health")
        is_answered_first = not any(task.done() for task in asking)
        found = await asyncio.gather(*asking)
    finally:
        silent.close()

    assert (health.status_code, is_answered_first) == (200, True)
    assert {len(ready) for ready in found} == {len(found[0])}
    assert count <= 3 * 17  # those who asked at the same time share it; ollama's own address is one more
    assert most_at_once <= 2 * 16
    assert "was not asked" in "".join(reason for item in found[0].values() for reason in item["reasons"])
