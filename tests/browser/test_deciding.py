"""Deciding: approvals, and the verbs of a run. Nothing happens twice, and whoever is late is told by whom."""

import re

from playwright.sync_api import expect
from tests.browser.conftest import OpenPage
from tests.browser.test_everyone import check_access
from tests.support.browser_world import Served
from tests.support.progress_limit import wait_until


def waiting_run(served: Served, title: str, workflow: str = "asking") -> str:
    run_id = served.start_run(workflow, title=title, requirements_md=f"# {title}\n\nSo that it is done.")
    served.wait_for(run_id, "paused")
    return run_id


def test_approving_from_the_inbox_lets_the_run_complete(served: Served, open_page: OpenPage) -> None:
    run_id = waiting_run(served, "To be approved")
    page = open_page(served)

    entry = page.locator(".inbox li").filter(has_text="To be approved")
    expect(entry).to_contain_text("Approve “draft”?")
    entry.get_by_role("link", name="Read and decide").click()
    card = page.locator(".approval")
    expect(card).to_contain_text("Valid by t/note@1")
    expect(card).to_contain_text("Phase “final” starts.")
    expect(card.locator(".document")).to_contain_text("Points")
    subject = card.locator(".approval-subject")  # at full height: nothing scrolls inside
    assert subject.evaluate("(each) => each.scrollHeight - each.clientHeight") == 0
    card.get_by_role("button", name="Approve and continue").dblclick()

    expect(page.locator(".run-status")).to_contain_text("Completed")
    expect(card).to_have_count(0)
    detail = served.wait_for(run_id, "completed")
    assert [each["action"] for each in detail["approvals"]] == ["approve"]


def test_an_artifact_is_approved_as_the_person_edited_it(served: Served, open_page: OpenPage) -> None:
    run_id = waiting_run(served, "To be edited")
    page = open_page(served, f"/runs/{run_id}")
    card = page.locator(".approval")

    card.get_by_text("Edit the artifact").press("Enter")
    text = card.get_by_label("Artifact as JSON")
    expect(text).to_have_value(re.compile('"summary"'))
    check_access(page)
    text.fill('{"points": []}')
    card.get_by_role("button", name="Approve and continue").click()
    expect(card.get_by_role("alert")).to_contain_text("summary")  # it must be valid by its schema, too
    text.fill('{"summary": "In my own words, and long enough", "points": ["one", "two"]}')
    card.get_by_role("button", name="Approve and continue").click()

    detail = served.wait_for(run_id, "completed")
    edited = [each for each in detail["artifacts"] if each["phase_key"] == "draft"][-1]
    with served.client() as client:
        content = client.get(f"/api/runs/{run_id}/artifacts/draft").text
        history = client.get(f"/api/runs/{run_id}/history").text
    assert edited["state"] == "accepted"
    assert "In my own words" in content
    assert '"by":"admin"' in history.replace(" ", "")


def test_requested_changes_make_a_second_attempt_that_can_be_compared(served: Served, open_page: OpenPage) -> None:
    run_id = waiting_run(served, "To be changed")
    page = open_page(served, f"/runs/{run_id}")
    card = page.locator(".approval")

    card.get_by_role("button", name="Request changes").click()
    expect(card.get_by_label("Comment")).to_be_focused()  # without a comment the agent would not know what to change
    card.get_by_label("Comment").fill("Name the rounding mode.")
    card.get_by_role("button", name="Request changes").click()

    expect(card).to_contain_text("attempt 2")
    card.get_by_role("button", name="Compare with attempt 1").click()
    expect(card.locator("tr.add").filter(has_text="Name the rounding mode.").first).to_be_visible()
    expect(page.locator(".tl-label.phase").first).to_contain_text("×2")
    served.decide(run_id, "approve")
    served.wait_for(run_id, "completed")


