"""What does not go well is told as it is: failed calls, broken answers, sessions that end, wrong addresses."""

import re

import pytest
from playwright.sync_api import expect
from tests.browser.conftest import OpenPage
from tests.support.browser_world import Served
from tests.support.progress_limit import wait_until

COMES_LATE = """() => {
    const card = document.createElement("div");
    card.style.height = "3000px";
    document.querySelector("main").prepend(card);
    return new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
}"""


@pytest.fixture(scope="module")
def troubled(served: Served) -> str:
    """A run that waits for an approval, after calls that were denied or failed."""
    run_id = served.start_run("plain", title="Troubled", persona_overrides={"author": "z-scripted"})
    served.wait_for(run_id, "paused")
    return run_id


def test_an_answer_leads_on_and_failed_calls_do_not_look_done(
    served: Served, troubled: str, open_page: OpenPage
) -> None:
    page = open_page(served, f"/runs/{troubled}/activity")

    page.get_by_role("button", name="Allow this call").click()

    expect(page.locator("h1")).to_be_focused()
    expect(page.locator(".run-status")).to_contain_text("Completed")
    calls = page.locator("details.tool > summary")
    for text, outcome in (
        ("sudo ls", "denied"),
        ("ls /nowhere", "exit 2"),
        ("git push", "exit 128"),
        ("no/such", "failed"),
    ):
        expect(calls.filter(has_text=text)).to_contain_text(outcome)
        expect(calls.filter(has_text=text).locator(".mark")).to_have_class(re.compile("tone-bad"))
    expect(calls.filter(has_text="/").locator(".mark.tone-good").first).to_be_visible()
    expect(page.locator(".activity")).not_to_contain_text("in flight")
    page.goto(f"{served.url}/runs/{troubled}?open=draft")
    expect(page.locator(".tl-label").filter(has_text="sudo ls")).to_be_visible()
    expect(page.locator(".moment.unknown, .moment.crash")).to_have_count(0)


def test_an_answer_that_broke_off_stands_once(served: Served, open_page: OpenPage) -> None:
    run_id = served.start_run("plain", title="Breaks off", persona_overrides={"author": "z-failing"})
    served.wait_for(run_id, "completed")
    page = open_page(served, f"/runs/{run_id}/activity")

    expect(page.locator(".activity")).to_contain_text("Run completed")
    said = page.locator(".e-message .said").all_inner_texts()

    assert [text.count("First I look around.") for text in said if "First I look" in text] == [1, 1]  # of two phases
    expect(page.locator(".e-message .said").filter(has_text="1 attempt failed:")).not_to_have_count(0)


def test_the_row_that_is_marked_is_the_one_that_opens(served: Served, open_page: OpenPage) -> None:
    for number in range(3):
        served.wait_for(served.start_run("plain", title=f"Row {number}"), "completed")
    page = open_page(served, "/?text=Row")
    expect(page.locator(".runs .row-link")).to_have_count(3)

    page.keyboard.press("j")
    page.keyboard.press("j")
    marked = page.locator("tr.selected .row-link")
    expect(marked).to_be_focused()
    title = marked.inner_text()
    page.keyboard.press("Enter")

    expect(page.locator("h1")).to_have_text(title)


def test_a_session_that_ends_keeps_the_comment(served: Served, open_page: OpenPage) -> None:
    run_id = served.start_run("asking", title="Asks for long")
    served.wait_for(run_id, "paused")
    page = open_page(served, f"/runs/{run_id}", role="approver")
    page.get_by_label("Comment").fill("Change the second point.")
    # Else what the page asks for by itself may be refused, and lead to the login, before the press is.
    page.route("**/api/**", lambda route: route.abort() if route.request.method == "GET" else route.continue_())
    page.context.clear_cookies()

    page.get_by_role("button", name="Request changes").click()
    expect(page).to_have_url(re.compile("/sign-in"))
    page.unroute("**/api/**")
    page.get_by_label("Token").fill(served.token("approver"))
    page.keyboard.press("Enter")

    expect(page.get_by_label("Comment")).to_have_value("Change the second point.")
    page.get_by_role("button", name="Request changes").click()
    expect(page.locator(".approval header")).to_contain_text("attempt 2")
    expect(page.get_by_label("Comment")).to_have_value("")


def test_the_phase_of_an_aborted_run_waits_no_longer(served: Served, open_page: OpenPage) -> None:
    run_id = served.start_run("asking", title="Aborted while it waits")
    served.wait_for(run_id, "paused")
    with served.client() as client:
        assert client.post(f"/api/runs/{run_id}/abort", json={"reason": "not needed"}).is_success
    served.wait_for(run_id, "cancelled")
    page = open_page(served, f"/runs/{run_id}?row=draft")

    expect(page.locator(".tl-label").filter(has_text="draft")).to_contain_text("Stopped")
    expect(page.locator(".tl-detail")).to_contain_text("Attempt 1 aborted")
    expect(page.locator(".approval, .tl-detail .tone-waiting")).to_have_count(0)


