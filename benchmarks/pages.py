"""How fast the web pages are in a real Chromium: the first view of a long run, a step of zooming, an event on its way
to many tabs, and what a page asks for meanwhile.

`python benchmarks/pages.py --events 5000 --tabs 20`: server and journal in one process, the browser in others. The time
of an event begins before its commit and ends when its text is in the page, so commit, stream and drawing are part of
it. On a busy machine look at `zoom_script_ms` and `event_script_ms`, the scripts' own time, which waits for nobody.
"""

import argparse
import asyncio
import json
import multiprocessing
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

PHASE = "spec"  # of the workflow spec-and-review
LANE = f"{PHASE}/1/turn1"
TARGETS = {
    "first_view_ms": 1000,
    "zoom_script_ms": 100,
    "event_to_page_p95_ms": 150,
    "requests_per_minute": 30,
    "first_view_bytes": 60_000,
}
# Notes when a selector first fits, and how old each "sent@<ms>;" is when it is in the page.
WATCH = """
window.ages = []; window.firstAt = {};
const seen = new Set();
const look = () => {
    if (!firstAt.segment && document.querySelector(".tl-drawing svg .seg")) firstAt.segment = performance.now();
    for (const [, sent] of (document.querySelector(".said")?.textContent ?? "").matchAll(/sent@([0-9.]+);/g)) {
        if (!seen.has(sent)) { seen.add(sent); ages.push(performance.timeOrigin + performance.now() - Number(sent)); }
    }
};
new MutationObserver(look).observe(document, { childList: true, subtree: true, characterData: true });
"""


def serve(pipe: Any, folder: str, events: int) -> None:
    asyncio.run(_serve(pipe, Path(folder), events))


async def _serve(pipe: Any, folder: Path, events: int) -> None:
    import uvicorn

    from holdfast.api.app import create_app
    from holdfast.api.options import ServerOptions
    from holdfast.api.serve import to_uvicorn
    from holdfast.catalog import Catalog
    from holdfast.config import load_config
    from holdfast.runtime.events import create_event

    config = load_config(data_dir=folder / "data", workspace_root=folder)
    app = create_app(config, options=ServerOptions(has_auth=False, drives_runs=False))
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(to_uvicorn(app))
    task = asyncio.create_task(server.serve(sockets=[listening]))
    while not server.started:
        await asyncio.sleep(0.01)
    inside = await app.state.holder.get()
    engine = await inside.engines.for_repository(folder, is_simulated=True)
    template = Catalog.for_repository(None, config.config_dir).get_workflow("spec-and-review").definition
    run_ids = [await engine.create(template, repo_path=folder) for _ in range(3)]
    await inside.journal.append(run_ids[0], _long_events(run_ids[0], events))
    key = f"{LANE}/m0"
    begun = create_event(run_ids[1], "model.request", LANE, key=key, model="m")
    first = create_event(run_ids[1], "text.delta", LANE, key=key, text="It begins. ")
    await inside.journal.append(run_ids[1], [begun, first])
    pipe.send((listening.getsockname()[1], run_ids))
    while (order := await asyncio.to_thread(pipe.recv)) is not None:
        count, rate = order
        for _ in range(count):
            text = f"sent@{time.time() * 1000:.3f}; "
            event = create_event(run_ids[1], "text.delta", LANE, key=key, text=text)
            await inside.journal.append(run_ids[1], [event])
            await asyncio.sleep(1 / rate)
        pipe.send("sent")
    server.should_exit = True
    await task


