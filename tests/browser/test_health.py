"""Health: what was checked, what to do, and what stays when the server is gone."""

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, Route, expect
from tests.browser.conftest import OpenPage
from tests.support.browser_world import Served

Shoot = Callable[[Page, str], None]


def test_checks_stand_with_their_remedies_and_the_server_with_its_facts(
    served: Served, open_page: OpenPage, shoot: Shoot
) -> None:
    page = open_page(served, "/health")

    expect(page.get_by_text("The server works.")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="openrouter")).to_contain_text("OPENROUTER_API_KEY is not set")
    expect(page.locator("main")).to_contain_text("SQLite")
    expect(page.locator("main")).to_contain_text(str(served.folder / "work"))
    shoot(page, "health")


def test_what_stands_in_the_way_comes_first(served: Served, open_page: OpenPage, shoot: Shoot) -> None:
    page = open_page(served, "/")

    def break_git(route: Route) -> None:
        report = route.fetch().json()
        broken = {"name": "git", "state": "bad", "found": "not found", "remedy": "Install git."}
        report["checks"] = [broken, *(check for check in report["checks"] if check["name"] != "git")]
        report["verdict"] = {"tone": "bad", "text": "This stands in the way: git."}
        route.fulfill(json=report)

    page.route("**/api/checks", break_git)
    page.goto(f"{served.url}/health")

    expect(page.get_by_text("This stands in the way: git.")).to_be_visible()
    expect(page.locator(".check").first).to_contain_text("Install git.")
    shoot(page, "health-bad")


def test_a_viewer_learns_only_whether_it_works(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, "/health", role="viewer")

    expect(page.get_by_text("The server works.")).to_be_visible()
    expect(page.get_by_text("This needs the role operator; you are viewer.")).to_be_visible()


def test_the_last_look_stays_when_the_server_is_gone(tmp_path: Path, open_page: OpenPage) -> None:
    server = Served(tmp_path).start()
    try:
        page = open_page(server, "/health")
        expect(page.get_by_text("The server works.")).to_be_visible()
        server.kill()

        page.get_by_role("button", name="Check again").click()

        expect(page.get_by_text("What you see is from")).to_be_visible()
        expect(page.get_by_text("The server works.")).to_be_visible()
        server.start()
        page.get_by_role("button", name="Try again").click()
        expect(page.get_by_text("What you see is from")).to_be_hidden()
    finally:
        server.stop()


def test_health_fits_a_phone_in_the_dark(served: Served, open_page: OpenPage, shoot: Shoot) -> None:
    page = open_page(served, "/health", width=320, theme="dark")
    expect(page.get_by_text("The server works.")).to_be_visible()

    shoot(page, "health-phone-dark")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
