"""A browser and a server for all tests here; without a browser they are skipped."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright
from tests.support.browser_world import FLAGS, SCREENSHOTS, Served
from tests.support.programs import CHROMIUM, find_browser_fault

PATIENCE_MS = 100_000  # less than a test may stand still: Playwright knows best what it has waited for
expect.set_options(timeout=PATIENCE_MS)
# What a browser says by itself about requests that were refused or lost; the tests do both on purpose.
EXPECTED = re.compile(r"Failed to load resource|Failed to fetch dynamically|net::ERR_|\[DOM\]")


@pytest.fixture(scope="session", autouse=True)
def _tools() -> None:
    if fault := find_browser_fault():
        pytest.skip(fault)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Closed after each module: as long as it is open its event loop runs, and no asynchronous test can."""
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("served")).start()
    yield server
    server.stop()


OpenPage = Callable[..., Page]
Theme = Literal["light", "dark"]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Opens pages as somebody with a role; afterwards nothing may have gone wrong inside any of them."""
    contexts = []
    complaints: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not EXPECTED.search(message.text):
            complaints.append(message.text)

    def open_one(
        server: Served, path: str = "/", *, role: str = "admin", theme: Theme = "light", width: int = 1280
    ) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=theme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", hear)
        page.on("pageerror", lambda error: complaints.append(f"{error}"))
        if role:
            answer = context.request.post(f"{server.url}/api/session", data={"token": server.token(role)})
            assert answer.ok, answer.text()
        page.goto(server.url + path)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def shoot() -> Callable[[Page, str], None]:
    def take(page: Page, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png")

    return take
