"""Makes pictures of the web pages, from a real server and browser: the README's, or with `--all` every page and state.

Run: .venv/bin/python scripts/make-page-pictures.py [--all [part of a name …]]

`--all` writes to var/pages: each page at three widths, light and dark, to be looked at.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from playwright.sync_api import Browser, expect, sync_playwright  # noqa: E402
from tests.support.browser_world import FLAGS, Served  # noqa: E402
from tests.support.lost_command import CHARGE, lose_the_charge  # noqa: E402
from tests.support.model_server import ModelServer, asks, own_persona  # noqa: E402
from tests.support.programs import CHROMIUM  # noqa: E402

IMAGES = ROOT / "docs" / "images"
ALL = ROOT / "var" / "pages"
REQUIREMENTS = (
    "# Let customers pay in instalments\n\n- three, six or twelve months\n- the total stays as it is\n- add tests"
)
TABS = ("outcome", "timeline", "activity", "artifacts", "changes", "cost", "events")
Theme = Literal["light", "dark"]


def main() -> None:
    is_all, parts = "--all" in sys.argv, sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder:
        served = Served(Path(folder)).start()
        try:
            lost = lose_call(served) if is_all else {}
            runs = fill(served, is_all=is_all) | lost
            if is_all:
                runs["running"] = start_endless(served)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
                if is_all:
                    take_all(browser, served, runs, parts)
                else:
                    take(browser, served, "/", IMAGES / "page-runs.png", theme="dark")
                    take(browser, served, f"/runs/{runs['plan']}", IMAGES / "page-run.png")
                browser.close()
        finally:
            served.stop()


def fill(served: Served, *, is_all: bool) -> dict[str, str]:
    """Start runs of every kind; each is in the state it was started for."""
    titles = ("Say what the shop sells", "Show prices in the customer's currency", "Explain every refusal")
    done = [served.start_run("spec-and-review", title=title, requirements_md=REQUIREMENTS) for title in titles]
    runs = {
        "failed": served.start_run("plain", title="Translate the errors", persona_overrides={"author": "z-spoiler"}),
        "poor": served.start_run("plain", title="Round prices the same way everywhere", budget_usd=0.05),
        "plan": served.start_run(
            "feature-delivery", title="Let customers pay in instalments", requirements_md=REQUIREMENTS
        ),
    }
    if is_all:
        runs |= {
            "reviewed": served.start_run(
                "reviewed", title="Keep notes of every sale", persona_overrides={"author": "z-reviewed"}
            ),
            "push": served.start_run("plain", title="Publish it", persona_overrides={"author": "z-pushing"}),
            "tools": served.start_run("plain", title="Try some things", persona_overrides={"author": "z-scripted"}),
            "nested": served.start_run("plain", title="Ask others", persona_overrides={"author": "z-delegate"}),
            "streamed": served.start_run("plain", title="Think aloud", persona_overrides={"author": "z-streamer"}),
        }
        body = {"repo_path": str(served.repo), "text": "Where is the sum made, and what of an empty list?"}
        with served.client() as client:
            runs["talk"] = client.post("/api/conversations", json={**body, "simulate": True}).json()["run_id"]
    for run_id in (*runs.values(), *done):
        served.wait_for(run_id, "failed", "paused", "completed")
    for run_id in done:
        if served.wait_for(run_id, "paused", "completed")["state"] == "paused":
            served.decide(run_id, "approve")
            served.wait_for(run_id, "completed")
    return {**runs, "done": done[0]}


def lose_call(served: Served) -> dict[str, str]:
    """Kill the server in the middle of a call, and start it anew: nobody knows what became of the call."""
    personas = served.folder / "config" / "holdfast" / "personas"
    personas.mkdir(parents=True, exist_ok=True)
    with ModelServer({"": [asks(("execute", {"command": CHARGE}))]}) as model:
        (personas / "mine.yaml").write_text(own_persona(model.address, "spec_write, shell"))
        options = {"simulate": False, "persona_overrides": {"author": "mine"}}
        run_id = served.start_run("plain", title="Charge the card", **options)
        killed = ExitStack()
        killed.callback(served.kill)
        lose_the_charge(killed, served.folder / "data")
    (personas / "mine.yaml").unlink()
    served.start()
    served.wait_for(run_id, "paused")
    return {"unknown": run_id}


def start_endless(served: Served) -> str:
    """Start a run whose model does not answer."""
    served.stop()
    served.start(delay_s=3600)
    run_id = served.start_run("plain", title="Count what was sold")
    served.wait_for(run_id, "running")
    return run_id


def list_pages(runs: dict[str, str]) -> Iterator[tuple[str, str]]:
    yield "runs", "/"
    yield "runs-filtered", "/?state=failed&text=no+such"
    yield "inbox", "/inbox"
    yield "new", "/new"
    for name in (
        "talk",
        "workflows",
        "workflows/feature-delivery",
        "personas",
        "budget",
        "settings",
        "health",
        "flows",
        "schedules",
        "workers",
    ):
        yield name.replace("/", "-"), f"/{name}"
    yield "compare", f"/compare?runs={runs['done']},{runs['reviewed']}"
    for name in runs:
        yield f"run-{name}", f"/runs/{runs[name]}"
    for name, tab in product(("done", "reviewed", "tools", "nested", "streamed"), TABS):
        yield f"run-{name}-{tab}", f"/runs/{runs[name]}/{tab}"
    yield "nowhere", "/nowhere"
    yield "sign-in", "/sign-in"


def take_all(browser: Browser, served: Served, runs: dict[str, str], parts: list[str]) -> None:
    ALL.mkdir(parents=True, exist_ok=True)
    themes: tuple[Theme, ...] = ("light", "dark")
    for (name, path), width, theme in product(list_pages(runs), (390, 1024, 1440), themes):
        if not parts or any(part in f"{name}-{width}-{theme}" for part in parts):
            take(browser, served, path, ALL / f"{name}-{width}-{theme}.png", theme=theme, width=width)


def take(
    browser: Browser, served: Served, path: str, target: Path, *, theme: Theme = "light", width: int = 1200
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 760}, color_scheme=theme)
    context.request.post(f"{served.url}/api/session", data={"token": served.token("admin")})
    page = context.new_page()
    page.goto(served.url + path)
    page.locator("h1").wait_for()
    expect(page.locator(".loading")).to_have_count(0)
    page.wait_for_timeout(700)  # what moves has come to rest
    page.screenshot(path=target, full_page=target.parent == ALL)
    context.close()


if __name__ == "__main__":
    main()
