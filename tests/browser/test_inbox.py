"""The inbox: by danger, decided in place, the next one comes up; what only others can decide is not yours."""

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect
from tests.browser.conftest import OpenPage
from tests.browser.test_everyone import check_access
from tests.support.browser_world import HARM, Served
from tests.support.progress_limit import wait_until


@pytest.fixture(scope="module")
def inbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of its own: what others leave waiting would be in the inbox too."""
    server = Served(tmp_path_factory.mktemp("inbox")).start()
    runs = [
        (server.start_run("plain", title="Spoilt", persona_overrides={"author": "z-spoiler"}), "failed"),
        (server.start_run("asking", title=f"Draft {HARM}"), "paused"),
        (server.start_run("plain", title="Pushes", persona_overrides={"author": "z-pushing"}), "paused"),
        (server.start_run("guarded", title="Guarded"), "paused"),
    ]
    for run_id, state in runs:
        server.wait_for(run_id, state)
    yield server
    server.stop()


def marks(page: Page) -> list[str]:
    return page.locator(".inbox-list .mark").all_inner_texts()


def test_decisions_come_by_danger_and_one_after_the_other(
    inbox: Served, open_page: OpenPage, shoot: Callable[[Page, str], None]
) -> None:
    page = open_page(inbox, "/inbox")

    expect(page.locator(".inbox-list li")).to_have_count(4)
    assert marks(page) == ["Critical", "Tool call", "Approval", "Failed"]
    expect(page.locator(".inbox-list")).to_contain_text("$ git push origin main")
    expect(page).to_have_title("(4) Inbox · holdfast")
    for width in (390, 1024, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme="dark" if width == 1024 else "light")
        expect(page.locator(".approval")).to_be_visible()
        shoot(page, f"inbox-{width}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    check_access(page)

    # The first of two people: then it waits for somebody else, and the next one comes up.
    page.get_by_role("button", name="Approve and continue").press("Enter")
    expect(page.locator(".approval h2")).to_contain_text("May the agent run “$ git push origin main”?")
    expect(page.locator(".approval h2")).to_be_focused()
    expect(page).to_have_title("(3) Inbox · holdfast")
    expect(page.locator(".inbox-list li").last).to_contain_text("for somebody else")
    page.get_by_role("button", name="Reject…").press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Reject").press("Enter")
    # The draft, or what the same run asks next if it was faster.
    expect(page.locator(".inbox-place")).to_contain_text(
        re.compile(f"{re.escape(f'Draft {HARM}')}|git push origin topic")
    )
    expect(page.locator(".inbox-list")).to_contain_text(f"Draft {HARM}")
    expect(page.locator(".inbox-place h2")).to_be_focused()
    expect(page.locator(".inbox-view img")).to_have_count(0)
    assert page.evaluate("window.hurt") is None


def test_a_failed_run_is_there_until_it_was_looked_at(inbox: Served, open_page: OpenPage) -> None:
    page = open_page(inbox, "/inbox")
    row = page.locator(".inbox-list li").filter(has_text="Spoilt")

    row.get_by_role("button").press("Enter")
    place = page.locator(".inbox-place")
    heading = place.get_by_role("heading", name="It failed: look why.")
    expect(heading).to_be_visible()
    page.keyboard.press("k")
    expect(row.get_by_role("button")).not_to_be_focused()
    expect(page.locator(".inbox-list [aria-current]")).to_be_focused()  # so that Enter opens what is marked
    page.set_viewport_size({"width": 1280, "height": 330})
    row.get_by_role("button").press("Enter")
    expect(heading).to_be_visible()
    expect(row).to_be_in_viewport()
    expect(heading).to_be_in_viewport()  # beside the row, however far down that is
    findings = place.get_by_role("link", name="Read its findings")
    expect(findings).to_have_attribute("href", re.compile("/artifacts\\?phase=draft$"))
    page.set_viewport_size({"width": 390, "height": 600})
    row.get_by_role("button").press("Enter")
    expect(heading).to_be_visible()
    expect(heading).to_be_in_viewport()  # though it stands below the list
    place.get_by_role("button", name="Looked at").press("Enter")

    expect(row).to_have_count(0)
    page.reload()
    expect(page.locator(".inbox-list li").first).to_be_visible()
    expect(row).to_have_count(0)


def test_what_others_must_decide_is_not_waiting_for_you(inbox: Served, open_page: OpenPage) -> None:
    page = open_page(inbox, "/inbox", role="viewer")

    expect(page.locator(".inbox-list li").filter(has_text=f"Draft {HARM}")).to_contain_text("for somebody else")
    expect(page.get_by_role("link", name=re.compile("waiting for you"))).to_have_text(re.compile("^1 "))
    page.keyboard.press("j")
    expect(page.locator(".inbox-place")).to_contain_text("It needs the role approver; you are viewer.")


def test_new_ones_are_notified_if_that_is_allowed(inbox: Served, open_page: OpenPage) -> None:
    page = open_page(inbox, "/settings")
    page.context.grant_permissions(["notifications"])
    page.add_init_script(
        """window.notices = [];
        window.Notification = class {
            static permission = "granted";
            constructor(title) { window.notices.push(title); }
        };
        Object.defineProperty(document, "hidden", { get: () => true });"""
    )
    page.goto(f"{inbox.url}/inbox")
    expect(page.locator(".inbox-list li").first).to_be_visible()

    run_id = inbox.start_run("asking", title="New one")
    inbox.wait_for(run_id, "paused")

    wait_until(lambda: page.evaluate("window.notices.length > 0"), "a notice is shown")
    assert page.evaluate("window.notices") == ["Approve “draft”?"]
    with inbox.client() as client:
        assert client.post(f"/api/runs/{run_id}/abort", json={}).is_success
    inbox.wait_for(run_id, "cancelled")
