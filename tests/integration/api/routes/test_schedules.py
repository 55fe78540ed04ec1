"""Schedules and limits over HTTP: from being added to being removed, and what is refused with nothing written."""

from datetime import UTC, datetime, timedelta

from tests.support.api.server_world import Api


async def test_a_schedule_is_added_held_started_and_removed(api: Api) -> None:
    body = {"name": "nightly", "target": "notes", "cron": "30 2 * * *", "repo_path": str(api.repo), "simulate": True}
    added = await api.operator.post("/api/schedules", json=body)
    assert (added.status_code, added.json()["zone"]) == (201, "UTC")
    notes = ("problem", "problem_at", "is_tried_again", "skipped", "skipped_for", "skip_reason")
    assert [added.json()[note] for note in notes] == [None, None, False, 0, None, None]
    held = await api.operator.patch("/api/schedules/nightly", json={"paused": True})
    assert held.json()["is_paused"] is True
    started = (await api.operator.post("/api/schedules/nightly/runs")).json()["run_id"]
    assert (await api.wait_for(started))["state"] == "completed"
    assert (await api.viewer.delete("/api/schedules/nightly")).status_code == 403
    assert (await api.operator.delete("/api/schedules/nightly")).status_code == 204
    assert (await api.viewer.get("/api/schedules/nightly")).status_code == 404


async def test_wrong_schedules_and_limits_are_refused_and_nothing_is_written(api: Api) -> None:
    body = {"name": "nightly", "target": "notes", "cron": "0 * * * *", "repo_path": str(api.repo), "simulate": True}
    for wrong in ({"cron": "61 * * * *"}, {"zone": "Mars/Olympus"}, {"queue": "gpu"}, {"missed": "never"}):
        answer = await api.operator.post("/api/schedules", json={**body, **wrong})
        assert answer.status_code == 422, answer.text
    for kind, name, amount in (
        ("runs", "", 0),
        ("workflow", "", 2),
        ("day", "", -1),
        ("day", "", 1e-7),
        ("wokflow", "a", 2),
    ):
        answer = await api.admin.put("/api/limits", json={"kind": kind, "name": name, "amount": amount})
        assert answer.status_code == 422, answer.text
    assert (await api.viewer.get("/api/schedules")).json()["items"] == []
    assert (await api.viewer.get("/api/limits")).json() == {"items": [], "differences": []}
    assert (await api.operator.post("/api/runs", json=api.body(queue="gpu"))).status_code == 422
    assert (await api.admin.post("/api/workers/nobody/drain")).status_code == 422


async def test_what_would_refuse_a_run_refuses_its_schedule(api: Api) -> None:
    body = {"name": "nightly", "target": "notes", "cron": "0 * * * *", "repo_path": str(api.repo), "simulate": True}
    for wrong, code in (
        ({"repo_path": str(api.repo.parent / "gone")}, "repository_missing"),
        ({"base_branch": "mian"}, "base_branch_missing"),
        ({"target": "no-such"}, "template_not_found"),
        ({"persona_overrides": {"author": "nobody"}}, "persona_ineligible"),
    ):
        answer = await api.operator.post("/api/schedules", json={**body, **wrong})
        assert (answer.status_code in (409, 422), answer.json()["code"]) == (True, code), answer.text
    assert (await api.viewer.get("/api/schedules")).json()["items"] == []


async def test_a_run_is_not_started_at_a_time_that_is_over(api: Api) -> None:
    now = datetime.now(UTC)
    over = await api.operator.post("/api/runs", json=api.body(at=(now - timedelta(hours=1)).isoformat()))
    just = await api.operator.post("/api/runs", json=api.body(at=(now - timedelta(seconds=5)).isoformat()))

    assert (over.status_code, over.json()["code"], just.status_code) == (422, "time_passed", 202), over.text
    assert over.json()["errors"][0]["where"] == ["body", "at"]


async def test_the_budget_page_says_the_limit_that_counts(api: Api) -> None:
    limit = {"kind": "day", "name": "", "amount": 3.5}
    assert (await api.admin.put("/api/limits", json=limit)).status_code == 204
    report = (await api.viewer.get("/api/budget")).json()
    assert report["day_limit_usd"] == 3.5
    assert "The day's limit was set for all processes" in report["today"]["text"]
    assert (await api.admin.delete("/api/limits?kind=day")).status_code == 204
    assert (await api.viewer.get("/api/budget")).json()["day_limit_usd"] is None