def test_someone_else_was_faster_and_the_page_says_who(served: Served, open_page: OpenPage) -> None:
    run_id = waiting_run(served, "Contested")
    page = open_page(served, f"/runs/{run_id}")
    card = page.locator(".approval")
    expect(card).to_be_visible()
    page.route("**/api/runs/*", lambda route: route.abort())  # the page does not hear of the other answer in time
    with served.client("approver") as other:
        (approval,) = [each for each in other.get("/api/approvals").json()["items"] if each["run_id"] == run_id]
        assert other.post(f"/api/approvals/{approval['approval_id']}", json={"action": "reject"}).status_code == 200

    card.get_by_role("button", name="Approve and continue").click()

    expect(page.get_by_role("alert").first).to_contain_text("'reject' by approver at")


def test_a_critical_phase_needs_two_people(served: Served, open_page: OpenPage) -> None:
    run_id = waiting_run(served, "Two keys", workflow="guarded")
    page = open_page(served, f"/runs/{run_id}")

    expect(page.locator(".approval")).to_contain_text("A second person must approve too")
    page.get_by_role("button", name="Approve and continue").click()
    expect(page.locator(".approval")).to_contain_text("admin approved. A second person is needed.")
    page.get_by_role("button", name="Approve and continue").click()
    expect(page.get_by_role("alert").first).to_contain_text("two different people")
    other = open_page(served, f"/runs/{run_id}", role="approver")
    other.get_by_role("button", name="Approve and continue").click()
    expect(page.locator(".run-status")).to_contain_text("Completed")


def test_aborting_asks_first_says_what_stays_and_records_the_reason(served: Served, open_page: OpenPage) -> None:
    run_id = waiting_run(served, "To be aborted")
    page = open_page(served, f"/runs/{run_id}")

    page.get_by_role("button", name="Abort run…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("ends for good")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.get_by_role("button", name="Abort run…").click()
    dialog.get_by_label("Reason").fill("No longer wanted.")
    dialog.get_by_role("button", name="Abort run").click()

    expect(page.locator(".run-status")).to_contain_text("Aborted by admin: No longer wanted.")
    assert served.wait_for(run_id, "cancelled")


def test_a_fork_begins_before_a_phase_and_opens(served: Served, open_page: OpenPage) -> None:
    run_id = served.start_run("plain", title="Trunk")
    other = served.start_run("plain", title="Another", requirements_md="# Something else\n\n- and more")
    served.wait_for(run_id, "completed")
    page = open_page(served, f"/runs/{run_id}?row=final")

    page.get_by_role("button", name="Fork from here…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Begin with")).to_have_value("final")
    dialog.get_by_label("Title").fill("Branch")
    dialog.get_by_role("button", name="Fork").click()

    expect(page.locator("h1")).to_have_text("Branch")
    expect(page.locator(".facts").first).to_contain_text("forked from")
    expect(page.locator(".run-status")).to_contain_text("Completed")
    page.get_by_role("link", name="compare").click()
    compared = page.get_by_role("region", name="The two runs")
    expect(compared.get_by_role("columnheader").first).to_contain_text("Trunk")
    expect(compared.get_by_role("row", name=re.compile("^Cost"))).to_contain_text("simulated")
    expect(page.get_by_text("the same in both")).to_have_count(2)
    expect(page.get_by_role("heading", name="No changes")).to_be_visible()
    served.wait_for(other, "completed")
    page.goto(f"{served.url}/compare?runs={run_id},{other}")
    page.locator("summary").filter(has_text="final").first.press("Enter")
    expect(page.locator("details tr.add").first).to_be_visible()
    check_access(page)


def test_several_runs_are_aborted_and_retried_together(served: Served, open_page: OpenPage) -> None:
    waiting = [waiting_run(served, f"Together {number}") for number in (1, 2)]
    failed = served.start_run("plain", title="Together 3", persona_overrides={"author": "z-spoiler"})
    served.wait_for(failed, "failed")
    page = open_page(served, "/?text=Together")
    for number in (1, 2, 3):
        page.get_by_label(f"Choose Together {number}").check()

    page.get_by_role("button", name="Abort 2…").press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Abort 2 runs").press("Enter")
    expect(page.locator(".bulk")).to_contain_text("1 run chosen")
    page.get_by_role("button", name="Retry 1…").press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Retry 1 run").press("Enter")

    expect(page.locator(".bulk")).to_be_empty()
    for run_id in waiting:
        served.wait_for(run_id, "cancelled")
    with served.client() as client:
        history = f"/api/runs/{failed}/history"
        wait_until(lambda: "run.resumed" in client.get(history).text, lambda: client.get(history).text)


