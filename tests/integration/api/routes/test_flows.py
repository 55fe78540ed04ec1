"""Runs of flows among those of workflows: listed in one order, looked at, answered and cancelled at the same routes."""

from typing import Any
from urllib.parse import quote

import pytest
from tests.support.api.server_world import Api

from holdfast import Context, RunPaused, decide, run_flow, start_flow
from holdfast.api.serialize import to_cursor
from holdfast.api.server import flow_questions
from holdfast.persistence.db import Database
from holdfast.persistence.models import RunRow, WorkflowTemplateRow
from holdfast.runtime.clock import FlowClock, use_clock

TEMPLATE = {"id": "t", "name": "notes", "version": "1", "hash": "h", "definition": "{}", "created_at": ""}


class _At(FlowClock):
    def __init__(self, at: float) -> None:
        self.at = at

    def now(self) -> float:
        return self.at


async def add_workflow_runs(api: Api, *times: str) -> list[str]:
    """Write runs that are over, created at these times."""
    db = Database(api.config.database_url)
    async with db.session() as session:
        session.add(WorkflowTemplateRow(**TEMPLATE))
        await session.flush()
        for number, at in enumerate(times):
            place = {"template_id": "t", "template_hash": "h", "repo_path": "", "base_branch": "", "worktree_root": ""}
            times_of = {"created_at": at, "updated_at": at}
            session.add(RunRow(id=f"w{number}", state="completed", workflow="notes", **place, **times_of))
        await session.commit()
    await db.dispose()
    return [f"w{number}" for number in range(len(times))]


async def start_flows(api: Api, *times: float, **tags: str) -> list[str]:
    run_ids = []
    for number, at in enumerate(times):
        with use_clock(_At(at)):
            run_id = f"f{number}"
            await start_flow("order", number, run_id=run_id, store=store_of(api), tags=tags)
            run_ids.append(run_id)
    return run_ids


def store_of(api: Api) -> str:
    return str(api.config.database_path)


