"""Watching: the list, a run as it happens, and a server that dies meanwhile."""

import re
from pathlib import Path

from playwright.sync_api import expect
from tests.browser.conftest import OpenPage
from tests.support.browser_world import Served


def test_a_run_appears_in_the_list_and_completes_without_a_reload(served: Served, open_page: OpenPage) -> None:
    page = open_page(served)
    page.evaluate("window.notReloaded = true")

    served.start_run("plain", title="Appears by itself")

    row = page.get_by_role("row").filter(has_text="Appears by itself")
    expect(row).to_contain_text("Completed")
    expect(row).to_contain_text("2 phases done")
    assert page.evaluate("window.notReloaded")


def test_a_run_is_watched_live_from_its_first_step_to_its_end(served: Served, open_page: OpenPage) -> None:
    run_id = served.start_run("plain", title="Watched")
    page = open_page(served, f"/runs/{run_id}/activity")

    expect(page.locator(".run-status")).to_contain_text("Completed: 2 phases")
    expect(page.locator(".activity")).to_contain_text("Run completed")
    page.get_by_role("link", name=re.compile("^Timeline")).click()
    expect(page.locator(".tl-drawing svg .seg.working")).to_have_count(2)
    expect(page.locator(".run-actions")).to_contain_text("More")


def test_every_tab_shows_what_the_run_did(served: Served, open_page: OpenPage) -> None:
    run_id = served.start_run("plain", title="All tabs")
    served.wait_for(run_id, "completed")
    page = open_page(served, f"/runs/{run_id}/activity")

    call = page.locator("details.tool").filter(has_text="write_file").first
    call.locator("summary").click()
    expect(call).to_contain_text("Arguments")
    page.keyboard.press("3")
    expect(page.locator(".artifact")).to_contain_text("Valid")
    expect(page.locator(".document")).to_contain_text("Points")
    page.keyboard.press("4")
    expect(page.locator(".diff-file").first).to_contain_text("+")
    page.keyboard.press("5")
    expect(page.locator(".cost tr").filter(has_text="draft")).to_contain_text("$")
    page.keyboard.press("6")
    page.get_by_label("Filter events").fill("artifact.accepted")
    expect(page.get_by_role("status").filter(has_text="of")).to_contain_text("2 of")
    page.locator(".events .row-link").first.click()
    expect(page.locator(".event-detail")).to_contain_text("artifact.accepted")
    expect(page).to_have_url(re.compile("seq="))
    expect(page).to_have_url(re.compile(r"filter=artifact\.accepted"))


def test_a_killed_server_is_a_quiet_bar_and_the_page_goes_on_where_it_was(tmp_path: Path, open_page: OpenPage) -> None:
    server = Served(tmp_path).start(delay_s=3600)
    try:
        run_id = server.start_run("plain", title="Outlives its server")
        page = open_page(server, f"/runs/{run_id}")
        page.evaluate("window.notReloaded = true")
        expect(page.locator(".run-status")).to_contain_text("Working on")

        server.kill()

        expect(page.locator("#bar")).to_contain_text("Not live since")
        expect(page.locator("h1")).to_have_text("Outlives its server")
        server.start()
        expect(page.locator("#bar")).to_be_hidden()
        expect(page.locator(".run-status")).to_contain_text("Completed")
        expect(page.locator(".moment.crash")).to_have_count(1)
        numbers = page.evaluate(
            "fetch(location.href.replace('/runs/', '/api/runs/')).then(r => r.json()).then(run => run.seq)"
        )
        expect(page.get_by_role("link", name=f"Events {numbers}")).to_be_visible()
        assert page.evaluate("window.notReloaded")
    finally:
        server.stop()


def test_filters_live_in_the_address_and_an_empty_result_says_so(served: Served, open_page: OpenPage) -> None:
    served.wait_for(served.start_run("plain", title="Findable needle"), "completed")
    page = open_page(served)

    expect(page.locator(".runs").get_by_text("Findable needle")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("needle")
    expect(page.locator(".runs tbody tr:not(.spacer)")).to_have_count(1)
    expect(page).to_have_url(re.compile("text=needle"))
    page.goto(f"{served.url}/?text=nothing-like-this")
    expect(page.get_by_text("No run fits these filters")).to_be_visible()
    page.get_by_role("button", name="Clear the filters").click()
    expect(page.locator(".runs").get_by_text("Findable needle")).to_be_visible()


def test_a_failed_run_says_why_and_what_can_be_done(served: Served, open_page: OpenPage) -> None:
    run_id = served.start_run("plain", title="Spoilt", persona_overrides={"author": "z-spoiler"})
    served.wait_for(run_id, "failed")
    page = open_page(served, f"/runs/{run_id}/timeline")

    expect(page.locator(".run-status")).to_contain_text("Phase “draft” failed")
    expect(page.locator(".run-actions").get_by_role("button", name="Retry…")).to_be_visible()
    expect(page.locator(".tl-detail")).to_contain_text("Attempt 1 failed")
    page.keyboard.press("3")
    expect(page.locator(".artifact")).to_contain_text("Not valid")


def test_a_part_that_could_not_be_loaded_can_be_asked_for_again(served: Served, open_page: OpenPage) -> None:
    run_id = served.start_run("plain", title="Half loaded")
    served.wait_for(run_id, "completed")
    page = open_page(served)

    for path, file, part in ((f"/runs/{run_id}/cost", "**/cost.js", ".table.cost"), ("/budget", "**/budget.js", "h1")):
        page.route(file, lambda route: route.abort())
        page.goto(served.url + path)
        again = page.get_by_role("button", name="Try again")
        expect(again).to_be_visible()
        page.unroute(file)
        again.click()
        expect(page.locator(part).first).to_be_visible()
