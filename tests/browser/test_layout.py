"""What a page looks like at the widths people have: names can be read, and what is chosen is in sight."""

import re

import pytest
from playwright.sync_api import expect
from tests.browser.conftest import OpenPage
from tests.support.browser_world import Served


@pytest.mark.parametrize("width", [1000, 1024, 1100])
def test_the_name_of_a_run_has_room(served: Served, open_page: OpenPage, width: int) -> None:
    title = "A name of some length"
    served.wait_for(served.start_run("plain", title=title), "completed")
    page = open_page(served, f"/?text={title}", width=width)
    name = page.locator(".row-link").first
    expect(name).to_be_visible()

    cell = page.locator(".c-title").first.bounding_box()

    assert cell is not None
    assert cell["width"] >= 200
    link = name.bounding_box()
    assert link is not None
    assert link["x"] + link["width"] <= cell["x"] + cell["width"]


def test_on_a_phone_the_chosen_tab_is_in_sight_and_words_stay_whole(served: Served, open_page: OpenPage) -> None:
    run_id = served.start_run("plain", title="On a phone")
    served.wait_for(run_id, "completed")
    page = open_page(served, f"/runs/{run_id}/events", width=390)

    expect(page.locator(".tabs [aria-current]")).to_have_text(re.compile("Events"))
    expect(page.locator(".tabs [aria-current]")).to_be_in_viewport(ratio=0.9)
    assert page.evaluate("getComputedStyle(document.body).overflowWrap") == "break-word"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_of_a_long_line_a_part_is_shown_and_of_many_lines_those_in_view(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, "/health")
    expect(page.locator("h1")).to_have_text("Health")

    page.evaluate(
        """async () => {
            const { changesView } = await import("/js/parts/diff-view.js");
            const file = { path: "a", kind: "changed", added: 1, removed: 0, pairs: [] };
            const line = (text, b) => ({ type: "add", b, text });
            const many = Array.from({ length: 5000 }, (_, index) => line(`line ${index}`, index));
            const files = [{ ...file, lines: [line("x".repeat(300_000), 1)] }, { ...file, path: "b", lines: many }];
            document.querySelector("main").replaceChildren(changesView({ files }));
        }"""
    )

    expect(page.locator("tr.add").first).to_contain_text("299 kB more in this line")
    assert page.evaluate("document.querySelector('tr.add').textContent.length") < 2000
    page.locator(".diff-head").nth(1).click()
    expect(page.get_by_text("line 0", exact=True)).to_be_attached()
    assert page.locator("tr.add").count() < 500
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    expect(page.get_by_text("line 4999", exact=True)).to_be_visible()
    expect(page.get_by_text("line 0", exact=True)).to_have_count(0)
    assert page.locator("tr.add").count() < 500


def test_a_name_without_spaces_and_the_names_of_tools_fit_a_phone(served: Served, open_page: OpenPage) -> None:
    run_id = served.start_run("plain", title="W" * 150, persona_overrides={"author": "z-scripted"})
    served.wait_for(run_id, "paused")
    page = open_page(served, f"/runs/{run_id}/activity", width=390)

    name = page.locator(".e-tool summary code").filter(has_text="read_file")
    expect(name).to_be_visible()

    assert name.evaluate("name => name.scrollWidth <= name.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    served.decide(run_id, "abort")


def test_at_the_width_of_a_small_laptop_the_top_is_one_line(served: Served, open_page: OpenPage) -> None:
    run_id = served.start_run("asking", title="Waits for somebody")
    served.wait_for(run_id, "paused")
    page = open_page(served, "/workflows", width=1024)
    expect(page.get_by_role("link", name=re.compile("waiting for you"))).to_be_visible()
    gate = page.locator(".phase-strip .gate").first  # a phase that a person decides on
    expect(gate).to_be_visible()

    heights = [locator.bounding_box() for locator in (page.locator(".top"), gate)]

    assert [box is not None and box["height"] < limit for box, limit in zip(heights, (60, 30), strict=True)] == [
        True
    ] * 2
    served.decide(run_id, "abort")
