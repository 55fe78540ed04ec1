"""Keys alone: whoever is at something stays there, whatever is drawn anew, or is led to what comes next."""

import pytest
from playwright.sync_api import Page, Route, expect
from tests.browser.conftest import OpenPage
from tests.support.browser_world import Served
from tests.support.progress_limit import wait_until


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


def test_a_fold_stays_open_around_the_focus_when_its_count_grows(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, "/health")
    expect(page.locator("h1")).to_have_text("Health")

    page.evaluate(
        """async () => {
            const { h, redraw } = await import("/js/h.js");
            const place = document.querySelector("main").appendChild(h("div"));
            const draw = (count) =>
                redraw(place, h("details", h("summary", `${count} more`), h("a", { href: "/runs/1" }, "Inside")));
            draw(1).querySelector("details").open = true;
            place.querySelector("a").focus();
            draw(2);
        }"""
    )

    expect(page.get_by_role("link", name="Inside")).to_be_focused()


@pytest.mark.parametrize("is_late", [False, True], ids=["answered", "before the first answer"])
def test_one_filter_after_the_other_is_filled_in(served: Served, open_page: OpenPage, is_late: bool) -> None:
    page = open_page(served, "/health")
    late: list[Route] = []
    if is_late:
        page.route("**/api/runs?limit=100", lambda route: late.append(route))
    page.get_by_role("link", name="Runs", exact=True).press("Enter")
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_focused()
    expect(page.get_by_text("Loading the runs…")).to_have_count(1 if is_late else 0)
    page.locator(".more-filters summary").press("Enter")
    page.get_by_label("Repository", exact=True).focus()
    page.keyboard.type("no-such-repository")

    page.keyboard.press("Tab")

    expect(page.get_by_role("heading", name="No run fits these filters")).to_be_visible()
    expect(page.get_by_label("Started by", exact=True)).to_be_focused()
    page.get_by_role("button", name="Clear the filters").press("Enter")
    expect(page.get_by_label("Repository", exact=True)).to_have_value("")


@pytest.mark.parametrize("is_late", [False, True], ids=["answered", "answered after the page knows"])
def test_a_button_that_goes_leads_to_the_head_of_the_run(served: Served, open_page: OpenPage, is_late: bool) -> None:
    run_id = paused_run(served, "Is aborted by keys")
    page = open_page(served, f"/runs/{run_id}")
    late: list[Route] = []
    if is_late:
        page.route("**/abort", lambda route: late.append(route))
    page.get_by_role("button", name="Abort run…").press("Enter")

    page.get_by_role("dialog").get_by_role("button", name="Abort run").press("Enter")

    if is_late:
        wait_until(lambda: page.evaluate("1") and late, "the abort is asked for")
        with served.client() as client:
            answer = client.post(f"/api/runs/{run_id}/abort").json()
    expect(page.locator(".run-status")).to_contain_text("borted")
    expect(page.locator(".run-actions").get_by_text("Abort run…")).to_have_count(0)
    if is_late:
        late[0].fulfill(status=202, json=answer)
    expect(page.get_by_role("dialog")).to_have_count(0)
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


def test_new_runs_wait_for_whoever_is_in_the_list(served: Served, open_page: OpenPage) -> None:
    run_id = paused_run(served, "Is looked at")
    page = open_page(served)
    links = page.locator(".runs tbody a")
    mine = page.locator(f".runs tbody a[href='/runs/{run_id}']").first
    mine.focus()

    first, second = paused_run(served, "Comes first"), paused_run(served, "Comes second")

    fresh = page.locator(".fresh").get_by_role("button", name="Show 2 new runs")
    expect(fresh).to_be_visible()
    expect(mine).to_be_focused()
    fresh.press("Enter")
    expect(links.first).to_have_attribute("href", f"/runs/{second}")
    expect(links.first).to_be_focused()
    expect(fresh).to_have_count(0)
    third = paused_run(served, "Comes third")
    expect(page.locator(".fresh").get_by_role("button")).to_be_visible()
    page.keyboard.press(".")
    expect(page.locator(f".runs tbody a[href='/runs/{third}']").first).to_be_visible()
    for each in (run_id, first, second, third):
        served.decide(each, "abort")
