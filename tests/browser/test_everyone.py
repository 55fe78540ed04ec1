"""For everyone: keyboard alone, both themes, a phone's width, screen readers, and content that means harm."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect
from tests.browser.conftest import OpenPage
from tests.support.browser_world import Served

OF_COLOURS = ["color-contrast", "link-in-text-block"]
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
HOSTILE = "<img src=x onerror=window.hurt=1><script>window.hurt=1</script> \x1b[31mred\x1b[0m \u202egnihton\u2066 \x07"
TABS = ("", "/timeline", "/activity", "/artifacts", "/changes", "/cost", "/events")
Shoot = Callable[[Page, str], None]


@pytest.fixture(scope="module")
def runs(served: Served) -> Iterator[dict[str, str]]:
    """One run of each kind, so that every state can be seen."""
    requirements = (
        "# Let customers pay in instalments\n\nSo that they need not ask.\n\n- keep the interface\n- add tests"
    )
    runs = {
        "waiting": served.start_run("asking", title="Let customers pay in instalments", requirements_md=requirements),
        "done": served.start_run("spec-and-review", title="Say what the shop sells", requirements_md=requirements),
        "failed": served.start_run("plain", title="Translate the errors", persona_overrides={"author": "z-spoiler"}),
        "poor": served.start_run("plain", title="Round prices the same way everywhere", budget_usd=0.05),
    }
    for name, state in (("waiting", "paused"), ("failed", "failed"), ("poor", "paused")):
        served.wait_for(runs[name], state)
    if served.wait_for(runs["done"], "paused", "completed")["state"] == "paused":
        served.decide(runs["done"], "approve")
        served.wait_for(runs["done"], "completed", "paused")
    yield runs
    served.decide(runs["waiting"], "abort")


def settle(page: Page) -> None:
    expect(page.locator("h1")).to_be_visible()
    if "/runs/" in page.url:
        expect(page.locator(".panel > *").first).to_be_visible()
        expect(page.get_by_role("link", name=re.compile(r"^Events \d"))).to_be_visible()
    expect(page.locator(".loading")).to_have_count(0)


def check_access(page: Page) -> None:
    page.emulate_media(reduced_motion="reduce")  # what fades in has no contrast yet
    # Only what is broken is told in full: to describe what is not takes as long as to find it.
    options = {"runOnly": {"type": "tag", "values": WCAG}, "resultTypes": ["violations"]}
    assert _tell(Axe().run(page, options=options).response) == []


def check_access_in_both_themes(page: Page, shoot: Shoot | None = None, name: str = "") -> None:
    """All rules on a light page, then those about colours in the dark: nothing else of the page is another."""
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    if shoot is not None:
        shoot(page, f"{name}-light")
    check_access(page)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(background) != light
    if shoot is not None:
        shoot(page, f"{name}-dark")
    options = {"runOnly": {"type": "rule", "values": OF_COLOURS}, "resultTypes": ["violations"]}
    assert _tell(page.evaluate("options => axe.run(document, options)", options)) == []
    page.emulate_media(color_scheme="light")


def _tell(response: dict[str, Any]) -> list[str]:
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:200]} {each['nodes'][0]['failureSummary'][:300]}"
        for each in response["violations"]
    ]


def test_pages_are_accessible_in_both_themes(
    served: Served, open_page: OpenPage, shoot: Shoot, runs: dict[str, str]
) -> None:
    page = open_page(served, "/")
    expect(page.locator(".runs tbody tr").filter(has_text="Translate the errors")).to_contain_text("Failed")
    settle(page)
    check_access_in_both_themes(page, shoot, "runs")
    for name, run_id in runs.items():
        page.goto(f"{served.url}/runs/{run_id}/timeline")
        settle(page)
        expect(page.locator(".tl-drawing svg .seg").first).to_be_attached()
        check_access_in_both_themes(page, shoot, f"run-{name}")
    for tab in TABS[2:]:
        page.goto(f"{served.url}/runs/{runs['done']}{tab}")
        settle(page)
        check_access_in_both_themes(page, shoot, f"run{tab.replace('/', '-')}")


def test_nothing_is_wider_than_a_phone(served: Served, open_page: OpenPage, shoot: Shoot, runs: dict[str, str]) -> None:
    page = open_page(served, "/", width=320)
    for path in ("/", *(f"/runs/{runs[name]}{tab}" for name in ("waiting", "done") for tab in TABS)):
        page.goto(served.url + path)
        settle(page)
        page.wait_for_timeout(150)
        name = path.replace(runs["waiting"], "waiting").replace(runs["done"], "done")
        shoot(page, f"phone{name.replace('/', '-')}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, path


def test_at_twice_the_size_nothing_is_cut_off(
    served: Served, open_page: OpenPage, shoot: Shoot, runs: dict[str, str]
) -> None:
    page = open_page(served, "/", width=640)  # a window of 1280 by 800 at 200 %
    page.set_viewport_size({"width": 640, "height": 400})
    others = (
        "/new",
        "/workflows",
        "/workflows/feature-delivery",
        "/personas",
        "/budget",
        "/settings",
        "/health",
        "/workers",
        "/flows",
        "/schedules",
    )
    for path in ("/", f"/runs/{runs['waiting']}", f"/runs/{runs['done']}/changes", *others):
        page.goto(served.url + path)
        settle(page)
        shoot(page, f"zoom{path.replace(runs['waiting'], 'waiting').replace(runs['done'], 'done').replace('/', '-')}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 640, path
    page.goto(f"{served.url}/runs/{runs['waiting']}")
    page.get_by_role("button", name="Approve and continue").scroll_into_view_if_needed()
    expect(page.get_by_role("button", name="Approve and continue")).to_be_in_viewport()


def test_the_list_stays_a_table_on_a_phone(served: Served, open_page: OpenPage, runs: dict[str, str]) -> None:
    page = open_page(served, "/", width=320)

    row = page.get_by_role("table").get_by_role("row").filter(has_text="Translate the errors")

    expect(row.get_by_role("cell").filter(has_text="Failed")).to_be_visible()
    expect(row.get_by_role("cell")).to_have_count(5)  # when it started and its workflow have no room


def test_the_theme_can_be_switched_and_is_kept(served: Served, open_page: OpenPage) -> None:
    page = open_page(served)
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")

    page.get_by_role("button", name="Switch between light and dark").click()
    after = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.reload()

    assert before != after
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == after


def test_everything_can_be_done_by_keyboard(served: Served, open_page: OpenPage) -> None:
    run_id = served.start_run("asking", title="By keyboard")
    served.wait_for(run_id, "paused")
    page = open_page(served)
    expect(page.locator(".runs").get_by_text("By keyboard")).to_be_visible()

    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Next run")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("By keyboard")
    page.keyboard.press("a")
    for _ in range(12):
        if page.evaluate("document.activeElement.textContent").startswith("Approve and continue"):
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".run-status")).to_contain_text("Completed")
    page.keyboard.press("g")
    page.keyboard.press("r")
    expect(page.locator("h1")).to_have_text("Runs")


def test_hostile_content_is_shown_as_text_and_breaks_nothing(served: Served, open_page: OpenPage, shoot: Shoot) -> None:
    requirements = f"{HOSTILE}\n\n[click](javascript:alert(1)) `{HOSTILE}`\n\n" + "megabytes " * 50_000
    run_id = served.start_run("asking", title=HOSTILE, requirements_md=requirements)
    served.wait_for(run_id, "paused")
    served.decide(run_id, "request_changes", HOSTILE)
    served.wait_for(run_id, "running", "pending")
    served.wait_for(run_id, "paused")
    page = open_page(served)
    expect(page.locator(".runs").get_by_text("<script>").first).to_be_visible()

    for path in (f"/runs/{run_id}{tab}" for tab in TABS):
        page.goto(served.url + path)
        settle(page)
        expect(page.locator("h1")).to_contain_text("<img src=x onerror=window.hurt=1>")
        expect(page.locator("h1")).to_contain_text("red ⟨U+202E⟩gnihton")
        assert page.locator("main img, main script, main iframe").count() == 0
        assert page.evaluate("window.hurt") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    page.goto(f"{served.url}/runs/{run_id}")
    page.locator(".wanted summary").click()
    shoot(page, "hostile")
    assert page.locator("a[href^=javascript]").count() == 0
    served.decide(run_id, "abort")
