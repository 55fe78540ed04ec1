"""The catalog, the forms and the money for everyone: axe finds nothing, in both themes."""

from playwright.sync_api import expect
from tests.browser.conftest import OpenPage
from tests.browser.test_everyone import check_access_in_both_themes, settle
from tests.support.browser_world import Served

PATHS = (
    "/workflows",
    "/workflows/feature-delivery",
    "/personas",
    "/budget",
    "/settings",
    "/health",
    "/workers",
    "/flows",
    "/sign-in",
)


def test_pages_are_accessible(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, "/workflows")
    for path in PATHS:
        page.goto(served.url + path)
        settle(page)
        check_access_in_both_themes(page)


def test_the_form_is_accessible_filled_in_and_with_mistakes(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, "/new?workflow=feature-delivery")
    settle(page)
    expect(page.locator("#role-author")).to_be_visible()
    expect(page.locator(".plan")).not_to_have_attribute("aria-busy", "true")
    check_access_in_both_themes(page)
    page.get_by_role("button", name="Start run").click()
    expect(page.get_by_text("Choose the repository to work on.")).to_be_visible()
    check_access_in_both_themes(page)
    page.goto(f"{served.url}/settings")
    page.get_by_role("button", name="New token…").click()
    check_access_in_both_themes(page)
