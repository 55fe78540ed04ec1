"""Role by role and route by route: who gets in, and that no route was forgotten."""

import pytest
from fastapi.routing import APIRoute
from tests.support.api.server_world import ROLES, Api, open_api

from holdfast.api.app import ROUTE_MODULES, create_app
from holdfast.config import load_config

LEAST_ROLE = {
    ("GET", "/api/runs"): "viewer",
    ("POST", "/api/runs"): "operator",
    ("GET", "/api/runs/{run_id}"): "viewer",
    ("POST", "/api/runs/{run_id}/resume"): "operator",
    ("POST", "/api/runs/{run_id}/retry"): "operator",
    ("POST", "/api/runs/{run_id}/pause"): "operator",
    ("POST", "/api/runs/{run_id}/abort"): "operator",
    ("POST", "/api/runs/{run_id}/fork"): "operator",
    ("POST", "/api/runs/{run_id}/budget"): "operator",
    ("POST", "/api/runs/{run_id}/merge"): "operator",
    ("DELETE", "/api/runs/{run_id}"): "admin",
    ("POST", "/api/runs/{run_id}/messages"): "operator",
    ("POST", "/api/conversations"): "operator",
    ("POST", "/api/workflows/validate"): "viewer",
    ("GET", "/api/runs/{run_id}/events"): "viewer",
    ("GET", "/api/runs/{run_id}/history"): "viewer",
    ("GET", "/api/events"): "viewer",
    ("GET", "/api/runs/{run_id}/artifacts/{name}"): "viewer",
    ("GET", "/api/runs/{run_id}/diff"): "viewer",
    ("GET", "/api/runs/{run_id}/report"): "viewer",
    ("GET", "/api/approvals"): "viewer",
    ("POST", "/api/approvals/{approval_id}"): "approver",
    ("GET", "/api/personas"): "viewer",
    ("GET", "/api/workflows"): "viewer",
    ("GET", "/api/budget"): "viewer",
    ("GET", "/api/statistics"): "viewer",
    ("GET", "/api/personas/availability"): "viewer",
    ("GET", "/api/repositories"): "operator",
    ("GET", "/api/repositories/files"): "operator",
    ("POST", "/api/runs/preview"): "operator",
    ("GET", "/api/runs/{run_id}/request"): "viewer",
    ("GET", "/api/checks"): "operator",
    ("GET", "/api/overview"): "viewer",
    ("GET", "/api/inbox"): "viewer",
    ("GET", "/api/runs/{run_id}/timeline"): "viewer",
    ("GET", "/api/runs/{run_id}/cost"): "viewer",
    ("GET", "/api/runs/{run_id}/changes"): "viewer",
    ("GET", "/api/runs/{run_id}/difference"): "viewer",
    ("GET", "/api/approvals/{approval_id}/changes"): "viewer",
    ("GET", "/api/approvals/{approval_id}/document"): "viewer",
    ("GET", "/api/runs/{run_id}/document"): "viewer",
    ("GET", "/api/runs/{run_id}/comparison"): "viewer",
    ("GET", "/api/runs/{run_id}/comparison/changes"): "viewer",
    ("GET", "/api/runs/{run_id}/plan"): "viewer",
    ("GET", "/metrics"): "viewer",
    ("POST", "/api/runs/{run_id}/budget/settlement"): "approver",
    ("GET", "/api/flows"): "viewer",
    ("GET", "/api/flows/{run_id}"): "viewer",
    ("POST", "/api/flows/{run_id}/answer"): "approver",
    ("POST", "/api/flows/{run_id}/abort"): "operator",
    ("GET", "/api/runs/{run_id}/outcome"): "viewer",
    ("GET", "/api/runs/{run_id}/model-call"): "viewer",
    ("GET", "/api/limits"): "viewer",
    ("PUT", "/api/limits"): "admin",
    ("DELETE", "/api/limits"): "admin",
    ("GET", "/api/schedules"): "viewer",
    ("POST", "/api/schedules"): "operator",
    ("GET", "/api/schedules/{name}"): "viewer",
    ("PATCH", "/api/schedules/{name}"): "operator",
    ("DELETE", "/api/schedules/{name}"): "operator",
    ("POST", "/api/schedules/{name}/runs"): "operator",
    ("GET", "/api/tokens"): "admin",
    ("GET", "/api/workers"): "viewer",
    ("POST", "/api/workers/{name}/drain"): "admin",
    ("POST", "/api/tokens"): "admin",
    ("DELETE", "/api/tokens/{token_id}"): "admin",
    ("GET", "/api/session"): "viewer",
}
OPEN = {("GET", "/api/health"), ("POST", "/api/session"), ("DELETE", "/api/session"), ("GET", "/login")}


def test_every_route_is_in_the_table(tmp_path_factory: pytest.TempPathFactory) -> None:
    app = create_app(load_config(data_dir=tmp_path_factory.mktemp("data")))
    found = {(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods}
    hidden = {
        (method, route.path)
        for module in ROUTE_MODULES
        for route in module.router.routes
        if isinstance(route, APIRoute) and not route.include_in_schema
        for method in route.methods
    }

    assert found | hidden == set(LEAST_ROLE) | OPEN


async def ask(api: Api, role: str, method: str, path: str) -> int:
    filled = path.format(run_id="none", name="none", approval_id="none", token_id="none")
    body = {} if method == "POST" else None
    params = {"last_event_id": "never"} if path == "/api/events" else {}  # who is let in is refused: it has no end
    return (await api.clients[role].request(method, filled, json=body, params=params)).status_code


async def test_each_role_gets_what_it_may_and_nothing_else(api: Api) -> None:
    wrong: list[str] = []
    for (method, path), least in LEAST_ROLE.items():
        if await ask(api, "nobody", method, path) != 401:
            wrong.append(f"nobody: {method} {path}")
        for role in ROLES:
            is_refused = await ask(api, role, method, path) == 403
            if is_refused != (ROLES.index(role) < ROLES.index(least)):
                wrong.append(f"{role}: {method} {path}")

    assert wrong == []


async def test_without_authentication_everybody_is_in(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace
    from pathlib import Path

    from tests.support.api.server_world import FAST

    from holdfast import engine

    monkeypatch.setattr(engine, "build_agent", engine.build_agent)
    async with open_api(Path(str(tmp_path)), replace(FAST, has_auth=False)) as api:
        answer = await api.nobody.get("/api/session")

    assert answer.json() == {"name": "local", "role": "admin", "expires_at": None}
