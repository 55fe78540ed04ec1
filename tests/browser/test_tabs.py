"""Many tabs on runs whose models write: one stream for all of them, few requests, and all of them usable."""

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from tests.browser.conftest import OpenPage
from tests.support.browser_world import Served
from tests.support.progress_limit import wait_until

TABS = 10
PER_MINUTE = 30


@pytest.fixture(scope="module")
def streaming(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose models write one answer for as long as the tests take."""
    server = Served(tmp_path_factory.mktemp("streaming")).start(delay_s=480)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def run_ids(streaming: Served) -> list[str]:
    author = {"author": "z-streamer"}
    return [streaming.start_run("plain", title=f"Writes {n}", persona_overrides=author) for n in range(3)]


def count_streams(server: Served) -> int:
    with server.client() as client:
        metrics = client.get("/metrics").text
    return sum(int(float(n)) for n in re.findall(r"^holdfast_sse_clients\S* (\S+)$", metrics, re.MULTILINE))


def count_written(page: Page) -> int:
    return int(
        page.evaluate("[...document.querySelectorAll('.e-message .said')].map(e => e.textContent).join('').length")
    )


def test_ten_tabs_share_a_stream_and_stay_usable(streaming: Served, run_ids: list[str], open_page: OpenPage) -> None:
    first = open_page(streaming, f"/runs/{run_ids[0]}/activity")
    expect(first.locator(".caret")).to_be_visible()
    tabs = [first, *(first.context.new_page() for _ in range(TABS - 1))]
    for number, tab in enumerate(tabs[1:], 1):
        tab.goto(f"{streaming.url}/runs/{run_ids[number % 3]}/activity")

    for tab in tabs:
        expect(tab.locator(".caret")).to_be_visible()
    before = [count_written(tab) for tab in tabs]
    wait_until(
        lambda: all(count_written(tab) > least for tab, least in zip(tabs, before, strict=True)),
        lambda: "some tab hears nothing",
    )
    tabs[-1].keyboard.press("6")
    expect(tabs[-1].locator(".events .row-link").first).to_be_visible()
    assert count_streams(streaming) == 1
    for tab in tabs[1:]:
        tab.close()


def test_a_page_asks_for_little_while_a_model_writes(
    streaming: Served, run_ids: list[str], open_page: OpenPage
) -> None:
    page = open_page(streaming, f"/runs/{run_ids[0]}/activity")
    expect(page.locator(".caret")).to_be_visible()
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    began, before = time.monotonic(), count_written(page)

    wait_until(lambda: count_written(page) > before + 100, lambda: "the page hears nothing")

    minutes = (time.monotonic() - began) / 60
    assert len(urls) <= 3 + PER_MINUTE * minutes, urls


def test_a_tab_that_is_left_gives_the_stream_up(streaming: Served, run_ids: list[str], open_page: OpenPage) -> None:
    page = open_page(streaming, f"/runs/{run_ids[0]}")
    expect(page.locator(".run-status")).to_contain_text("Working on")
    wait_until(lambda: count_streams(streaming) == 1, lambda: "it never listened")

    page.evaluate(
        """() => {
            Object.defineProperty(document, "hidden", { value: true, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }"""
    )
    wait_until(lambda: count_streams(streaming) == 0, lambda: "it goes on listening")

    page.evaluate(
        """() => {
            Object.defineProperty(document, "hidden", { value: false, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }"""
    )
    wait_until(lambda: count_streams(streaming) == 1, lambda: "it does not listen again")
    expect(page.locator("#bar")).to_be_hidden()
