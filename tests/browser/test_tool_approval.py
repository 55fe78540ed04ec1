"""Approvals of tool calls: the command as it runs, why it is asked, other arguments, one answer for many."""

from collections.abc import Callable

from playwright.sync_api import Page, expect
from tests.browser.conftest import OpenPage
from tests.browser.test_everyone import check_access
from tests.support.browser_world import HARM, Served


def test_a_command_is_shown_as_it_runs_allowed_for_its_kind_and_edited(
    served: Served, open_page: OpenPage, shoot: Callable[[Page, str], None]
) -> None:
    run_id = served.start_run("plain", title="Pushes", persona_overrides={"author": "z-pushing"})
    served.wait_for(run_id, "paused")
    page = open_page(served, f"/runs/{run_id}/activity")
    card = page.locator(".approval")

    expect(card).to_contain_text("$ git push origin main")
    expect(card).to_contain_text("Asked because")
    expect(card).to_contain_text(
        "Nobody is asked again in this run about commands that begin with 'git push', with no other options."
    )
    expect(card.locator(".pairs")).to_contain_text(run_id)  # the folder is the run's own
    for width in (390, 1024, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme="dark" if width == 1024 else "light")
        shoot(page, f"tool-approval-{width}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    check_access(page)
    card.get_by_role("button", name="Allow for this run").press("Enter")

    # The second push is made without a question; the third is of no kind, for it is more than plain words.
    expect(card).to_contain_text(f"$ git push '{HARM}'")
    expect(card).to_contain_text('"argv"')  # whatever else a model gives it is beside the command
    expect(card.locator("img")).to_have_count(0)
    expect(card.get_by_role("button", name="Allow for this run")).to_have_count(0)
    card.get_by_text("Edit the command").press("Enter")
    card.get_by_label("Command").fill("echo edited")
    card.get_by_role("button", name="Allow this call").press("Enter")

    detail = served.wait_for(run_id, "completed")
    with served.client() as client:
        events = client.get(f"/api/runs/{run_id}/history").text
    answers = [each for each in detail["approvals"] if each["about"] == "tool"]
    assert len(answers) == 2
    assert '"allowed_kind"' in events
    assert "edited" in events
    assert page.evaluate("window.hurt") is None
