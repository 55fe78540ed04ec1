"""Approvals over HTTP: answered by the right people, for what they saw, and the run goes on by itself."""

from typing import Any

from tests.integration.api.world import Api, make_tokens


async def ask(api: Api, workflow: str = "asking-notes") -> tuple[str, dict[str, Any]]:
    run_id = await api.start(workflow=workflow)
    await api.wait_for(run_id, "paused")
    (waiting,) = (await api.viewer.get("/api/approvals")).json()["items"]
    return run_id, waiting


async def test_an_approved_run_goes_on_by_itself(api: Api) -> None:
    run_id, waiting = await ask(api)
    assert (waiting["run_id"], waiting["state"]) == (run_id, "pending")

    answer = await api.approver.post(
        f"/api/approvals/{waiting['approval_id']}",
        json={"action": "approve", "comment": "good", "digest": waiting["digest"]},
    )

    assert (answer.status_code, answer.json()["state"]) == (200, "decided")
    detail = await api.wait_for(run_id)
    assert detail["state"] == "completed"
    (decided,) = detail["approvals"]
    assert (decided["decided_by"], decided["comment"]) == ("approver", "good")


async def test_an_approval_that_nobody_answers_in_time_is_rejected_by_the_server(api: Api) -> None:
    own = api.repo / ".holdfast" / "workflows"
    text = (own / "asking-notes.yaml").read_text().replace("asking-notes", "hasty-notes")
    (own / "hasty-notes.yaml").write_text(text.replace("risk: high", "risk: high\n    approval_deadline: 2s"))
    run_id, waiting = await ask(api, "hasty-notes")

    detail = await api.wait_for(run_id)

    assert (waiting["deadline_at"] > waiting["requested_at"], waiting["shown"]["on_deadline"]) == (True, "reject")
    assert (detail["state"], detail["error"]["code"]) == ("failed", "approval_rejected")
    (decided,) = detail["approvals"]
    assert (decided["action"], decided["decided_by"]) == ("reject", "deadline")
    assert decided["decided_at"] >= waiting["deadline_at"]


async def test_what_a_run_that_is_over_had_asked_waits_for_nobody(api: Api) -> None:
    run_id, _waiting = await ask(api)

    await api.operator.post(f"/api/runs/{run_id}/abort", json={})
    await api.wait_for(run_id)

    assert (await api.viewer.get("/api/approvals")).json()["items"] == []


async def test_a_second_answer_is_refused(api: Api) -> None:
    run_id, waiting = await ask(api)
    path = f"/api/approvals/{waiting['approval_id']}"
    await api.approver.post(path, json={"action": "reject"})

    again = await api.approver.post(path, json={"action": "approve"})

    assert again.status_code == 409
    assert (await api.wait_for(run_id))["error"]["code"] == "approval_rejected"


async def test_an_answer_to_something_else_is_stale(api: Api) -> None:
    _run_id, waiting = await ask(api)

    answer = await api.approver.post(
        f"/api/approvals/{waiting['approval_id']}", json={"action": "approve", "digest": "0" * 64}
    )

    assert (answer.status_code, answer.json()["code"]) == (409, "approval_stale")


async def test_an_unknown_approval_and_an_unknown_action(api: Api) -> None:
    unknown = await api.approver.post("/api/approvals/none", json={"action": "approve"})
    wrong = await api.approver.post("/api/approvals/none", json={"action": "shrug"})

    assert (unknown.status_code, unknown.json()["code"]) == (404, "approval_not_found")
    assert wrong.status_code == 422


async def test_a_critical_approval_needs_two_different_people(api: Api) -> None:
    run_id, waiting = await ask(api, "critical-notes")
    path = f"/api/approvals/{waiting['approval_id']}"

    first = await api.approver.post(path, json={"action": "approve"})
    same = await api.approver.post(path, json={"action": "approve"})
    other_token = (await make_tokens(api.config, ["approver"]))["approver"]
    async with api.client(other_token) as client:
        same_name = await client.post(path, json={"action": "approve"})
    standing = (await api.viewer.get(f"/api/runs/{run_id}")).json()
    second = await api.admin.post(path, json={"action": "approve"})

    assert (first.status_code, first.json()["state"]) == (200, "pending")
    assert (same.status_code, same.json()["code"]) == (409, "second_person_needed")
    assert same_name.status_code == 409
    assert (standing["state"], standing["approvals"][0]["first_by"]) == ("paused", "approver")
    assert second.json()["state"] == "decided"
    assert (await api.wait_for(run_id))["state"] == "completed"


async def test_one_person_is_enough_to_say_no(api: Api) -> None:
    run_id, waiting = await ask(api, "critical-notes")

    await api.approver.post(f"/api/approvals/{waiting['approval_id']}", json={"action": "abort", "comment": "no"})

    assert (await api.wait_for(run_id))["state"] == "cancelled"
