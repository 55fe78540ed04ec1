"""What the pages are made of: statistics, previews, repositories, availability, checks."""

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support.api.server_world import Api

from holdfast.api.preview.cost import estimate
from holdfast.api.workflow_statistics import WorkflowStatistics, to_statistics
from holdfast.catalog import Catalog, find_demands
from holdfast.catalog.model_table import load_model_table
from holdfast.consent import PersonaConsentStore
from holdfast.persistence.statistics import PastPhase, PastRun


def past(run_id: str, *, seconds: float | None = 10.0, **fields: Any) -> PastRun:
    defaults: dict[str, Any] = {
        "workflow": "w",
        "state": "completed",
        "is_simulated": False,
        "created_at": "2026-03-01T10:00:00.000Z",
        "cost_micros": 1_000_000,
        "waited_s": 0.0,
    }
    return PastRun(run_id=run_id, seconds=seconds, **{**defaults, **fields})


def test_figures_are_of_completed_runs_with_real_models() -> None:
    runs = [
        past("a", state="running", seconds=None, cost_micros=9_000_000),
        past("b", seconds=10, cost_micros=1_000_000, phases=[PastPhase("plan", 4.0, 500_000)]),
        past("c", seconds=30, cost_micros=3_000_000, phases=[PastPhase("plan", 8.0, 700_000)]),
        past("d", seconds=1, cost_micros=0, is_simulated=True),
        past("e", state="failed", seconds=500, cost_micros=8_000_000),
    ]

    (found,) = to_statistics(runs)

    assert (found.runs, found.rehearsals, found.measured, found.is_rehearsed) == (5, 1, 2, False)
    assert (found.median_s, found.median_cost_usd, found.most_cost_usd) == (20, 2.0, 3.0)
    assert found.by_state == {"running": 1, "completed": 3, "failed": 1}
    assert [(phase.key, phase.median_s, phase.median_cost_usd) for phase in found.phases] == [("plan", 6.0, 0.6)]


def test_without_real_runs_the_figures_are_of_rehearsals_and_say_so() -> None:
    (found,) = to_statistics([past("a", seconds=3, is_simulated=True, cost_micros=0)])

    assert (found.measured, found.is_rehearsed, found.median_s) == (1, True, 3)


def estimated(past_runs: WorkflowStatistics | None, *, is_simulated: bool = False, persona: str = "") -> Any:
    catalog = Catalog.for_repository(None)
    template = catalog.get_workflow("spec-and-review").definition
    personas = {entry.definition.name: entry.definition for entry in catalog.list_personas()}
    chosen = {role.id: personas[persona] for role in template.roles} if persona else {}
    table = load_model_table(None)
    return estimate(template, chosen, past=past_runs, table=table, is_simulated=is_simulated)


def test_an_estimate_is_made_of_runs_or_else_of_prices() -> None:
    (known,) = to_statistics([past("a"), past("b", cost_micros=3_000_000)])

    by_runs = estimated(known, persona="openrouter-deepseek-spec-writer")
    by_prices = estimated(None, persona="openrouter-deepseek-spec-writer")
    by_nothing = estimated(None, persona="command-codex")

    assert (by_runs.basis, by_runs.usd, by_runs.high_usd, by_runs.runs) == ("runs", 2.0, 3.0, 2)
    assert by_prices.basis == "prices"
    assert 0 < by_prices.low_usd < by_prices.usd < by_prices.high_usd
    assert (by_nothing.basis, by_nothing.usd, by_nothing.unpriced) == ("unknown", None, ["command-codex"])


def test_a_rehearsal_costs_nothing_and_takes_as_long_as_rehearsals_took() -> None:
    (rehearsed,) = to_statistics([past("a", seconds=3, is_simulated=True, cost_micros=0)])
    (real,) = to_statistics([past("a", seconds=300)])

    assert (estimated(rehearsed, is_simulated=True).usd, estimated(rehearsed, is_simulated=True).seconds) == (0.0, 3)
    assert estimated(real, is_simulated=True).seconds is None
    assert estimated(rehearsed, persona="openrouter-deepseek-spec-writer").basis == "prices"


