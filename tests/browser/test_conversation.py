"""Conversations: both sides, the next message, stopping an answer; and a word to a phase that works."""

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import FilePayload, Page, expect
from tests.browser.conftest import OpenPage
from tests.browser.test_everyone import check_access
from tests.support.browser_world import HARM, Served


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose model takes its time, so that there is somebody to talk to."""
    server = Served(tmp_path_factory.mktemp("slow")).start(delay_s=0.7)
    yield server
    server.stop()


def test_a_conversation_has_both_sides_a_composer_and_a_place_in_list_and_inbox(
    slow: Served, open_page: OpenPage, shoot: Callable[[Page, str], None]
) -> None:
    page = open_page(slow, "/talk")
    page.get_by_label("Repository").fill(str(slow.repo))
    message = page.get_by_label("Your message")
    message.fill(f"Where is the sum made? {HARM}")
    message.press_sequentially(" @hop")
    expect(page.get_by_role("listbox", name="Files").get_by_role("option")).to_have_text("shop.py")
    check_access(page)
    message.press("Enter")
    expect(message).to_have_value(f"Where is the sum made? {HARM} @shop.py ")
    shot = FilePayload(name="shot.png", mimeType="image/png", buffer=b"\x89PNG\r\n\x1a\n")
    page.get_by_label("Images").set_input_files(files=[shot])
    page.get_by_label("Rehearse with").press("Space")
    message.press("Control+Enter")
    expect(page).to_have_url(re.compile("/runs/"))
    run_id = page.url.rpartition("/")[2]
    slow.wait_for(run_id, "paused")
    list_ = page.locator(".activity")

    expect(list_.locator(".person")).to_contain_text(HARM)
    expect(list_.locator(".person")).to_contain_text("with shot.png")
    expect(list_.locator(".said").first).to_be_visible()
    page.get_by_label("Your message").fill(f"And @shop.py? {HARM}")
    page.keyboard.press("Control+Enter")
    expect(list_.locator(".person")).to_have_count(2)
    page.get_by_role("button", name="Stop the answer").press("Enter")
    expect(page.locator(".run-status")).to_contain_text("It waits for what you say next.")
    for width in (390, 1024, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme="dark" if width == 1024 else "light")
        shoot(page, f"conversation-{width}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    check_access(page)
    assert page.evaluate("window.hurt") is None
    expect(page.locator("main img")).to_have_count(0)
    with slow.client() as client:
        history = client.get(f"/api/runs/{run_id}/history").text
    assert "def total(prices)" in history  # the file went along

    page.goto(f"{slow.url}/inbox")
    expect(page.locator(".inbox-list")).to_contain_text("Your turn")
    page.goto(slow.url)
    expect(page.locator(".runs tbody")).to_contain_text("Where is the sum made?")


def test_one_decides_in_a_conversation_where_one_reads_it(slow: Served, open_page: OpenPage) -> None:
    body = {"repo_path": str(slow.repo), "text": "run git push --dry-run", "simulate": True}
    with slow.client() as client:
        run_id = client.post("/api/conversations", json=body).json()["run_id"]
    slow.wait_for(run_id, "paused")
    page = open_page(slow, f"/runs/{run_id}")

    card = page.locator(".panel .activity + .stack .approval")  # behind what was said, before what is said next
    expect(card).to_contain_text("$ git push --dry-run")
    expect(page.locator(".composer")).to_have_css("position", "static")  # it does not stand before the decision
    check_access(page)
    page.get_by_role("link", name="Timeline").click()
    expect(page.locator(".approval")).to_be_visible()
    page.get_by_role("link", name="Activity").click()
    card.get_by_role("button", name="Reject…").press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Reject").press("Enter")

    expect(page.locator(".activity")).to_contain_text("Rejected by admin")
    expect(card).to_have_count(0)
    expect(page.get_by_label("Your message")).to_be_focused()
    expect(page.locator(".composer")).to_have_css("position", "sticky")
    page.get_by_role("button", name="End conversation…").press("Enter")
    page.get_by_role("dialog", name="End this conversation?").get_by_role("button", name="End conversation").press(
        "Enter"
    )
    expect(page.locator(".run-status")).to_contain_text("Aborted by admin")


def test_a_phase_at_work_hears_a_person_before_its_next_call(slow: Served, open_page: OpenPage) -> None:
    run_id = slow.start_run("plain", title="Spoken to", persona_overrides={"author": "z-waiting"})
    page = open_page(slow, f"/runs/{run_id}/activity")
    expect(page.locator(".e-tool .mark.tone-busy")).to_be_visible()

    page.get_by_label("Images").set_input_files(
        files=[FilePayload(name="shot.png", mimeType="image/png", buffer=b"\x89PNG\r\n\x1a\n")]
    )
    expect(page.get_by_role("button", name="shot.png")).to_be_visible()
    page.get_by_label("Say something to the agent").fill("Mind the rounding.")
    page.get_by_role("button", name="Send").press("Enter")

    said = page.locator(".person")
    expect(said).to_contain_text("Mind the rounding.")
    expect(said).to_contain_text("with shot.png")
    expect(said).to_contain_text("to “draft”, not read yet")
    (slow.folder / "data" / "worktrees" / run_id / "go").touch()
    expect(said).to_contain_text("to “draft”, read")
    expect(page.get_by_role("button", name="shot.png")).to_have_count(0)
    slow.wait_for(run_id, "completed")
    expect(page.get_by_role("form", name="Message to the agent")).to_be_hidden()
    expect(page.locator("h1")).to_be_focused()  # what had the focus is gone
