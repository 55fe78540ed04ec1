"""Settings: who you are, how it looks, and tokens that are shown once."""

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect
from tests.browser.conftest import OpenPage
from tests.support.browser_world import Served

Shoot = Callable[[Page, str], None]


def test_a_token_is_made_shown_once_works_and_is_revoked(served: Served, open_page: OpenPage, shoot: Shoot) -> None:
    page = open_page(served, "/settings")
    expect(page.get_by_text("This login ends in 1")).to_be_visible()
    page.get_by_role("button", name="New token…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("<i>nightly</i>")
    dialog.get_by_role("radio", name=re.compile("^operator")).check()
    dialog.get_by_label("Ends").select_option("in 90 days")
    shoot(page, "settings-new-token")

    dialog.get_by_role("button", name="Make token").click()

    textbox = page.get_by_role("textbox", name="The new token")
    expect(textbox).to_have_value(re.compile("^hf_"))
    shoot(page, "settings-token-shown")
    token = textbox.input_value()
    page.get_by_role("button", name="I have kept it").click()
    row = page.get_by_role("row").filter(has_text="<i>nightly</i>")
    expect(row).to_contain_text("operator")
    expect(row).to_contain_text("Works")
    assert token not in page.content()
    assert served_as(served, token) == 200
    shoot(page, "settings")
    row.get_by_role("button", name="Revoke <i>nightly</i>").click()
    page.get_by_role("button", name="Revoke token").click()
    expect(row).to_contain_text("Revoked by admin")
    assert served_as(served, token) == 401


def served_as(served: Served, token: str) -> int:
    with served.client() as client:
        return client.get("/api/session", headers={"Authorization": f"Bearer {token}"}).status_code


def test_a_name_that_is_refused_is_told_in_the_dialog(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, "/settings")
    page.get_by_role("button", name="New token…").click()
    page.get_by_role("dialog").get_by_label("Name").fill("   ")

    page.get_by_role("button", name="Make token").click()

    expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="New token…")).to_be_focused()


def test_whoever_is_no_admin_is_told_why_there_are_no_tokens(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, "/settings", role="approver")

    expect(page.get_by_text("Tokens are for admins")).to_be_visible()
    expect(page.get_by_role("button", name="New token…")).to_have_attribute("aria-disabled", "true")


def test_the_look_is_chosen_and_kept(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, "/settings")
    page.get_by_role("radio", name="Dark").check()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")

    page.reload()

    expect(page.get_by_role("radio", name="Dark")).to_be_checked()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    page.get_by_role("radio", name="As the system").check()
    page.reload()
    expect(page.get_by_role("radio", name="As the system")).to_be_checked()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark


def test_logging_out_ends_the_session(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, "/settings")

    page.locator("main").get_by_role("button", name="Log out").click()

    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    page.goto(f"{served.url}/workflows")
    page.wait_for_url(re.compile(r"/sign-in\?next=%2Fworkflows"))


def test_settings_fit_a_phone_in_the_dark(served: Served, open_page: OpenPage, shoot: Shoot) -> None:
    page = open_page(served, "/settings", width=320, theme="dark")
    expect(page.get_by_role("table")).to_be_visible()

    shoot(page, "settings-phone-dark")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