async def test_statistics_count_the_runs_of_each_workflow(api: Api) -> None:
    await api.wait_for(await api.start())
    await api.wait_for(await api.start(workflow="asking-notes"), "paused")

    found = (await api.viewer.get("/api/statistics")).json()

    assert found["looked_at"] == 2
    by_name = {item["workflow"]: item for item in found["items"]}
    assert list(by_name) == ["asking-notes", "notes"]
    assert (by_name["notes"]["measured"], by_name["notes"]["is_rehearsed"]) == (1, True)
    assert [phase["key"] for phase in by_name["notes"]["phases"]] == ["first", "second"]
    assert by_name["asking-notes"]["median_s"] is None


async def look(api: Api, **changes: Any) -> dict[str, Any]:
    answer = await api.operator.post("/api/runs/preview", json=api.body(**changes))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_preview_says_who_would_work_and_why_and_starts_nothing(api: Api) -> None:
    (api.repo / "draft.txt").write_text("not committed")

    found = await look(api)

    (role,) = found["roles"]
    assert found["problems"] == []
    assert role["persona"].startswith("simulated-")
    assert role["persona"] in role["explanation"]
    assert any("backend" in " ".join(one["reasons"]) for one in role["candidates"] if not one["is_eligible"])
    assert (found["repository"]["branches"], found["repository"]["current_branch"]) == (["main"], "main")
    assert found["repository"]["uncommitted"] == ["draft.txt"]
    assert found["estimate"]["basis"] == "simulated"
    assert (await api.viewer.get("/api/runs")).json()["items"] == []


async def test_a_preview_names_every_problem_beside_its_field(api: Api) -> None:
    found = await look(api, base_branch="nowhere", persona_overrides={"author": "nobody", "ghost": "x"})

    assert {(one["field"], one["code"]) for one in found["problems"]} == {
        ("base_branch", "base_branch_missing"),
        ("persona_overrides.author", "persona_ineligible"),
        ("persona_overrides.ghost", "persona_ineligible"),
    }
    refused = await api.operator.post("/api/runs", json=api.body(persona_overrides={"author": "nobody"}))
    assert refused.status_code == 422
    assert [each["where"] for each in refused.json()["errors"]] == [["body", "persona_overrides"]]


async def test_a_preview_says_what_nobody_has_agreed_to_as_starting_would(api: Api) -> None:
    file = api.repo / ".holdfast" / "workflows" / "notes.yaml"
    file.write_text(file.read_text() + "setup: [[make, everything]]\n")

    by_name = await look(api)
    by_file = await look(api, workflow=".holdfast/workflows/notes.yaml")
    of_nobody = await look(api, persona_overrides={"author": "nobody"})
    refused = (await api.operator.post("/api/runs", json=api.body())).json()
    demands = find_demands(api.repo, Catalog.for_repository(api.repo).list_workflows())
    for demand in demands:
        PersonaConsentStore(api.config.data_dir / "consents.json").grant(demand)
    agreed = await look(api)

    (problem,) = by_name["problems"]
    assert (problem["field"], problem["code"], problem["message"]) == ("repo_path", refused["code"], refused["detail"])
    assert "workflow notes runs make everything" in problem["message"]
    assert "holdfast trust --repo" in problem["hint"]
    assert by_file["problems"] == by_name["problems"]
    assert [one["field"] for one in of_nobody["problems"]] == ["persona_overrides.author"]
    assert agreed["problems"] == []