async def read_all(api: Api, **query: Any) -> list[str]:
    """Read the list page by page to its end."""
    found: list[str] = []
    cursor: str | None = None
    while cursor is not None or not found:
        more = {} if cursor is None else {"cursor": cursor}
        page = (await api.viewer.get("/api/runs", params={**query, **more})).json()
        found += [item["run_id"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    return found


async def order(ctx: Context, number: int) -> str:
    await ctx.step("charge", lambda: {"number": number})
    decision = await ctx.approval("ship", show={"number": number})
    return f"shipped {number}: {decision}"


async def ask(api: Api, run_id: str = "order-7") -> None:
    with pytest.raises(RunPaused):
        await run_flow(order, 7, run_id=run_id, store=store_of(api), tags={"team": "sales"})


async def test_runs_of_both_kinds_are_one_list_without_gap_or_repeat(api: Api) -> None:
    # Several at one millisecond, on both sides, and flows that differ by less than the text of a time shows.
    workflows = await add_workflow_runs(
        api, "2026-01-01T00:00:01.000Z", "2026-01-01T00:00:03.000Z", "2026-01-01T00:00:03.000Z"
    )
    at = 1767225600.0
    flows = await start_flows(api, at, at + 3, at + 3.0000002, at + 3.0000004, at + 3, at + 9)

    in_order = await read_all(api, limit=200)
    assert sorted(in_order) == sorted([*workflows, *flows])
    assert (in_order[0], in_order[-2:]) == ("f5", ["w0", "f0"])
    for limit in (1, 2, 3):
        assert await read_all(api, limit=limit) == in_order
        assert await read_all(api, limit=limit, order="oldest") == await read_all(api, limit=200, order="oldest")


async def test_what_is_created_between_two_pages_is_on_none_of_the_next(api: Api) -> None:
    await add_workflow_runs(api, "2026-01-01T00:00:01.000Z", "2026-01-01T00:00:02.000Z")
    first = (await api.viewer.get("/api/runs", params={"limit": 1})).json()
    await start_flows(api, 1767225700.0)  # no flow was on the first page

    second = (await api.viewer.get("/api/runs", params={"limit": 1, "cursor": first["next_cursor"]})).json()

    assert [item["run_id"] for item in (*first["items"], *second["items"])] == ["w1", "w0"]
    for cursor in ("x", "WzEsMl0", "WyJuZXdlc3QiLCIyMDI2LTAxLTAxVDAwOjAwOjAwWiIsIm5hbiIsIiJd"):
        assert (await api.viewer.get("/api/runs", params={"cursor": cursor})).status_code == 422


async def test_runs_are_filtered_by_kind_flow_tag_text_and_time(api: Api) -> None:
    await add_workflow_runs(api, "2026-01-01T00:00:01.000Z")
    await start_flows(api, 1767225600.0, team="sales", note='50% "off"')
    await start_flow("refund", 1, run_id="r_1", store=store_of(api), tags={"team": "sales west"})

    assert await read_all(api, kind="workflow") == ["w0"]
    assert await read_all(api, kind="flow") == ["r_1", "f0"]
    assert await read_all(api, workflow="notes") == ["w0"]
    assert await read_all(api, flow="refund") == ["r_1"]
    assert await read_all(api, tag="team=sales") == ["f0"]
    assert await read_all(api, tag="team") == ["r_1", "f0"]
    assert await read_all(api, tag=["team=sales", 'note=50% "off"']) == ["f0"]
    assert await read_all(api, tag="tea") == []
    assert await read_all(api, text="_1") == ["r_1"]  # no pattern
    assert await read_all(api, until="2026-06-01T00:00:00Z", kind="flow") == ["f0"]
    assert await read_all(api, state="completed") == ["w0"]
    assert await read_all(api, order="costliest") == ["w0"]  # flows have no cost
    flows = (await api.viewer.get("/api/flows", params={"tag": "team=sales"})).json()["items"]
    assert [item["run_id"] for item in flows] == ["f0"]
    counts = (await api.viewer.get("/api/overview")).json()["counts"]
    assert counts == {"completed": 1, "pending": 2}


async def test_a_flow_is_looked_at_answered_and_told_of_like_a_run(api: Api) -> None:
    await ask(api)
    (listed,) = (await api.viewer.get("/api/runs")).json()["items"]
    assert (listed["kind"], listed["flow"], listed["state"], listed["now"]) == (
        "flow",
        "order",
        "paused",
        "waits for ship",
    )
    assert listed["tags"] == {"team": "sales"}

    (waiting,) = (await api.viewer.get("/api/approvals")).json()["items"]
    assert (waiting["approval_id"], waiting["kind"], waiting["state"]) == ("order-7:ship", "flow", "pending")
    assert (waiting["run_id"], waiting["shown"], waiting["about"]) == ("order-7", {"number": 7}, "approval")
    (item,) = (await api.viewer.get("/api/inbox")).json()["items"]
    assert (item["approval_id"], item["kind"], item["is_decision"], item["is_yours"]) == (
        "order-7:ship",
        "flow",
        True,
        False,
    )

    url = f"/api/approvals/{quote('order-7:ship')}"
    assert (await api.operator.post(url, json={"action": "approve"})).status_code == 403
    stale = await api.approver.post(url, json={"action": "approve", "digest": "other"})
    assert stale.json()["code"] == "approval_stale"
    answer = await api.approver.post(url, json={"action": "approve", "comment": "go", "digest": waiting["digest"]})
    assert (answer.status_code, answer.json()["state"]) == (200, "decided")
    assert (await api.viewer.get("/api/approvals")).json()["items"] == []
    assert (await api.viewer.get("/api/inbox")).json()["items"] == []
    again = await api.approver.post(url, json={"action": "reject"})
    assert (again.status_code, again.json()["code"]) == (404, "approval_not_found")
    assert "answered" in again.json()["detail"]

    assert await run_flow(order, 7, run_id="order-7", store=store_of(api)) == "shipped 7: approve"
    detail = (await api.viewer.get("/api/runs/order-7")).json()
    assert (detail["state"], detail["result"], detail["error"]) == ("completed", "shipped 7: approve", None)
    assert [step["key"] for step in detail["steps"]] == ["charge", "ship"]
    (decided,) = detail["approvals"]
    assert (decided["state"], decided["action"], decided["decided_by"]) == ("decided", "approve", "approver")
    assert detail["last_events"][-1]["kind"] == "run.completed"
    assert detail["seq"] == detail["last_events"][-1]["seq"]
    history = (await api.viewer.get("/api/runs/order-7/history")).text.splitlines()
    assert len(history) == detail["seq"]


async def read_approvals(api: Api, state: str, limit: int) -> list[tuple[str, str]]:
    """Read the list page by page to its end: ids and states."""
    found: list[tuple[str, str]] = []
    more: dict[str, str] = {}
    while True:
        page = (await api.viewer.get("/api/approvals", params={"state": state, "limit": limit, **more})).json()
        assert len(page["items"]) <= limit
        found += [(item["approval_id"], item["state"]) for item in page["items"]]
        if page["next_cursor"] is None:
            return found
        more = {"cursor": page["next_cursor"]}


@pytest.mark.parametrize(("limit", "rows_at_once"), [(1, 1), (2, 500)])
async def test_what_flows_asked_is_listed_with_its_answers_whether_they_are_over_or_not(
    api: Api, limit: int, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_questions, "_ROWS_AT_ONCE", rows_at_once)
    expected = []
    for number in range(4):
        await ask(api, run_id := f"order-{number}")
        if number != 1:
            await decide(run_id, "ship", "approve", by="ann", store=store_of(api))
            expected.append((f"{run_id}:ship", "decided"))
        if number % 2 == 0:
            await run_flow(order, 7, run_id=run_id, store=store_of(api))
    await start_flow("order", 9, run_id="never asked", store=store_of(api))

    decided = await read_approvals(api, "decided", limit)
    everything = await read_approvals(api, "all", limit)

    assert decided == expected[::-1]
    assert sorted(everything) == sorted([*expected, ("order-1:ship", "pending")])
    (answered, *_) = (await api.viewer.get("/api/approvals", params={"state": "decided"})).json()["items"]
    assert (answered["action"], answered["decided_by"], answered["shown"]) == ("approve", "ann", {"number": 7})
    broken = await api.viewer.get("/api/approvals", params={"state": "decided", "cursor": to_cursor("noon", "x")})
    assert (broken.status_code, broken.json()["code"]) == (422, "cursor_invalid")


async def lanes(ctx: Context) -> Any:
    return await ctx.gather(ctx.approval("a:b", show="in a lane"), ctx.approval("c"))


async def test_questions_with_slashes_and_colons_in_their_names_are_answered(api: Api) -> None:
    with pytest.raises(RunPaused):
        await run_flow(lanes, run_id="tenant:1", store=store_of(api))
    waiting = (await api.viewer.get("/api/approvals", params={"limit": 1})).json()
    assert waiting["next_cursor"] is not None
    rest = (await api.viewer.get("/api/approvals", params={"cursor": waiting["next_cursor"]})).json()
    ids = [item["approval_id"] for item in (*waiting["items"], *rest["items"])]
    assert len(set(ids)) == 2 and all("/" in each for each in ids)  # noqa: PT018

    for each in ids:
        answer = await api.approver.post(f"/api/approvals/{quote(each, safe='')}", json={"action": "approve"})
        assert answer.json()["run_id"] == "tenant:1"

    assert await run_flow(lanes, run_id="tenant:1", store=store_of(api)) == ["approve", "approve"]


async def test_a_flow_is_cancelled_like_a_run_and_knows_no_other_verb(api: Api) -> None:
    await ask(api)
    for verb, body in (("resume", {}), ("retry", None), ("pause", None), ("fork", {"phase_key": "x", "title": "y"})):
        refused = await api.operator.post(f"/api/runs/order-7/{verb}", json=body)
        assert (refused.status_code, refused.json()["code"]) == (409, "run_not_in_state")

    answer = await api.operator.post("/api/runs/order-7/abort", json={"reason": "enough"})

    assert (answer.status_code, answer.json()["state"]) == (202, "cancelled")
    assert (await api.viewer.get("/api/approvals")).json()["items"] == []


async def parent(ctx: Context) -> Any:
    await ctx.run_flow(child)
    return await ctx.approval("ship")


async def child(ctx: Context) -> str:
    return await ctx.step("charge", lambda: "charged")


async def test_a_flow_that_is_over_is_deleted_but_not_below_one_that_goes_on(api: Api) -> None:
    with pytest.raises(RunPaused):
        await run_flow(parent, run_id="whole", store=store_of(api))
    inner = next(run for run in await read_all(api) if run != "whole")

    for run_id, reason in (("whole", "not over"), (inner, "began")):
        refused = await api.admin.delete(f"/api/runs/{quote(run_id, safe='')}")
        assert (refused.status_code, refused.json()["code"]) == (409, "run_not_in_state")
        assert reason in refused.json()["detail"]
    assert (await api.operator.delete("/api/runs/whole")).status_code == 403
    await api.operator.post("/api/runs/whole/abort", json={})
    for run_id in (inner, "whole"):
        answer = await api.admin.delete(f"/api/runs/{quote(run_id, safe='')}")
        assert (answer.status_code, answer.json()["run_id"]) == (200, run_id)
        assert answer.json()["size_bytes"] > 100
    assert await read_all(api) == []


async def test_a_failed_flow_is_retried_like_a_run_and_as_it_is(api: Api) -> None:
    outcome: list[Exception] = [OSError("down")]

    async def broken(ctx: Context) -> str:
        def call() -> str:
            if outcome:
                raise outcome.pop()
            return "up"

        return await ctx.step("call", call)

    with pytest.raises(OSError, match="down"):
        await run_flow(broken, run_id="b", store=store_of(api))
    refusals = (await api.operator.get("/api/runs/b")).json()["refusals"]
    assert refusals["retry"] is None
    changed = await api.operator.post("/api/runs/b/retry", json={"requirements_md": "more"})
    assert (changed.status_code, changed.json()["code"]) == (409, "run_not_in_state")
    assert (await api.viewer.post("/api/runs/b/retry")).status_code == 403

    answers = [await api.operator.post("/api/runs/b/retry") for _ in range(2)]

    assert [(answer.status_code, answer.json()["state"]) for answer in answers] == [(202, "pending")] * 2
    (listed,) = (await api.viewer.get("/api/runs")).json()["items"]
    assert (listed["run_id"], listed["state"]) == ("b", "pending")
    assert await run_flow(broken, run_id="b", store=store_of(api)) == "up"
    refused = await api.operator.post("/api/runs/b/retry")
    assert (refused.status_code, refused.json()["code"]) == (409, "run_not_in_state")


async def test_a_flow_is_forked_before_a_step(api: Api) -> None:
    await ask(api)
    url, body, key = "/api/runs/order-7/fork", {"phase_key": "ship"}, {"Idempotency-Key": "once"}

    answers = [await api.operator.post(url, json=body, headers=key) for _ in range(2)]
    unknown = await api.operator.post(url, json={"phase_key": "lost"})

    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json() == answers[1].json()
    forked = (await api.viewer.get(f"/api/runs/{answers[0].json()['run_id']}")).json()
    assert (forked["state"], [step["key"] for step in forked["steps"]]) == ("pending", ["charge"])
    assert (unknown.status_code, "has no step 'lost'" in unknown.json()["detail"]) == (422, True)


async def test_a_flow_that_kills_its_processes_is_in_the_inbox(api: Api) -> None:
    await ask(api, "order-1")
    db = Database(api.config.database_url)
    async with db.session() as session:
        from sqlalchemy import text

        await session.execute(text("UPDATE flow_runs SET waits_for = 'crashing' WHERE run_id = 'order-1'"))
        await session.commit()
    await db.dispose()

    items = (await api.operator.get("/api/inbox")).json()["items"]
    (stopped,) = [item for item in items if not item["is_decision"]]
    assert (stopped["run_id"], stopped["kind"], stopped["is_yours"]) == ("order-1", "flow", True)
    assert "holdfast resume order-1" in stopped["summary"]
    detail = (await api.operator.get("/api/runs/order-1")).json()
    assert (detail["now"], detail["pause_reason"]) == ("its processes died again and again", "crashing")
    assert "holdfast resume order-1" in detail["telling"]["text"]
    assert detail["refusals"]["resume"] is None
    assert (await api.viewer.post("/api/runs/order-1/resume")).status_code == 403
    assert (await api.operator.post("/api/runs/order-1/resume", json={"requirements_md": "x"})).status_code == 409
    assert (await api.operator.post("/api/runs/order-1/resume")).status_code == 202
    detail = (await api.viewer.get("/api/runs/order-1")).json()
    assert (detail["now"], detail["pause_reason"], detail["telling"]["text"]) == ("is to go on", None, "Is to go on.")
    assert detail["last_events"][-1]["kind"] == "run.resume.requested"


async def test_a_flow_that_waits_for_a_person_is_not_resumed(api: Api) -> None:
    await ask(api, "order-1")

    refused = await api.operator.post("/api/runs/order-1/resume")

    assert (refused.status_code, refused.json()["code"]) == (409, "run_not_in_state")
    assert "goes on by itself" in refused.json()["detail"]


async def test_a_failed_flow_is_in_the_inbox_and_a_damaged_one_hides_no_other(api: Api) -> None:
    async def broken(ctx: Context) -> None:
        await ctx.step("try", lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        await run_flow(broken, run_id="broken-1", store=store_of(api))
    await ask(api, "order-1")
    await ask(api, "order-2")
    db = Database(api.config.database_url)
    async with db.session() as session:
        from sqlalchemy import text

        await session.execute(text("UPDATE events SET body = '{' WHERE run_id = 'order-1' AND seq = 3"))
        await session.commit()
    await db.dispose()

    items = (await api.viewer.get("/api/inbox")).json()["items"]
    assert {(item["run_id"], item["is_decision"]) for item in items} == {("order-2", True), ("broken-1", False)}
    (failed,) = [item for item in items if item["run_id"] == "broken-1"]
    detail = (await api.viewer.get("/api/runs/broken-1")).json()
    assert "ZeroDivisionError" in detail["telling"]["text"]
    assert failed["until"] == detail["ended_at"]
