"""Makes the README's pictures of the web pages, from a real server and browser.

Run: .venv/bin/python scripts/make-page-pictures.py
"""

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from playwright.sync_api import Browser, Page, sync_playwright  # noqa: E402
from tests.support.browser_world import CHROMIUM, FLAGS, Served  # noqa: E402

IMAGES = ROOT / "docs" / "images"
REQUIREMENTS = (
    "# Let customers pay in instalments\n\n- three, six or twelve months\n- the total stays as it is\n- add tests"
)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        served = Served(Path(folder)).start()
        try:
            waiting = fill(served)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
                take(browser, served, "/", "page-runs.png", "dark")
                take(browser, served, f"/runs/{waiting}", "page-run.png", "light")
                browser.close()
        finally:
            served.stop()


def fill(served: Served) -> str:
    """Some runs of every kind; returns the one that waits for an approval."""
    for title in ("Say what the shop sells", "Show prices in the customer's currency", "Explain every refusal"):
        done = served.start_run("spec-and-review", title=title, requirements_md=REQUIREMENTS)
        if served.wait_for(done, "paused", "completed", timeout_s=120)["state"] == "paused":
            served.decide(done, "approve")
            served.wait_for(done, "completed", timeout_s=120)
    failed = served.start_run("plain", title="Translate the errors", persona_overrides={"author": "z-spoiler"})
    poor = served.start_run("plain", title="Round prices the same way everywhere", budget_usd=0.05)
    waiting = served.start_run(
        "feature-delivery", title="Let customers pay in instalments", requirements_md=REQUIREMENTS
    )
    for run_id in (failed, poor, waiting):
        served.wait_for(run_id, "failed", "paused", timeout_s=120)
    return waiting


def take(browser: Browser, served: Served, path: str, name: str, theme: str) -> None:
    context = browser.new_context(viewport={"width": 1200, "height": 760}, color_scheme=theme)  # type: ignore[arg-type]
    context.request.post(f"{served.url}/api/session", data={"token": served.token("admin")})
    page: Page = context.new_page()
    page.goto(served.url + path)
    page.wait_for_selector(".panel > *, .runs tbody tr:not([hidden])")
    page.wait_for_timeout(1500)
    page.screenshot(path=IMAGES / name)
    context.close()


if __name__ == "__main__":
    main()