def test_an_unknown_address_is_a_page(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, "/nowhere/at/all")

    expect(page.get_by_text("There is no such page.")).to_be_visible()
    page.get_by_role("link", name="All runs", exact=True).click()
    expect(page.locator("h1")).to_have_text("Runs")


def test_a_login_leads_to_no_other_site(served: Served, open_page: OpenPage) -> None:
    page = open_page(served)
    expect(page.get_by_label("You: admin")).to_be_visible()
    page.evaluate(
        "history.pushState(null, '', '/sign-in?next=/%09/evil.example'); dispatchEvent(new Event('popstate'))"
    )

    assert page.get_by_role("link", name="Go on").get_attribute("href") == "/"


def test_pages_not_seen_yet_open_without_a_server(
    tmp_path_factory: pytest.TempPathFactory, open_page: OpenPage
) -> None:
    server = Served(tmp_path_factory.mktemp("away")).start()
    page = open_page(server)
    expect(page.get_by_text("No runs yet")).to_be_visible()
    loaded = "performance.getEntriesByType('resource').some((each) => each.name.endsWith('/budget.js'))"
    wait_until(lambda: page.evaluate(loaded), "the other pages are loaded")

    server.kill()
    page.get_by_role("link", name="Budget", exact=True).click()

    expect(page.locator("h1")).to_have_text("Budget")
    expect(page.get_by_text("The server does not answer").first).to_be_visible()


def test_the_link_of_an_event_shows_its_row(served: Served, troubled: str, open_page: OpenPage) -> None:
    run = served.wait_for(troubled, "paused", "completed")
    page = open_page(served, f"/runs/{troubled}/events?seq={run['seq'] // 2}")

    expect(page.locator(".event-detail h2")).to_be_visible()
    row = page.locator("tr.selected")
    expect(row).to_be_in_viewport()
    page.set_viewport_size({"width": 1280, "height": 2000})  # the page fits, so that it does not scroll
    page.evaluate(COMES_LATE)
    expect(row).to_be_in_viewport()
    assert page.evaluate(
        """() => {
            const boxOf = (name) => document.querySelector(name).getBoundingClientRect();
            const [row, frame] = [boxOf("tr.selected"), boxOf(".events-frame")];
            return row.top >= frame.top && row.bottom <= frame.bottom;
        }"""
    )

    # With keys one goes on to read an event, and back to its row.
    page.locator("tr.selected + tr a").press("Enter")
    detail = page.get_by_role("region", name=f"Event {run['seq'] // 2 + 1}", exact=True)
    expect(detail).to_be_focused()
    page.keyboard.press("Escape")
    expect(row.locator("a")).to_be_focused()
    expect(row.locator("a")).to_have_text(f"{run['seq'] // 2 + 1}")


def test_wide_tables_can_be_reached_with_the_keyboard(served: Served, troubled: str, open_page: OpenPage) -> None:
    page = open_page(served, f"/runs/{troubled}/cost", width=390)
    expect(page.locator(".table.cost").first).to_be_visible()

    unreachable = page.evaluate(
        """[...document.querySelectorAll(".scroll-x")]
            .filter((each) => each.scrollWidth > each.clientWidth && each.tabIndex < 0).length"""
    )

    assert unreachable == 0


def test_a_server_that_stands_still_is_told_and_no_decision_stands_beside_another_name(
    served: Served, open_page: OpenPage
) -> None:
    first, second = (served.start_run("asking", title=title) for title in ("Comes up first", "Is pressed then"))
    for run_id in (first, second):
        served.wait_for(run_id, "paused")
    page = open_page(served, f"/inbox?item={find_approval(served, first)}")
    place = page.locator(".inbox-place")
    expect(place).to_contain_text("Comes up first")
    page.clock.install()

    with served.frozen():
        page.get_by_role("button").filter(has_text="Is pressed then").press("Enter")
        expect(place).not_to_contain_text("Comes up first")
        expect(place.get_by_role("button")).to_have_count(0)
        page.clock.fast_forward(9000)
        expect(page.locator("#bar")).to_contain_text("The server has not answered since")

    expect(place).to_contain_text("Is pressed then")
    expect(page.locator("#bar")).to_be_hidden()
    for run_id in (first, second):
        served.decide(run_id, "abort")


def find_approval(server: Served, run_id: str) -> str:
    with server.client() as client:
        items = client.get("/api/inbox").json()["items"]
    return str(next(item["approval_id"] for item in items if item["run_id"] == run_id))
