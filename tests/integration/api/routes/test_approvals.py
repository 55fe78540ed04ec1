"""Approvals over HTTP: answered by the right people, for what they saw, and the run goes on by itself."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.api.server_world import Api, make_tokens

from holdfast import engine

PUSH = {"command": "git push origin main"}


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

    detail = await api.wait_for(await api.start(workflow="hasty-notes"))

    assert (detail["state"], detail["error"]["code"]) == ("failed", "approval_rejected")
    (decided,) = detail["approvals"]
    assert (decided["action"], decided["decided_by"]) == ("reject", "deadline")
    assert decided["decided_at"] >= decided["deadline_at"] > decided["requested_at"]
    assert decided["shown"]["on_deadline"] == "reject"


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


class PushingAgent:
    """Wants to push, is told what came of it, and hands in."""

    def __init__(self, root: Path, journal: Any, made: list[str]) -> None:
        self._root = root
        self._journal = journal
        self._made = made

    async def ainvoke(self, state: dict[str, Any], **_kw: Any) -> dict[str, Any]:
        from langchain_core.messages import ToolMessage

        async def push(request: Any) -> Any:
            self._made.append(request.tool_call["args"]["command"])
            return ToolMessage("pushed", name="execute", tool_call_id=request.tool_call["id"])

        key = "first" if "You do phase `first`" in state["messages"][0]["content"] else "second"
        note = ""
        if key == "first":
            request = SimpleNamespace(tool_call={"name": "execute", "args": PUSH, "id": "call-1"})
            note = (await self._journal.awrap_tool_call(request, push)).content
        (self._root / f"{key}.json").write_text(json.dumps({"note": note}))
        return {"messages": []}


@pytest.fixture
def pushed(api: Api, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What agents that want to push have really run."""
    made: list[str] = []

    def build_agent(_persona: Any, _config: Any, *, root_dir: Path, middleware: Any, **_kw: Any) -> PushingAgent:
        return PushingAgent(Path(root_dir), middleware[0], made)

    monkeypatch.setattr(engine, "build_agent", build_agent)
    return made


async def test_a_tool_call_is_approved_with_other_arguments(api: Api, pushed: list[str]) -> None:
    run_id, waiting = await ask(api, "notes")
    path = f"/api/approvals/{waiting['approval_id']}"
    assert waiting["shown"]["args"] == PUSH

    no_object = await api.approver.post(path, json={"action": "approve", "args": ["git push"]})
    with_a_no = await api.approver.post(path, json={"action": "reject", "args": PUSH})
    assert (await api.viewer.get("/api/approvals")).json()["items"] == [waiting]
    changed = {"command": "git push origin draft"}
    answer = await api.approver.post(path, json={"action": "approve", "digest": waiting["digest"], "args": changed})
    detail = await api.wait_for(run_id)
    note = (await api.viewer.get(f"/api/runs/{run_id}/artifacts/first.json")).text

    assert (no_object.status_code, with_a_no.status_code) == (422, 422)
    assert with_a_no.json()["code"] == "config_invalid"
    assert (answer.status_code, detail["state"]) == (200, "completed")
    assert pushed == ["git push origin draft"]
    assert "A person changed the arguments" in note


async def test_arguments_for_what_a_phase_made_are_refused(api: Api) -> None:
    _run_id, waiting = await ask(api)

    answer = await api.approver.post(
        f"/api/approvals/{waiting['approval_id']}", json={"action": "approve", "args": PUSH}
    )

    assert (answer.status_code, answer.json()["code"]) == (422, "config_invalid")
    assert (await api.viewer.get("/api/approvals")).json()["items"] == [waiting]


async def wait_for_question(api: Api, run_id: str, *, attempt: int) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            detail = (await api.viewer.get(f"/api/runs/{run_id}")).json()
            for approval in detail["approvals"]:
                if (approval["state"], approval["attempt"]) == ("pending", attempt):
                    return dict(approval)
            await api.wait_for_event(run_id, after=detail["seq"])