def _long_events(run_id: str, count: int) -> list[Any]:
    from holdfast.runtime.events import create_event

    events = [create_event(run_id, "phase.started", f"{PHASE}/1")]
    for number in range(count // 4):
        model, key = f"{LANE}/m{number}", f"{LANE}/m{number}.t0"
        message = {"content": f"output of number {number}", "tool_call_id": "c", "name": "execute"}
        events += [
            create_event(run_id, "model.request", LANE, key=model, model="m"),
            create_event(run_id, "model.response", LANE, key=model, result={"value": {}}),
            create_event(run_id, "tool.started", LANE, key=key, tool="execute", args={"command": "make"}),
            create_event(
                run_id,
                "tool.result",
                LANE,
                key=key,
                tool="execute",
                result={"value": {"$msg": ["ToolMessage", message]}},
            ),
        ]
    return events


def measure(pipe: Any, tabs: int) -> dict[str, Any]:
    from playwright.sync_api import sync_playwright
    from tests.support.browser_world import FLAGS
    from tests.support.programs import CHROMIUM

    port, (long, open_run, small) = pipe.recv()
    url = f"http://127.0.0.1:{port}"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        views = [_look_first(browser, f"{url}/runs/{long}/timeline") for _ in range(5)]
        found: dict[str, Any] = {"first_view_ms": round(statistics.median(views))}
        found |= _zoom(browser, f"{url}/runs/{long}/timeline?open=*")
        found |= _follow(browser, pipe, f"{url}/runs/{open_run}/activity", tabs)
        found["first_view_bytes"] = _count_bytes(browser, f"{url}/runs/{small}")
        browser.close()
    pipe.send(None)
    return found


def _open(browser: Any) -> Any:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_init_script(WATCH)
    return context


def _look_first(browser: Any, url: str) -> float:
    context = _open(browser)
    page = context.new_page()
    page.goto(url)
    page.locator(".tl-drawing svg .seg").first.wait_for(state="attached")
    taken = float(page.evaluate("firstAt.segment"))
    context.close()
    return taken


def _zoom(browser: Any, url: str) -> dict[str, Any]:
    context = _open(browser)
    page = context.new_page()
    page.goto(url)
    page.locator(".tl-drawing svg .seg").nth(5).wait_for(state="attached")
    page.get_by_role("link", name="Events 5").wait_for(timeout=60_000)
    page.wait_for_timeout(1500)
    times = _read_times(page, context, lambda: page.get_by_role("button", name="Zoom in").press("Enter"), 10)
    context.close()
    return {"zoom_script_ms": round(max(times), 1), "zoom_script_median_ms": round(statistics.median(times), 1)}


def _read_times(page: Any, context: Any, act: Any, count: int) -> list[float]:
    """Read how long scripts ran for each of some actions, in milliseconds."""
    session = context.new_cdp_session(page)
    session.send("Performance.enable")
    times = []
    for _ in range(count):
        before = _script_s(session)
        act()
        page.wait_for_timeout(120)
        times.append((_script_s(session) - before) * 1000)
    return times


def _script_s(session: Any, name: str = "ScriptDuration") -> float:
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return float(metrics[name])


def _follow(browser: Any, pipe: Any, url: str, tabs: int) -> dict[str, Any]:
    context = _open(browser)
    pages = [context.new_page() for _ in range(tabs)]
    requests: list[str] = []
    for page in pages:
        page.goto(url)
        page.locator(".caret").wait_for()
    pages[0].wait_for_timeout(2000)  # until all have joined the stream
    pages[0].on("request", lambda request: requests.append(request.url))
    session = context.new_cdp_session(pages[0])
    session.send("Performance.enable")
    script, began = _script_s(session), time.monotonic()
    count = 60
    pipe.send((count, 4))
    while not pipe.poll():
        pages[0].wait_for_timeout(100)
    pipe.recv()
    pages[0].wait_for_timeout(2000)
    minutes = (time.monotonic() - began) / 60
    used = (_script_s(session) - script) * 1000 / count
    ages = sorted(age for page in pages for age in page.evaluate("ages"))
    context.close()
    assert len(ages) == count * tabs, f"{len(ages)} of {count * tabs} were seen"
    return {
        "event_to_page_p50_ms": round(statistics.median(ages)),
        "event_to_page_p95_ms": round(ages[int(len(ages) * 0.95)]),
        "event_script_ms": round(used, 2),
        "requests_per_minute": round(len(requests) / minutes, 1),
    }


def _count_bytes(browser: Any, url: str) -> int:
    context = _open(browser)
    context.add_init_script("window.requestIdleCallback = () => {}")  # other pages are had afterwards
    page = context.new_page()
    page.goto(url)
    page.locator(".panel > *").first.wait_for()
    page.wait_for_timeout(1000)
    entries = '["navigation", "resource"].flatMap((type) => performance.getEntriesByType(type))'
    files = f'{entries}.filter((each) => !each.name.includes("/api/"))'
    size = int(page.evaluate(f"{files}.reduce((sum, each) => sum + each.encodedBodySize, 0)"))
    context.close()
    return size


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--events", type=int, default=5000)
    parser.add_argument("--tabs", type=int, default=20)
    chosen = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (theirs, folder, chosen.events)
        server = multiprocessing.get_context("spawn").Process(target=serve, args=arguments, daemon=True)
        server.start()
        try:
            found = measure(ours, chosen.tabs)
        finally:
            server.join(10)
            server.terminate()
    missed = [name for name, most in TARGETS.items() if found[name] > most]
    print(json.dumps({"events": chosen.events, "tabs": chosen.tabs, **found, "missed": missed}))


if __name__ == "__main__":
    main()
