"""Keys alone: whoever is at something stays there, whatever is drawn anew, or is led to what comes next."""

from playwright.sync_api import Page, expect
from tests.browser.conftest import OpenPage
from tests.support.browser_world import Served


def paused_run(served: Served, title: str) -> str:
    run_id = served.start_run("asking", title=title)
    served.wait_for(run_id, "paused")
    return run_id


def focus_entry(page: Page, run_id: str) -> None:
    """Go to the last link to the run among what waits, also where it is folded away."""
    link = page.locator(f".inbox a.button[href='/runs/{run_id}']")
    expect(link).to_be_attached()
    link.evaluate("link => { link.closest('details')?.setAttribute('open', ''); link.focus(); }")
    expect(link).to_be_focused()


def test_what_waits_is_drawn_anew_around_whoever_is_there(served: Served, open_page: OpenPage) -> None:
    run_id = paused_run(served, "Stays at it")
    page = open_page(served)
    focus_entry(page, run_id)

    other = paused_run(served, "Comes beside it")

    expect(page.locator(f".inbox a.button[href='/runs/{other}']")).to_be_attached()
    expect(page.locator(f".inbox a.button[href='/runs/{run_id}']")).to_be_focused()
    for each in (run_id, other):
        served.decide(each, "abort")


def test_one_filter_after_the_other_is_filled_in(served: Served, open_page: OpenPage) -> None:
    page = open_page(served)
    page.locator(".more-filters summary").press("Enter")
    page.get_by_label("Repository", exact=True).focus()
    page.keyboard.type("no-such-repository")

    page.keyboard.press("Tab")

    expect(page.get_by_role("heading", name="No run fits these filters")).to_be_visible()
    expect(page.get_by_label("Started by", exact=True)).to_be_focused()
    page.get_by_role("button", name="Clear the filters").press("Enter")
    expect(page.get_by_label("Repository", exact=True)).to_have_value("")


def test_a_button_that_goes_leads_to_the_head_of_the_run(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, f"/runs/{paused_run(served, 'Is aborted by keys')}")
    page.get_by_role("button", name="Abort run…").press("Enter")

    page.get_by_role("dialog").get_by_role("button", name="Abort run").press("Enter")

    expect(page.locator(".run-status")).to_contain_text("borted")
    expect(page.get_by_role("button", name="Abort run…")).to_have_count(0)
    expect(page.locator("h1")).to_be_focused()


def test_the_next_decision_comes_up_and_is_not_made_by_the_same_key(served: Served, open_page: OpenPage) -> None:
    run_id = served.start_run("plain", title="Pushes twice", persona_overrides={"author": "z-pushing"})
    served.wait_for(run_id, "paused")
    page = open_page(served, f"/runs/{run_id}")
    expect(page.locator(".approval")).to_contain_text("git push origin main")
    expect(page.locator(".approval .causes dt").first).to_have_text("Allow this call")  # as its button is called

    page.get_by_role("button", name="Allow this call").press("Enter")

    expect(page.locator(".approval")).to_contain_text("git push origin topic")
    expect(page.get_by_role("button", name="Allow this call")).not_to_be_focused()
    served.decide(run_id, "abort")