async def test_an_approval_says_why_it_is_asked_and_what_changed_since_the_last_answer(api: Api) -> None:
    run_id, first = await ask(api)
    path = f"/api/approvals/{first['approval_id']}"
    await api.approver.post(path, json={"action": "request_changes", "comment": "say more"})
    second = await wait_for_question(api, run_id, attempt=2)
    changes = await api.viewer.get(f"/api/approvals/{second['approval_id']}/changes", params={"of": "answer"})

    assert first["reason"] == f"phase {first['phase_key']} has risk high"
    assert first["since_answer"] is None
    since = second["since_answer"]
    assert (since["approval_id"], since["attempt"], since["comment"]) == (first["approval_id"], 1, "say more")
    assert [file["path"] for file in changes.json()["files"]] == since["files"]


async def test_no_phase_of_a_run_that_is_over_runs_or_waits(api: Api) -> None:
    run_id, _waiting = await ask(api)
    await api.operator.post(f"/api/runs/{run_id}/abort", json={})

    detail = await api.wait_for(run_id)
    (listed,) = (await api.viewer.get("/api/runs")).json()["items"]

    assert detail["state"] == "cancelled"
    assert "stopped" in [phase["status"] for phase in detail["phases"]]
    assert not {"running", "awaiting_approval"} & {phase["status"] for phase in detail["phases"]}
    assert listed["repo_path"] == str(api.repo)
    assert listed["reserved_usd"] == 0


async def test_an_artifact_edited_in_the_answer_is_what_counts(api: Api) -> None:
    run_id, waiting = await ask(api)
    path = f"/api/approvals/{waiting['approval_id']}"
    content = json.loads(waiting["shown"]["content"])

    refused = await api.approver.post(path, json={"action": "approve", "artifact": {}})
    edited = await api.approver.post(path, json={"action": "approve", "artifact": content, "digest": waiting["digest"]})

    assert (refused.status_code, refused.json()["code"]) == (422, "artifact_invalid")
    assert edited.status_code == 200
    detail = await api.wait_for(run_id)
    assert detail["state"] == "completed"
    assert 3 in [item["turn"] for item in detail["artifacts"]]


async def test_a_result_of_null_is_no_result_for_an_approval(api: Api) -> None:
    run_id, waiting = await ask(api)
    url = f"/api/approvals/{waiting['approval_id']}"

    one = await api.approver.post(url, json={"action": "approve", "result": 1})
    null = await api.approver.post(url, json={"action": "approve", "result": None})

    assert (one.status_code, null.status_code) == (422, 200)
    assert (await api.wait_for(run_id))["state"] == "completed"


@pytest.mark.parametrize("state", ["pending", "decided", "all"])
async def test_approvals_come_in_pages(api: Api, state: str) -> None:
    run_ids = {await api.start(workflow="asking-notes") for _ in range(5)}
    waiting = [detail["approvals"][0]["approval_id"] for detail in [await api.wait_for(i, "paused") for i in run_ids]]
    if state == "decided":
        for approval_id in waiting:
            await api.approver.post(f"/api/approvals/{approval_id}", json={"action": "reject"})

    pages: list[list[dict[str, Any]]] = []
    cursor: str | None = None
    while cursor is not None or not pages:
        params = {"state": state, "limit": "2", **({"cursor": cursor} if cursor else {})}
        page = (await api.viewer.get("/api/approvals", params=params)).json()
        pages.append(page["items"])
        cursor = page["next_cursor"]
    wrong = await api.viewer.get("/api/approvals", params={"cursor": "!!!"})

    listed = [item for page in pages for item in page]
    assert [len(page) for page in pages] == [2, 2, 1]
    assert {item["approval_id"] for item in listed} == set(waiting)
    times = [item["requested_at"] for item in listed]
    assert times == sorted(times, reverse=state != "pending")
    assert (wrong.status_code, wrong.json()["code"]) == (422, "cursor_invalid")
