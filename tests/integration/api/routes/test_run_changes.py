"""Where a run starts, and what it goes on with, over HTTP."""

import base64
import subprocess
from typing import Any

from tests.support.api.server_world import Api

from holdfast.engine.audit import check_database
from holdfast.persistence.carried_files import find_image


def git(api: Api, *words: str) -> str:
    identity = ("-c", "user.name=tests", "-c", "user.email=tests@example.invalid")
    done = subprocess.run(["git", *identity, *words], cwd=api.repo, check=True, capture_output=True, text=True)
    return done.stdout.strip()


async def detail(api: Api, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = (await api.viewer.get(f"/api/runs/{run_id}")).json()
    return found


def image(name: str) -> dict[str, str]:
    data = b"\x89PNG\r\n\x1a\n" + name.encode()
    return {"name": name, "data": base64.b64encode(data).decode()}


async def wait_for_another_question(api: Api, run_id: str, approval_id: str) -> None:
    while True:
        found = await detail(api, run_id)
        waiting = [one["approval_id"] for one in found["approvals"] if one["state"] == "pending"]
        if found["state"] == "paused" and waiting and waiting != [approval_id]:
            return
        await api.wait_for_event(run_id, after=found["seq"])


async def test_without_a_base_branch_it_is_the_one_that_is_checked_out(api: Api) -> None:
    git(api, "switch", "-q", "-c", "feature")
    body = api.body()
    body.pop("base_branch", None)

    started = await api.operator.post("/api/runs", json=body)
    answer = await api.operator.post("/api/runs", json={**body, "base_branch": None})

    assert (started.status_code, answer.status_code) == (202, 202)
    assert (await detail(api, started.json()["run_id"]))["base_branch"] == "feature"


async def test_a_base_branch_that_is_not_there_makes_no_run(api: Api) -> None:
    refused = await api.operator.post("/api/runs", json=api.body(base_branch="nowhere"))

    assert (refused.status_code, refused.json()["code"]) == (422, "base_branch_missing")
    assert refused.json()["errors"][0]["where"] == ["body", "base_branch"]
    assert (await api.viewer.get("/api/runs")).json()["items"] == []


async def test_resume_takes_other_requirements_and_starts_the_phase_anew(api: Api) -> None:
    run_id = await api.start(workflow="asking-notes", requirements_md="Do this.", images=[image("a.png")])
    await api.wait_for(run_id, "paused")
    [before] = (await api.viewer.get("/api/approvals")).json()["items"]

    change = {"requirements_md": "Do that.", "images": [image("b.png")]}
    answer = await api.operator.post(f"/api/runs/{run_id}/resume", json=change)

    assert answer.status_code == 202, answer.text
    changed = await detail(api, run_id)
    assert changed["requirements_md"] == "Do that."
    assert changed["images"] == ["image a.png (PNG, 13 B)", "image b.png (PNG, 13 B)"]
    late = await api.approver.post(f"/api/approvals/{before['approval_id']}", json={"action": "approve"})
    assert late.status_code in (404, 409)
    await wait_for_another_question(api, run_id, before["approval_id"])
    assert await check_database((await api.app.state.holder.get()).db) == []


async def test_who_cannot_be_had_is_refused_and_the_run_is_as_it_was(api: Api) -> None:
    run_id = await api.start(workflow="asking-notes", requirements_md="Do this.")
    await api.wait_for(run_id, "paused")
    change = {"requirements_md": "Do that.", "persona_overrides": {"author": "nobody"}}

    resumed = await api.operator.post(f"/api/runs/{run_id}/resume", json=change)
    retried = await api.operator.post(f"/api/runs/{run_id}/retry", json={"requirements_md": "Do that."})
    unknown = await api.operator.post(f"/api/runs/{run_id}/retry", json={"requirement": "Do that."})

    assert (resumed.status_code, resumed.json()["code"]) == (422, "persona_ineligible")
    assert (retried.status_code, unknown.status_code) == (409, 422)
    found = await detail(api, run_id)
    assert (found["state"], found["requirements_md"]) == ("paused", "Do this.")


async def test_a_fork_has_its_own_requirements(api: Api) -> None:
    run_id = await api.start(requirements_md="Do this.", images=[image("a.png")])
    await api.wait_for(run_id, "completed")

    change = {"requirements_md": "Do that.", "images": [image("a.png"), image("b.png")]}
    answer = await api.operator.post(f"/api/runs/{run_id}/fork", json={"phase_key": "second", **change})

    forked = answer.json()["run_id"]
    await api.wait_for(forked, "completed")
    assert (await detail(api, forked))["requirements_md"] == "Do that."
    assert [words[:11] for words in (await detail(api, forked))["images"]] == ["image a.png", "image b.png"]
    assert (await detail(api, run_id))["requirements_md"] == "Do this."


async def test_an_image_in_a_message_to_a_phase_is_stored_with_it(api: Api) -> None:
    (api.gates / "first.closed").touch()
    run_id = await api.start()
    await api.wait_until_reached(run_id, "first")
    (api.repo / "shot.png").write_bytes(base64.b64decode(image("b.png")["data"]))

    body = {"text": "As in @shot.png, not as here.", "images": [image("a.png")]}
    sent = await api.operator.post(f"/api/runs/{run_id}/messages", json=body)
    wrong = await api.operator.post(f"/api/runs/{run_id}/messages", json={"text": "x", "images": [{"data": "AAAA"}]})
    (api.gates / "first.closed").unlink()
    await api.wait_for(run_id, "completed")

    assert sent.status_code == 202, sent.text
    assert (wrong.status_code, wrong.json()["code"]) == (422, "image_invalid")
    server = await api.app.state.holder.get()
    [said] = [event for event in await server.journal.read(run_id) if event.kind == "message.received"]
    assert [one["name"] for one in said.payload["images"]] == ["a.png", "shot.png"]
    assert all([await find_image(server.db, run_id, one["digest"]) for one in said.payload["images"]])


async def test_two_forks_are_compared_in_cost_artifacts_and_files(api: Api) -> None:
    run_id = await api.start(requirements_md="Do this.")
    await api.wait_for(run_id)
    (api.repo / "later.txt").write_text("later\n")
    git(api, "add", "later.txt")
    git(api, "commit", "-qm", "later")
    other = await api.start(title="From later on")
    await api.wait_for(other)

    compared = (await api.viewer.get(f"/api/runs/{run_id}/comparison", params={"with": other})).json()
    files = (await api.viewer.get(f"/api/runs/{run_id}/comparison/changes", params={"with": other})).json()
    params = {"with": other, "phase": "first"}
    artifact = (await api.viewer.get(f"/api/runs/{run_id}/comparison/changes", params=params)).json()
    nobody = await api.viewer.get(f"/api/runs/{run_id}/comparison", params={"with": "no-such-run"})

    assert [side["run_id"] for side in compared["sides"]] == [run_id, other]
    assert [row["label"] for row in compared["rows"]] == ["Cost", "Took", "Model calls", "Tokens"]
    assert [row["label"] for row in compared["phases"]] == ["first", "second"]
    assert [(each["phase"], each["path"]) for each in compared["artifacts"]] == [
        ("first", "first.json"),
        ("second", "second.json"),
    ]
    assert [file["path"] for file in files["files"]] == ["later.txt"]
    assert artifact["files"][0]["path"] == "first.json"
    assert nobody.status_code == 404


async def test_in_a_comparison_a_run_waits_for_what_it_waits_for(api: Api) -> None:
    run_id = await api.start(workflow="asking-notes", requirements_md="Do this.")
    await api.wait_for(run_id, "paused")

    compared = (await api.viewer.get(f"/api/runs/{run_id}/comparison", params={"with": run_id})).json()

    expected = (await detail(api, run_id))["telling"]
    assert [side["headline"] for side in compared["sides"]] == [{"tone": "waiting", "text": expected["text"]}] * 2
