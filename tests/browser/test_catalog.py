"""Workflows and personas: what can be used, what it took so far, and what is missing."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect
from tests.browser.conftest import OpenPage, Theme
from tests.support.browser_world import Served

Shoot = Callable[[Page, str], None]
THEMES: tuple[Theme, ...] = ("light", "dark")


def fits(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def test_workflows_are_searched_in_the_address_and_an_empty_search_says_so(
    served: Served, open_page: OpenPage, shoot: Shoot
) -> None:
    page = open_page(served, "/workflows")
    expect(page.get_by_role("heading", level=2)).to_have_count(5)
    shoot(page, "workflows")

    page.keyboard.press("/")
    page.keyboard.type("zebra")

    expect(page.get_by_text("No workflow fits")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/workflows\?q=zebra$"))
    page.get_by_role("link", name="Show all workflows").click()
    expect(page.get_by_role("heading", level=2)).to_have_count(5)
    page.go_back()
    expect(page.get_by_role("searchbox")).to_have_value("zebra")


def test_a_workflow_shows_its_graph_its_phases_and_its_last_runs(
    served: Served, open_page: OpenPage, shoot: Shoot
) -> None:
    run_id = served.start_run("spec-and-review", title="A known run", requirements_md="Say hello.")
    served.wait_for(run_id, "completed")
    page = open_page(served, "/workflows")

    row = page.get_by_role("listitem").filter(has=page.get_by_role("link", name="spec-and-review", exact=True))
    expect(row).to_contain_text("only rehearsed")
    page.get_by_role("link", name="feature-delivery", exact=True).click()
    expect(page.locator("a.graph-node")).to_have_count(4)
    expect(page.locator("a.graph-node").nth(1)).to_have_attribute("aria-label", re.compile("A person approves"))
    page.locator("a.graph-node").nth(1).click()
    expect(page.locator("#phase-plan")).to_be_in_viewport()
    expect(page.locator("#phase-plan")).to_contain_text("A person approves the result: this workflow always asks here.")
    page.go_back()
    expect(page.locator("a.graph-node")).to_have_count(4)
    shoot(page, "workflow")
    page.goto(f"{served.url}/workflows/spec-and-review")
    page.get_by_role("link", name="A known run").click()
    page.wait_for_url(re.compile(f"/runs/{run_id}"))


def test_a_workflow_that_is_not_there_says_so_and_one_of_a_repository_shows_its_runs(
    served: Served, open_page: OpenPage
) -> None:
    served.wait_for(served.start_run("plain", title="Of the repository"), "completed")
    page = open_page(served, "/workflows/none-such")
    expect(page.get_by_text("There is no workflow none-such.")).to_be_visible()

    page.goto(f"{served.url}/workflows/plain")

    expect(page.get_by_text("only its runs are known here")).to_be_visible()
    expect(page.get_by_role("link", name="Of the repository")).to_be_visible()


def test_personas_say_whether_they_can_work_and_what_is_missing(
    served: Served, open_page: OpenPage, shoot: Shoot
) -> None:
    page = open_page(served, "/personas")
    missing = page.get_by_role("listitem").filter(has=page.get_by_role("heading", name="openai-sol-implementer"))

    expect(missing).to_contain_text("Not ready")
    expect(missing).to_contain_text("OPENAI_API_KEY is not set. Where the server runs: set OPENAI_API_KEY.")
    expect(missing).to_contain_text("per million tokens")
    shoot(page, "personas")
    page.get_by_role("button", name=re.compile("^For rehearsals")).click()
    expect(page.get_by_role("heading", level=2)).to_have_count(4)
    expect(page).to_have_url(re.compile(r"\?show=rehearsal$"))
    page.get_by_role("searchbox").fill("nobody")
    expect(page.get_by_text("No persona fits")).to_be_visible()


def test_a_persona_has_an_address_of_its_own(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, "/personas/anthropic-opus-implementer")

    chosen = page.locator("#persona-anthropic-opus-implementer")
    expect(chosen.get_by_text("read_file")).to_be_visible()
    expect(chosen).to_be_in_viewport()


@pytest.mark.parametrize("path", ["/workflows", "/workflows/feature-delivery", "/personas"])
def test_the_catalog_fits_a_phone_in_both_themes(served: Served, open_page: OpenPage, shoot: Shoot, path: str) -> None:
    page = open_page(served, path, width=320)
    expect(page.locator("main .card").first).to_be_visible()

    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        assert fits(page)
        shoot(page, f"phone-{theme}{path.replace('/', '-')}")
