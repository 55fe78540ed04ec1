"""What the server says and works out for people: sentences, refusals, the inbox, timelines, costs, differences."""

from typing import Any

from tests.support.api.server_world import Api


async def look(api: Api, path: str, **params: Any) -> dict[str, Any]:
    answer = await api.viewer.get(path, params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def waiting_run(api: Api, workflow: str = "asking-notes", **more: Any) -> str:
    run_id = await api.start(workflow=workflow, **more)
    await api.wait_for(run_id, "paused")
    return run_id


async def test_a_run_says_what_it_waits_for_and_what_each_answer_causes(api: Api) -> None:
    run_id = await waiting_run(api, title="Two notes")

    detail = await look(api, f"/api/runs/{run_id}")
    as_operator = (await api.operator.get(f"/api/runs/{run_id}")).json()

    assert (detail["heading"], detail["now"]) == ("Two notes", "Waits for an approval · first")
    assert (detail["telling"]["tone"], detail["telling"]["text"]) == ("waiting", "Waiting for approval of “first”.")
    assert detail["refusals"]["abort"] == "This needs the role operator; you are viewer."
    assert as_operator["refusals"]["abort"] is None
    assert as_operator["refusals"]["resume"].startswith("It waits for a decision")
    (approval,) = detail["approvals"]
    assert (approval["about"], approval["question"]) == ("phase", "Approve “First note”?")
    assert approval["facts"][:2] == ["Phase first, attempt 1", "Risk high"]
    assert [cause["action"] for cause in approval["causes"]] == ["approve", "request_changes", "reject"]
    assert approval["causes"][0]["text"] == "Phase “second” starts."
    (listed,) = (await look(api, "/api/runs"))["items"]
    assert (listed["heading"], listed["now"]) == (detail["heading"], detail["now"])


async def test_a_critical_phase_says_that_two_people_are_needed(api: Api) -> None:
    run_id = await waiting_run(api, "critical-notes")

    (approval,) = (await look(api, f"/api/runs/{run_id}"))["approvals"]

    assert approval["causes"][0]["text"] == "A second person must approve too; then phase “second” starts."


async def test_the_inbox_holds_decisions_and_runs_that_stopped(api: Api) -> None:
    poor = await api.start(title="Quiet")
    await api.wait_for(poor)
    run_id = await waiting_run(api, requirements_md="# Write two notes\n\nPlease.")

    (item,) = (await look(api, "/api/inbox"))["items"]

    assert (item["run_id"], item["heading"], item["is_decision"]) == (run_id, "Write two notes", True)
    assert item["question"] == "Approve “first”?"


async def test_a_timeline_has_a_row_for_each_phase_and_names_the_events(api: Api) -> None:
    run_id = await api.start()
    await api.wait_for(run_id)

    drawn = await look(api, f"/api/runs/{run_id}/timeline", open="first,unheard-of")

    phases = [row for row in drawn["rows"] if row["type"] == "phase"]
    assert [(row["key"], row["status"]["word"], row["attempts"]) for row in phases] == [
        ("first", "Completed", 1),
        ("second", "Completed", 1),
    ]
    assert drawn["since"] <= phases[0]["bars"][0]["since"] <= drawn["until"]
    assert all(bar["until"] is not None for row in drawn["rows"] for bar in row["bars"])
    assert (phases[0]["title"], phases[0]["artifact"], phases[0]["is_open"]) == ("First note", "first.json", True)
    assert "risk low" in phases[0]["facts"]
    assert phases[0]["tries"][0]["text"] == "Attempt 1 completed"
    assert len(drawn["busy"]) >= 1
    assert (await api.viewer.get("/api/runs/none/timeline")).status_code == 404


async def test_a_chronicle_is_kept_and_goes_on_where_it_was(api: Api) -> None:
    run_id = await waiting_run(api)
    before = await look(api, f"/api/runs/{run_id}/timeline")

    (approval,) = (await look(api, "/api/approvals"))["items"]
    await api.approver.post(f"/api/approvals/{approval['approval_id']}", json={"action": "approve"})
    await api.wait_for(run_id)
    after = await look(api, f"/api/runs/{run_id}/timeline")

    assert [row["status"]["word"] for row in before["rows"]] == ["Waiting for approval", "Not started"]
    assert [row["status"]["word"] for row in after["rows"]] == ["Completed", "Completed"]
    assert "waiting" in [bar["type"] for bar in after["rows"][0]["bars"]]


async def test_the_cost_of_a_run_without_calls_is_nothing(api: Api) -> None:
    run_id = await api.start()
    await api.wait_for(run_id)

    cost = await look(api, f"/api/runs/{run_id}/cost")

    assert (cost["spent_usd"], cost["reserved_usd"]) == (0, 0)
    assert [table["by"] for table in cost["tables"]] == ["Phase", "Model"]


async def test_changes_come_file_by_file_as_lines_or_as_two_columns(api: Api) -> None:
    run_id = await api.start()
    await api.wait_for(run_id)

    whole = await look(api, f"/api/runs/{run_id}/changes")
    split = await look(api, f"/api/runs/{run_id}/changes", phase="first", split=True)

    assert [(file["path"], file["kind"]) for file in whole["files"]] == [
        ("first.json", "added"),
        ("second.json", "added"),
    ]
    assert [line["type"] for line in whole["files"][0]["lines"]] == ["add"]
    (only,) = split["files"]
    assert (only["path"], only["lines"]) == ("first.json", [])
    assert (only["pairs"][0]["left"], only["pairs"][0]["right"]["type"]) == (None, "add")
    more = await look(api, f"/api/runs/{run_id}/changes", context=25)
    assert [file["digest"] for file in more["files"]] == [file["digest"] for file in whole["files"]]
    early = await api.viewer.get(f"/api/runs/{run_id}/changes", params={"phase": "none"})
    assert (early.status_code, early.json()["code"]) == (409, "run_not_in_state")


async def test_what_is_to_be_approved_can_be_compared_with_the_attempt_before(api: Api) -> None:
    run_id = await waiting_run(api)
    (approval,) = (await look(api, "/api/approvals"))["items"]
    changes = {"action": "request_changes", "comment": "Say more."}
    await api.approver.post(f"/api/approvals/{approval['approval_id']}", json=changes)
    while [each["attempt"] for each in (await look(api, "/api/approvals"))["items"]] != [2]:
        await api.wait_for(run_id, "paused", "running")
    (again,) = (await look(api, "/api/approvals"))["items"]
    url = f"/api/approvals/{again['approval_id']}/changes"

    files = await look(api, url, of="files")
    since_first = await look(api, url, since=1)
    by_attempts = await look(api, f"/api/runs/{run_id}/difference", phase="first", attempt=2, since=1)

    assert [file["path"] for file in files["files"]] == ["first.json"]
    assert since_first["files"][0]["lines"] == by_attempts["files"][0]["lines"] == []  # the agent wrote the same again
    assert (await look(api, url, of="asked"))["files"] == []
    assert (await api.viewer.get(url, params={"since": 7})).status_code == 404
    assert (await api.viewer.get("/api/approvals/none/changes")).status_code == 404
    missing = {"phase": "first", "attempt": 2, "since": 9}
    assert (await api.viewer.get(f"/api/runs/{run_id}/difference", params=missing)).status_code == 404


async def test_workflows_come_with_their_outlook_and_their_graph(api: Api) -> None:
    items = {item["name"]: item for item in (await look(api, "/api/workflows"))["items"]}

    item = items["feature-delivery"]
    assert item["outlook"]["summary"].startswith(f"{len(item['definition']['phases'])} phases · ")
    assert [node["key"] for node in item["across"]["nodes"]] == [phase["key"] for phase in item["definition"]["phases"]]
    assert item["down"]["height"] > item["down"]["width"]


async def test_personas_are_portrayed_the_ready_ones_first(api: Api) -> None:
    items = (await look(api, "/api/personas/availability"))["items"]

    groups = [item["portrait"]["group"] for item in items]
    assert groups == sorted(groups, key=("ready", "missing", "rehearsal").index)
    rehearsing = next(item["portrait"] for item in items if item["portrait"]["group"] == "rehearsal")
    assert (rehearsing["status"]["text"], rehearsing["price"]) == ("Rehearsals only", "Pays nothing")
    assert rehearsing["facts"][0][0] == "Tools"


async def test_the_budget_says_what_counts_and_brings_every_day(api: Api) -> None:
    report = await look(api, "/api/budget", days=7)

    assert len(report["chart"]["days"]) == 7
    assert report["chart"]["days"][-1]["name"] == report["day"]
    assert report["chart"]["lines_usd"] == [0, 0.5, 1]
    assert "Rehearsals count against no limit." in report["today"]["text"]


async def test_tokens_that_are_over_come_last_and_say_why(api: Api) -> None:
    made = (await api.admin.post("/api/tokens", json={"name": "gone", "role": "viewer"})).json()
    await api.admin.delete(f"/api/tokens/{made['id']}")

    items = (await api.admin.get("/api/tokens")).json()["items"]

    assert (items[-1]["name"], items[-1]["is_over"]) == ("gone", True)
    assert items[-1]["status"]["text"] == "Revoked by admin"
    assert items[0]["status"] == {"tone": "good", "text": "Works"}