def test_a_run_out_of_money_goes_on_after_a_top_up(served: Served, open_page: OpenPage) -> None:
    run_id = served.start_run("plain", title="Poor", budget_usd=0.05)
    served.wait_for(run_id, "paused")
    page = open_page(served, f"/runs/{run_id}")

    expect(page.locator(".run-status")).to_contain_text("Give the run more: holdfast budget")
    page.get_by_role("button", name="Give it more money…").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Amount in US dollars").fill("2")
    dialog.get_by_role("button", name="Raise the limit").click()

    expect(page.locator(".run-status")).to_contain_text("Completed")


def test_a_failed_run_is_retried_at_the_phase_that_failed(served: Served, open_page: OpenPage) -> None:
    run_id = served.start_run("plain", title="Again", persona_overrides={"author": "z-spoiler"})
    served.wait_for(run_id, "failed")
    page = open_page(served, f"/runs/{run_id}")

    page.locator(".run-actions").get_by_role("button", name="Retry…").click()
    expect(page.get_by_role("dialog")).to_contain_text("Phase “draft” starts again as attempt 2.")
    page.get_by_role("dialog").get_by_role("button", name="Retry").click()

    expect(page.locator(".tl-label.phase").first).to_contain_text("×2")
    expect(page.locator(".run-status")).to_contain_text("failed")


def test_a_tool_call_is_allowed_or_refused_with_its_arguments_in_view(served: Served, open_page: OpenPage) -> None:
    run_id = served.start_run("plain", title="Asks before it writes", persona_overrides={"author": "z-asker"})
    served.wait_for(run_id, "paused")
    page = open_page(served)

    entry = page.locator(".inbox li").filter(has_text="Asks before it writes")
    expect(entry).to_contain_text(re.compile(r"May the agent (call|run) “.+”\?"))
    entry.get_by_role("link", name="Read and decide").click()
    card = page.locator(".approval")
    expect(card.get_by_role("heading")).to_contain_text("May the agent call “")
    expect(card).to_contain_text("with exactly these arguments")
    expect(card.locator("pre")).to_contain_text("write_the_draft.md")
    expect(page.locator(".run-status")).to_contain_text("Waiting for a person: may the agent call “")
    expect(card.get_by_role("button", name="Request changes")).to_have_count(0)
    card.get_by_role("button", name="Reject…").click()
    expect(page.get_by_role("dialog")).to_contain_text("the agent is told so and goes on without it")
    page.keyboard.press("Escape")
    with page.expect_response(
        lambda answer: "/api/approvals/" in answer.url and answer.request.method == "POST"
    ) as sent:
        card.get_by_role("button", name="Allow this call").click()
    assert sent.value.json()["action"] == "approve"
    page.get_by_role("button", name="Abort run…").click()
    page.get_by_role("dialog").get_by_role("button", name="Abort run").click()
    expect(page.locator(".run-status")).to_contain_text("Aborted by admin")


def test_a_viewer_sees_everything_and_is_told_why_it_cannot_act(served: Served, open_page: OpenPage) -> None:
    run_id = waiting_run(served, "Only looked at")
    page = open_page(served, f"/runs/{run_id}", role="viewer")

    approve = page.get_by_role("button", name=re.compile("^Approve and continue"))
    expect(approve).to_have_attribute("aria-disabled", "true")
    expect(approve).to_have_attribute("title", "This needs the role approver; you are viewer.")
    approve.click(force=True)
    page.get_by_role("button", name=re.compile("^Abort run")).click(force=True)
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert served.wait_for(run_id, "paused")
    served.decide(run_id, "abort")
