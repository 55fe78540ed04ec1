"""Activity and trace of an agent with subagents, and of a call that goes on while one looks."""

import re
from pathlib import Path

from playwright.sync_api import expect
from tests.browser.conftest import OpenPage
from tests.browser.test_everyone import check_access
from tests.support.browser_world import Served


def test_subagents_stand_inside_the_calls_that_began_them(served: Served, open_page: OpenPage) -> None:
    run_id = served.start_run("plain", title="Asks others", persona_overrides={"author": "z-delegate"})
    served.wait_for(run_id, "completed")
    page = open_page(served, f"/runs/{run_id}/activity")

    # In a run that is over they are folded, each with its name, and what they did is inside.
    agents = page.locator(".activity > .e-agent > details")
    expect(agents).to_have_count(4)  # two in each of two phases
    expect(page.locator(".activity")).to_contain_text("Run completed")
    agent = agents.first
    expect(agent).not_to_have_attribute("open", "")
    expect(agent.locator("> summary")).to_contain_text(re.compile(r"subagent general-purpose.+1 call · "))
    agent.locator("> summary").press("Enter")
    inside = agent.locator(".inside > .entry")
    expect(inside).to_have_count(3)  # what it says, its call, what it found
    expect(inside.last).to_contain_text("Looked at")
    check_access(page)
    number = (inside.nth(1).get_attribute("id") or "").removeprefix("e-")

    # A link to something inside opens what is around it.
    page.goto(f"{served.url}/runs/{run_id}/activity?entry={number}")
    expect(page.locator(".inside .pointed")).to_be_in_viewport()
    for width, theme in ((390, "dark"), (1024, "light")):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_rows_of_a_trace_are_a_tree_for_keys(served: Served, open_page: OpenPage) -> None:
    run_id = served.start_run("plain", title="Asks others", persona_overrides={"author": "z-delegate"})
    served.wait_for(run_id, "completed")
    page = open_page(served, f"/runs/{run_id}/timeline?open=draft")
    rows = page.locator(".tl-label.step")
    agent = rows.filter(has_text="subagent general-purpose").first
    inside = page.locator(".tl-label.depth-1")
    expect(agent).to_be_visible()
    expect(inside).to_have_count(6)  # of each of the two: two model calls and a tool call

    agent.focus()
    page.keyboard.press("ArrowLeft")
    expect(inside).to_have_count(3)
    expect(page).to_have_url(re.compile("fold="))
    expect(agent).to_be_focused()
    check_access(page)
    page.keyboard.press("ArrowRight")
    expect(inside).to_have_count(6)
    page.keyboard.press("ArrowDown")
    expect(inside.first).to_be_focused()
    page.keyboard.press("Enter")
    detail = page.get_by_role("region", name="Details of rehearsal-1")
    expect(detail).to_be_focused()
    expect(detail).to_contain_text("tokens in")
    page.keyboard.press("Escape")
    expect(detail).to_have_count(0)
    expect(inside.first).to_be_focused()

    # A filter keeps what a call is inside of.
    page.get_by_label("Search calls").fill("I will look")
    expect(page.get_by_text("4 calls of")).to_be_visible()  # in both phases
    expect(rows.filter(has_text="subagent")).to_have_count(4)


def test_a_call_that_ends_leaves_the_focus_and_what_is_open(served: Served, open_page: OpenPage) -> None:
    run_id = served.start_run("plain", title="Takes its time", persona_overrides={"author": "z-waiting"})
    page = open_page(served, f"/runs/{run_id}/activity")
    call = page.locator(".e-tool").filter(has_text="until")
    expect(call.locator(".mark.tone-busy")).to_be_visible()
    summary = call.locator("summary")
    summary.press("Enter")
    expect(call).to_contain_text("Not there yet.")

    Path(served.folder / "data" / "worktrees" / run_id / "go").touch()

    expect(call.locator(".mark.tone-good")).to_be_visible()
    expect(summary).to_be_focused()
    expect(call.locator(".numbered")).to_contain_text("gone on")
    served.wait_for(run_id, "completed")