async def test_a_preview_looks_up_nothing_for_a_persona_that_nobody_has_agreed_to(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is chosen and why would tell an operator which variables and programs the server has."""
    folder = api.repo / ".holdfast" / "personas"
    folder.mkdir(exist_ok=True)
    text = "version: 9\ncapabilities: [spec_write, code_review, doc_write, research]\n"
    (folder / "one.yaml").write_text(f"name: one\nbackend: openai\nmodel: m\napi_key_env: SOME_SERVICE_KEY\n{text}")
    (folder / "two.yaml").write_text(f"name: two\nbackend: command\nargv: [some-program]\n{text}")

    async def ask() -> Any:
        found = await look(api, simulate=False)
        started = await api.operator.post("/api/runs", json=api.body(simulate=False))
        return found["roles"], found["problems"], started.json().get("detail")

    without = await ask()
    monkeypatch.setenv("SOME_SERVICE_KEY", "a-key")
    (tmp_path / "some-program").write_text("#!/bin/sh\n")
    (tmp_path / "some-program").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    assert await ask() == without
    assert "SOME_SERVICE_KEY is" not in str(without)
    assert "some-program is" not in str(without)


async def test_a_preview_of_a_foreign_folder_opens_nothing_there(api: Api, tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("name: secret")

    outside = await look(api, repo_path=str(tmp_path))
    by_file = await look(api, repo_path=str(tmp_path), workflow=str(tmp_path / "secret.yaml"))
    missing = await look(api, repo_path=str(api.repo / "none"))

    assert [one["code"] for one in outside["problems"]] == ["repository_not_allowed", "template_not_found"]
    assert outside["repository"] is None
    assert "secret" not in str(by_file["problems"])
    assert ("repo_path", "repository_missing") in {(one["field"], one["code"]) for one in missing["problems"]}


async def test_a_preview_of_an_empty_or_plain_folder_has_no_problem(api: Api) -> None:
    empty, plain = api.repo.parent / "empty", api.repo.parent / "plain"
    plain.mkdir()
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", str(empty)], check=True)

    of_empty = await look(api, repo_path=str(empty), workflow="spec-and-review")
    of_plain = await look(api, repo_path=str(plain), workflow="spec-and-review")

    assert (of_empty["problems"], of_empty["repository"]["is_git"]) == ([], True)
    assert (of_plain["problems"], of_plain["repository"]["is_git"]) == ([], False)
    assert list((empty / ".git" / "objects").glob("??")) == []


async def test_a_run_tells_what_it_was_started_with_so_that_one_like_it_can_be(api: Api) -> None:
    body = api.body(title="First", requirements_md="Two notes", budget_usd=1.5)
    at = "2126-01-02T03:04:05Z"
    first = await api.start(**body, persona_overrides={"author": "simulated-stand-in"}, priority=-3, at=at)
    second = await api.start(**body)

    request = (await api.viewer.get(f"/api/runs/{first}/request")).json()
    default = (await api.viewer.get(f"/api/runs/{second}/request")).json()

    choices = {"base_branch": "main", "persona_overrides": {"author": "simulated-stand-in"}, "priority": -3}
    assert request == {**body, **choices, "queue": "runs"}
    assert (default["persona_overrides"], default["priority"]) == ({}, 0)
    assert (await api.operator.post("/api/runs", json=request)).status_code == 202


async def test_repositories_used_come_first_then_those_that_lie_around(api: Api) -> None:
    other = api.repo.parent / "group" / "other"
    (other / ".git").mkdir(parents=True)
    (api.repo.parent / "group" / "deep" / "er" / "down" / ".git").mkdir(parents=True)
    (api.repo.parent / "link").symlink_to("/")
    await api.start()

    found = (await api.operator.get("/api/repositories")).json()

    assert [item["path"] for item in found["items"]] == [str(api.repo), str(other)]
    assert (found["items"][0]["runs"], found["items"][0]["base_branch"]) == (1, "main")
    assert found["workspace_root"] == str(api.repo.parent)


async def test_personas_say_what_they_lack(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "set")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    answer = await api.viewer.get("/api/personas/availability")
    items = {item["name"]: item for item in answer.json()["items"]}

    assert items["anthropic-sonnet-reviewer"]["is_available"]
    assert items["anthropic-sonnet-reviewer"]["prices"]["input_usd"] > 0
    assert items["openai-sol-implementer"]["reasons"] == ["OPENAI_API_KEY is not set"]
    assert "OPENAI_API_KEY" in items["openai-sol-implementer"]["remedy"]
    assert "read_file" in items["openai-sol-implementer"]["tools"]
    assert "set" not in [item["remedy"] for item in items.values()]


async def test_checks_are_made_once_for_many_who_ask(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.api.routes import checks
    from holdfast.doctor import Check

    looks: list[str] = []

    def count_looks(config: Any) -> list[Check]:
        looks.append(str(config.data_dir))
        return [Check("git", "good", "2.40"), Check("disk", "bad", "full", "Free some space.")]

    monkeypatch.setattr(checks, "check_all", count_looks)

    answers = await asyncio.gather(*(api.operator.get("/api/checks") for _ in range(5)))

    assert looks == [str(api.config.data_dir)]
    report = answers[0].json()
    assert (report["is_well"], [check["name"] for check in report["checks"]]) == (False, ["disk", "git"])
    assert report["verdict"] == {"tone": "bad", "text": "This stands in the way: disk."}
    assert report["server"]["database"] == "sqlite"
    assert report["server"]["drives_runs"]
    assert "password" not in answers[0].text


async def test_a_browser_with_a_used_link_is_led_to_the_login_page(api: Api) -> None:
    answer = await api.client(Accept="text/html").get("/login", params={"code": "used"})

    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in?problem=link")
