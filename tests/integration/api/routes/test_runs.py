"""Runs over HTTP: started, watched, moved and read."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from tests.support.api.server_world import Api, open_api
from tests.support.progress_limit import until

from holdfast import engine
from holdfast.agents.tools.shell import probe_once
from holdfast.catalog import Catalog, find_demands
from holdfast.consent import PersonaConsentStore
from holdfast.persistence.db import Database
from holdfast.persistence.statements import pause_run, resume_run
from holdfast.presentation.format import describe_sandbox
from holdfast.runtime.stores import open_journal


async def test_a_started_run_is_driven_to_its_end(api: Api) -> None:
    answer = await api.operator.post("/api/runs", json=api.body(requirements_md="Two notes"))
    assert answer.status_code == 202
    assert answer.json()["state"] == "pending"

    detail = await api.wait_for(answer.json()["run_id"])

    assert detail["state"] == "completed", detail["error"]
    assert detail["started_by"] == "operator"
    assert [phase["state"] for phase in detail["phases"]] == ["completed", "completed"]
    assert [item["name"] for item in detail["artifacts"]] == ["first.json", "second.json"]
    assert detail["last_events"][-1]["kind"] == "run.completed"
    assert detail["seq"] == detail["last_events"][-1]["seq"]


async def test_the_list_comes_in_pages_newest_first(api: Api) -> None:
    started = [await api.start(title=f"run {number}") for number in range(5)]

    seen: list[str] = []
    cursor = None
    while True:
        params = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        page = (await api.viewer.get("/api/runs", params=params)).json()
        seen += [item["run_id"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break

    assert seen == started[::-1]
    found = (await api.viewer.get("/api/runs", params={"text": "run 3"})).json()
    assert [item["run_id"] for item in found["items"]] == [started[3]]


async def test_the_list_is_filtered_by_state(api: Api) -> None:
    run_id = await api.start()
    await api.wait_for(run_id)

    completed = (await api.viewer.get("/api/runs", params={"state": "completed"})).json()
    failed = (await api.viewer.get("/api/runs", params={"state": "failed"})).json()

    assert [item["run_id"] for item in completed["items"]] == [run_id]
    assert failed == {"items": [], "next_cursor": None}


async def test_the_list_is_filtered_by_repository(api: Api) -> None:
    run_id = await api.start()
    await api.wait_for(run_id)

    here = (await api.viewer.get("/api/runs", params={"repo": api.repo.name})).json()
    elsewhere = (await api.viewer.get("/api/runs", params={"repo": "r%po"})).json()

    assert [item["run_id"] for item in here["items"]] == [run_id]
    assert elsewhere["items"] == []


async def test_the_list_is_filtered_by_person_time_and_workflow_and_ordered(api: Api) -> None:
    mine = await api.start(title="mine")
    theirs = (await api.admin.post("/api/runs", json=api.body(title="theirs"))).json()["run_id"]
    created = (await api.viewer.get(f"/api/runs/{theirs}")).json()["created_at"]

    async def find(**params: str) -> list[str]:
        return [item["run_id"] for item in (await api.viewer.get("/api/runs", params=params)).json()["items"]]

    assert await find(person="admin") == [theirs]
    assert await find(since=created) == [theirs]
    assert await find(until=created) == [mine]
    assert await find(workflow="no such") == []
    assert await find(order="oldest") == [mine, theirs]
    first = (await api.viewer.get("/api/runs", params={"order": "costliest", "limit": 1})).json()
    wrong = await api.viewer.get("/api/runs", params={"order": "longest", "cursor": first["next_cursor"]})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "cursor_invalid")


async def test_details_have_an_etag_that_changes_with_the_run(api: Api) -> None:
    run_id = await api.start(workflow="asking-notes")
    await api.wait_for(run_id, "paused")
    first = await api.viewer.get(f"/api/runs/{run_id}")
    tag = first.headers["etag"]

    same = await api.viewer.get(f"/api/runs/{run_id}", headers={"If-None-Match": tag})
    await api.operator.post(f"/api/runs/{run_id}/abort")
    changed = await api.viewer.get(f"/api/runs/{run_id}", headers={"If-None-Match": tag})

    assert (same.status_code, same.content) == (304, b"")
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag


async def test_the_same_key_gives_the_same_run(api: Api) -> None:
    headers = {"Idempotency-Key": "nightly-1"}
    first = await api.operator.post("/api/runs", json=api.body(), headers=headers)
    again = await api.operator.post("/api/runs", json=api.body(), headers=headers)
    other = await api.operator.post("/api/runs", json=api.body(title="another"), headers=headers)
    by_somebody_else = await api.admin.post("/api/runs", json=api.body(), headers=headers)

    assert again.json() == first.json()
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert by_somebody_else.json()["run_id"] != first.json()["run_id"]


async def test_the_same_key_many_times_at_once_makes_one_run(api: Api) -> None:
    headers = {"Idempotency-Key": "double-click"}
    answers = await asyncio.gather(
        *(api.operator.post("/api/runs", json=api.body(), headers=headers) for _ in range(8))
    )

    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["run_id"] for answer in answers}) == 1
    assert len((await api.viewer.get("/api/runs")).json()["items"]) == 1


async def test_the_same_key_forks_once_and_gives_money_once(api: Api) -> None:
    (api.gates / "second.closed").touch()
    run_id = await api.start(budget_usd=5)
    await api.wait_until_reached(run_id, "second")

    async def send(verb: str, body: dict[str, Any], key: str) -> httpx.Response:
        return await api.operator.post(f"/api/runs/{run_id}/{verb}", json=body, headers={"Idempotency-Key": key})

    forks = await asyncio.gather(*(send("fork", {"phase_key": "second"}, "fork") for _ in range(3)))
    raised = [await send("budget", {"amount_usd": 2}, "money") for _ in range(3)]
    mixed = await send("budget", {"amount_usd": 2}, "fork")
    (api.gates / "second.closed").unlink()

    assert {answer.status_code for answer in [*forks, *raised]} == {202}
    assert len({answer.json()["run_id"] for answer in forks}) == 1
    assert (mixed.status_code, mixed.json()["code"]) == (422, "idempotency_key_reused")
    assert (await api.wait_for(run_id))["budget_usd"] == 7


async def test_a_failed_run_is_retried_and_completes(api: Api) -> None:
    (api.gates / "second.fails").touch()
    run_id = await api.start()
    failed = await api.wait_for(run_id)
    assert (failed["state"], failed["error"]["code"]) == ("failed", "agent_failed")
    (api.gates / "second.fails").unlink()

    answer = await api.operator.post(f"/api/runs/{run_id}/retry")

    assert answer.status_code == 202
    assert (await api.wait_for(run_id, "completed"))["error"] is None


async def test_a_run_is_aborted_while_it_works(api: Api) -> None:
    (api.gates / "first.closed").touch()
    run_id = await api.start()
    await api.wait_until_reached(run_id, "first")

    answer = await api.operator.post(f"/api/runs/{run_id}/abort", json={"reason": "wrong repository"})

    assert (answer.status_code, answer.json()["state"]) == (202, "cancelled")
    last = (await api.wait_for(run_id))["last_events"][-1]
    assert (last["kind"], last["payload"]["by"], last["payload"]["reason"]) == (
        "run.cancelled",
        "operator",
        "wrong repository",
    )


async def test_a_run_is_paused_by_a_person_and_resumed(api: Api) -> None:
    (api.gates / "first.closed").touch()
    run_id = await api.start()
    await api.wait_until_reached(run_id, "first")

    paused = await api.operator.post(f"/api/runs/{run_id}/pause")
    assert paused.json()["state"] == "paused"
    (api.gates / "first.closed").unlink()
    resumed = await api.operator.post(f"/api/runs/{run_id}/resume")

    assert resumed.status_code == 202
    assert (await api.wait_for(run_id))["state"] == "completed"


async def test_a_run_for_later_is_resumed_now(api: Api) -> None:
    run_id = await api.start(at="2099-01-01T00:00:00Z")
    assert (await api.operator.get(f"/api/runs/{run_id}")).json()["refusals"]["resume"] is None

    assert (await api.operator.post(f"/api/runs/{run_id}/resume")).status_code == 202

    assert (await api.wait_for(run_id))["state"] == "completed"


async def test_a_run_that_another_process_drives_is_not_resumed(api: Api) -> None:
    (api.gates / "first.closed").touch()
    run_id = await api.start()
    await api.wait_until_reached(run_id, "first")
    await api.operator.post(f"/api/runs/{run_id}/pause")
    server = await api.app.state.holder.get()
    async with open_journal(server.db.store) as journal:
        claim = await journal.claim(run_id)
        await journal.append(run_id, [], claim=claim, rows=[resume_run(run_id, is_started_now=False)])

        refused = await api.operator.post(f"/api/runs/{run_id}/resume")

        await journal.append(run_id, [], claim=claim, rows=[pause_run(run_id, "person")])
        await journal.release(claim)
    assert (refused.status_code, refused.json()["code"]) == (409, "run_busy")


async def test_who_resumes_a_run_can_accept_that_its_agents_have_changed(api: Api) -> None:
    (api.gates / "first.closed").touch()
    run_id = await api.start()
    await api.wait_until_reached(run_id, "first")
    await api.operator.post(f"/api/runs/{run_id}/pause")
    (api.gates / "first.closed").unlink()

    await api.operator.post(f"/api/runs/{run_id}/resume", json={"accept_drift": True})
    await api.wait_for(run_id)

    server = await api.app.state.holder.get()
    events = await server.journal.read(run_id)
    request = next(event for event in events if event.kind == "run.resume.requested")
    resumed = next(event for event in events if event.kind == "run.resumed" and event.seq > request.seq)
    assert (request.payload["by"], request.payload["accept_drift"]) == ("operator", True)
    assert resumed.payload["accept_drift"] is True


async def test_a_fork_begins_before_its_phase(api: Api) -> None:
    run_id = await api.start()
    await api.wait_for(run_id)

    answer = await api.operator.post(f"/api/runs/{run_id}/fork", json={"phase_key": "second"})

    forked = await api.wait_for(answer.json()["run_id"])
    assert (answer.status_code, forked["state"], forked["forked_from"]) == (202, "completed", run_id)


async def test_a_run_over_the_limit_says_what_it_waits_for(api: Api) -> None:
    (api.gates / "first.closed").touch()
    working = [await api.start() for _ in range(4)]
    for run_id in working:
        await api.wait_until_reached(run_id, "first")
    waiting = await api.start()
    server = await api.app.state.holder.get()
    await until(lambda: server.worker.find_reason(waiting) is not None)

    detail = (await api.viewer.get(f"/api/runs/{waiting}")).json()

    assert detail["state"] == "pending"
    assert "4 runs already" in detail["waiting_for"]
    (api.gates / "first.closed").unlink()
    assert (await api.wait_for(waiting))["state"] == "completed"


async def test_verbs_refuse_what_does_not_fit_the_state(api: Api) -> None:
    run_id = await api.start()
    await api.wait_for(run_id)

    refused = {
        verb: await api.operator.post(f"/api/runs/{run_id}/{verb}", json=body)
        for verb, body in [("resume", None), ("retry", None), ("abort", None), ("budget", {"amount_usd": 1})]
    }
    unknown = [await api.operator.post(f"/api/runs/nowhere/{verb}") for verb in ("resume", "retry", "abort", "pause")]

    assert {verb: answer.status_code for verb, answer in refused.items()} == dict.fromkeys(refused, 409)
    assert {answer.status_code for answer in unknown} == {404}
    assert {answer.json()["code"] for answer in unknown} == {"run_not_found"}


async def test_what_a_run_made_can_be_read(api: Api) -> None:
    run_id = await api.start()
    await api.wait_for(run_id)

    artifact = await api.viewer.get(f"/api/runs/{run_id}/artifacts/first.json")
    by_phase = await api.viewer.get(f"/api/runs/{run_id}/artifacts/first")
    part = await api.viewer.get(f"/api/runs/{run_id}/artifacts/first.json", headers={"Range": "bytes=2-5"})
    outside = await api.viewer.get(f"/api/runs/{run_id}/artifacts/first.json", headers={"Range": "bytes=999-"})
    url = f"/api/runs/{run_id}/diff"
    plain = await api.viewer.get(url)
    diff = await api.viewer.get(url, params={"artifacts": True})
    of_phase = await api.viewer.get(url, params={"artifacts": True, "phase": "second"})
    report = await api.viewer.get(f"/api/runs/{run_id}/report")
    for_people = await api.viewer.get(f"/api/runs/{run_id}/report", params={"format": "md"})

    assert artifact.json() == {"note": "a note"} == by_phase.json()
    assert artifact.headers["content-type"] == "application/json"
    assert artifact.headers["content-disposition"] == 'attachment; filename="first.json"'
    assert (part.status_code, part.content) == (206, artifact.content[2:6])
    assert part.headers["content-range"] == f"bytes 2-5/{len(artifact.content)}"
    assert outside.status_code == 416
    assert "+++ b/first.json" in diff.text
    assert "first.json" not in of_phase.text
    assert (plain.status_code, plain.text) == (200, "")  # it handed in what was asked for, and changed nothing else
    assert diff.headers["content-type"].startswith("text/plain")
    assert json.loads(report.text)["state"] == "completed"
    assert for_people.text.startswith("# notes: completed")


async def test_a_run_that_is_not_over_has_no_report(api: Api) -> None:
    run_id = await api.start(workflow="asking-notes")
    await api.wait_for(run_id, "paused")

    answer = await api.viewer.get(f"/api/runs/{run_id}/report")

    assert (answer.status_code, answer.json()["code"]) == (404, "report_missing")


async def test_catalog_budget_health_and_metrics(api: Api) -> None:
    await api.wait_for(await api.start())

    own = (await api.viewer.get("/api/workflows", params={"repo_path": str(api.repo)})).json()["items"]
    personas = (await api.viewer.get("/api/personas")).json()["items"]
    budget = (await api.viewer.get("/api/budget")).json()
    health = (await api.nobody.get("/api/health")).json()
    metrics = await api.viewer.get("/metrics")

    assert {"notes", "spec-and-review"} <= {item["name"] for item in own}
    assert {item["source"] for item in own} == {"repository", "package"}
    assert len(personas) >= 12
    assert {"day", "spent_today_usd", "days", "by_workflow", "by_persona", "by_model"} <= set(budget)
    assert health["status"] == "ok"
    assert 'holdfast_runs{state="completed"} 1' in metrics.text
    assert "holdfast_journal_commit_seconds_count" in metrics.text
    assert 'holdfast_phase_seconds_count{state="completed"} 2' in metrics.text


async def test_what_a_repository_would_run_waits_for_whoever_runs_the_server(api: Api) -> None:
    file = api.repo / ".holdfast" / "workflows" / "building-notes.yaml"
    text = (file.parent / "notes.yaml").read_text().replace("name: notes", "name: building-notes")
    file.write_text(f"{text}setup: [['true']]\n")
    body = api.body(workflow="building-notes")

    refused = await api.operator.post("/api/runs", json=body)
    by_file = await api.operator.post("/api/runs", json={**body, "workflow": ".holdfast/workflows/building-notes.yaml"})
    catalog = Catalog.for_repository(api.repo)
    for demands in find_demands(api.repo, catalog.list_workflows()):
        PersonaConsentStore(api.config.data_dir / "consents.json").grant(demands)
    run_id = await api.start(workflow="building-notes")

    assert (refused.status_code, refused.json()["code"]) == (409, "consent_required")
    assert (by_file.status_code, by_file.json()["code"]) == (409, "consent_required")
    assert (await api.wait_for(run_id))["state"] == "completed"


async def test_a_request_that_waited_too_long_for_the_database_is_told_to_come_back(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await api.app.state.holder.get()
    small = Database(api.config.database_url, connections=1, wait_s=0.1)
    async with small.session() as session:
        await session.execute(text("SELECT 1"))  # the only connection there is
        monkeypatch.setattr(server.db, "session", small.session)
        answer = await api.viewer.get("/api/runs")
        monkeypatch.undo()
    await small.dispose()

    assert (answer.status_code, answer.json()["code"], answer.headers["retry-after"]) == (503, "store_busy", "5")


async def test_no_request_needs_two_connections_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "build_agent", engine.build_agent)
    monkeypatch.setenv("HOLDFAST_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").write_text("database_connections = 1")
    async with open_api(tmp_path) as api:
        done, waiting = await api.start(), await api.start(workflow="asking-notes")
        await asyncio.gather(api.wait_for(done), api.wait_for(waiting, "paused"))
        of_run = ["", "/plan", "/timeline", "/cost", "/changes", "/diff", "/report"]
        of_all = ["runs", "inbox", "overview", "approvals", "budget", "workflows", "statistics"]
        paths = 3 * [*(f"/api/runs/{done}{path}" for path in of_run), *(f"/api/{path}" for path in of_all)]

        answers = await asyncio.gather(*(api.viewer.get(path) for path in paths))

        assert dict(zip(paths, [answer.status_code for answer in answers], strict=True)) == dict.fromkeys(paths, 200)


async def test_no_request_takes_the_sandbox_away_unless_the_server_allows_it(api: Api) -> None:
    refused = await api.admin.post("/api/runs", json=api.body(unsandboxed=True))

    assert (refused.status_code, refused.json()["code"]) == (403, "unsandboxed_not_allowed")
    assert (await api.viewer.get("/api/runs")).json()["items"] == []


async def test_a_server_may_allow_runs_without_a_sandbox(furnished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "build_agent", engine.build_agent)
    async with open_api(furnished, allow_unsandboxed=True) as api:
        chosen = await api.wait_for(await api.start(unsandboxed=True))
        usual = await api.wait_for(await api.start())

    assert chosen["sandbox"] == "no sandbox, chosen by operator"
    assert usual["sandbox"] == describe_sandbox(probe_once().kind, None)


async def test_the_page_shows_what_contains_the_commands(api: Api) -> None:
    run_id = await api.start()
    await api.wait_for(run_id)

    timeline = (await api.viewer.get(f"/api/runs/{run_id}/timeline")).json()

    contained = describe_sandbox(probe_once().kind, None)
    assert all(contained in row["facts"] for row in timeline["rows"] if row["type"] == "phase")
