"""Getting in: by the link that works once, by a token, and what is said when neither does."""

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError
from tests.browser.conftest import OpenPage
from tests.support.browser_world import Served

Shoot = Callable[[Page, str], None]


def test_the_link_of_serve_logs_in_once_and_then_says_what_to_do(
    tmp_path: Path, open_page: OpenPage, shoot: Shoot
) -> None:
    server = Served(tmp_path).start()
    try:
        page = open_page(server, "/sign-in", role="")
        page.goto(server.login_link)
        expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
        other = open_page(server, "/sign-in", role="")

        other.goto(server.login_link)

        expect(other.get_by_role("alert")).to_contain_text("This login link does not work any more.")
        expect(other.get_by_role("heading", name="Log in")).to_be_visible()
        shoot(other, "login-used-link")
    finally:
        server.stop()


def test_a_stranger_is_led_to_the_login_and_from_there_to_where_they_wanted(
    served: Served, open_page: OpenPage, shoot: Shoot
) -> None:
    page = open_page(served, "/personas?show=missing", role="")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    expect(page.get_by_label("Token")).to_be_focused()
    shoot(page, "login")

    page.keyboard.press("Enter")
    expect(page.get_by_text("Paste your token.")).to_be_visible()
    page.keyboard.type("hf_wrong_token")
    page.keyboard.press("Enter")
    expect(page.get_by_text("This token is wrong, was revoked, or is over.")).to_be_visible()
    page.get_by_label("Token").fill(served.token("viewer"))
    page.keyboard.press("Enter")

    page.wait_for_url(re.compile(r"/personas\?show=missing$"))
    expect(page.get_by_text("Something missing")).to_be_visible()


def test_a_login_leads_to_no_foreign_page(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, "/sign-in?next=//example.org/", role="")
    page.get_by_label("Token").fill(served.token("viewer"))
    page.keyboard.press("Enter")

    page.wait_for_url(f"{served.url}/")


def test_a_revoked_login_leads_back_to_the_login_without_losing_the_form(served: Served, open_page: OpenPage) -> None:
    with served.client() as client:
        made = client.post("/api/tokens", json={"name": "short", "role": "operator"}).json()
    page = open_page(served, "/sign-in", role="")
    page.get_by_label("Token").fill(made["token"])
    page.keyboard.press("Enter")
    page.wait_for_url(f"{served.url}/")
    page.goto(f"{served.url}/new")
    page.get_by_label("What should be done").fill("Not to be lost")
    with served.client() as client:
        client.delete(f"/api/tokens/{made['id']}")

    with contextlib.suppress(PlaywrightTimeoutError):  # the page may have found out by itself already
        page.get_by_role("radio", name=re.compile("^spec-and-review")).check(timeout=5000)

    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    page.get_by_label("Token").fill(served.token("operator"))
    page.keyboard.press("Enter")
    expect(page.get_by_label("What should be done")).to_have_value("Not to be lost")


def test_whoever_is_logged_in_already_is_told_and_goes_on(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, "/sign-in?next=/budget", width=390)
    expect(page.locator(".login")).to_contain_text("You are logged in as admin.")
    expect(page.locator(".nav")).to_be_hidden()
    page.get_by_role("link", name="Go on").press("Enter")
    expect(page.locator("h1")).to_have_text("Budget")
    expect(page.locator(".nav [aria-current]")).to_be_in_viewport(ratio=0.9)
