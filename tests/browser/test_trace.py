"""The trace of a run: each call with what went in and out, found again by filters, at any length, with keys alone."""

import asyncio
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import insert
from tests.browser.conftest import OpenPage
from tests.browser.test_everyone import HOSTILE, Shoot, check_access
from tests.support.browser_world import Served
from tests.support.progress_limit import wait_until

from holdfast.persistence.db import Database
from holdfast.persistence.models import RunPhaseRow, RunRow, WorkflowTemplateRow
from holdfast.runtime.events import Event, create_event
from holdfast.runtime.stores import open_journal

LONG, HARM = "run-long", "run-harm"
LANE = "plan/1/turn1"
AT = "2026-03-01T00:00:00.000Z"


def tool_events(run_id: str, key: str, output: str, **more: Any) -> list[Event]:
    message = {"content": output, "tool_call_id": "c", "name": "execute"}
    lane = key.rpartition("/")[0]
    return [
        create_event(run_id, "tool.started", lane, key=key, tool="execute", args={"command": f"say {key}"}),
        create_event(
            run_id,
            "tool.result",
            lane,
            key=key,
            tool="execute",
            result={"value": {"$msg": ["ToolMessage", message]}, **more},
        ),
    ]


def long_events() -> list[Event]:
    events = [create_event(LONG, "phase.started", "plan/1")]
    for number in range(1248):
        key, model = f"{LANE}/m{number}.t0", f"{LANE}/m{number}"
        events.append(create_event(LONG, "model.request", LANE, key=model, model="m"))
        events.append(create_event(LONG, "model.response", LANE, key=model, result={"value": {}}))
        failed = {"exit_code": 3} if number % 500 == 7 else {}
        events += tool_events(LONG, key, f"output of number {number}", **failed)
    events += [create_event(LONG, "phase.completed", "plan/1"), create_event(LONG, "run.completed")]
    return [Event.from_dict({**event.to_dict(), "ts": 1.8e9 + n / 2}) for n, event in enumerate(events)]


def hostile_events() -> list[Event]:
    key, part = f"{LANE}/m0", "#0"
    answer = {"content": HOSTILE, "tool_calls": [{"name": HOSTILE, "args": {"a": HOSTILE}}]}
    usage = {"input_tokens": 1200, "output_tokens": 30, "cached_tokens": 1000}
    sent = {
        "adds": [part],
        "system": part,
        "tools": "#t",
        "settings": {"temperature": HOSTILE},
        "parts": {
            part: {"role": "human", "content": HOSTILE, "name": HOSTILE},
            "#t": [{"function": {"name": HOSTILE, "description": HOSTILE}}],
        },
    }
    return [
        create_event(HARM, "phase.started", "plan/1"),
        create_event(HARM, "model.request", LANE, key=key, model=HOSTILE, sent=sent),
        create_event(HARM, "model.error", LANE, key=key, error={"message": HOSTILE}, retry_at=1),
        create_event(HARM, "model.request", LANE, key=key, model=HOSTILE, attempt=2),
        create_event(
            HARM, "model.response", LANE, key=key, result={"usage": usage, "value": {"$msg": ["AIMessage", answer]}}
        ),
        *tool_events(HARM, f"{key}.t0", f"first\n{HOSTILE}\nlast"),
        create_event(HARM, "tool.started", f"{key}.t0", key=f"{key}.t0/m0", tool="ls", args={"path": HOSTILE}),
        create_event(HARM, "run.completed"),
    ]


async def fill_store(data_dir: Path) -> None:
    data_dir.mkdir(parents=True, exist_ok=True)
    db = Database(f"sqlite+aiosqlite:///{data_dir / 'holdfast.db'}")
    await db.init_schema()
    times = {"created_at": AT, "updated_at": AT, "started_at": AT, "ended_at": AT}
    runs = [
        {"id": run_id, "template_id": "t", "workflow": "many", "state": "completed", "title": run_id, **times}
        for run_id in (LONG, HARM)
    ]
    phases = [
        {"id": f"p-{run_id}", "run_id": run_id, "phase_key": "plan", "state": "completed", "position": 0}
        for run_id in (LONG, HARM)
    ]
    async with db.session() as session, session.begin():
        await session.execute(insert(WorkflowTemplateRow), [{"id": "t", "name": "many", "hash": "h"}])
        await session.execute(insert(RunRow), runs)
        await session.execute(insert(RunPhaseRow), phases)
    async with open_journal(db.store) as journal:
        await journal.append(LONG, long_events())
        await journal.append(HARM, hostile_events())
    await db.dispose()


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("traced")
    with ThreadPoolExecutor(1) as aside:  # the browser's own loop runs in this thread
        aside.submit(lambda: asyncio.run(fill_store(folder / "data"))).result()
    server = Served(folder).start()
    yield server
    server.stop()


def labels(page: Page) -> Any:
    return page.locator(".tl-label.step")


def test_five_thousand_events_are_a_few_rows_and_can_be_searched(traced: Served, open_page: OpenPage) -> None:
    page = open_page(traced, f"/runs/{LONG}?open=plan")
    expect(labels(page).first).to_be_visible()
    assert labels(page).count() < 80

    page.get_by_label("Search calls").fill("output of number 1007")
    expect(page.get_by_role("status").filter(has_text="1 call of")).to_have_text("1 call of 2,496")
    expect(labels(page)).to_have_count(1)
    page.get_by_label("Search calls").fill("")
    page.get_by_role("button", name="Errors").click()
    expect(labels(page)).to_have_count(3)
    expect(labels(page).first).to_contain_text("m7.t0")
    expect(page).to_have_url(re.compile("only=errors"))
    expect(page.locator(".seg.by-failed")).to_have_count(3)


def test_the_drawing_is_zoomed_at_the_pointer_and_moved(traced: Served, open_page: OpenPage) -> None:
    page = open_page(traced, f"/runs/{LONG}?open=plan")
    expect(labels(page).first).to_be_visible()
    ticks = page.locator(".tl-axis .tick")
    expect(ticks.first).to_have_text("0 s")

    page.locator(".tl-drawing").hover(position={"x": 300, "y": 60})
    page.keyboard.down("Control")
    for _ in range(3):
        page.mouse.wheel(0, -200)
    page.keyboard.up("Control")

    expect(ticks.first).not_to_have_text("0 s")
    page.locator(".tl-drawing").focus()
    for _ in range(40):
        page.keyboard.press("ArrowLeft")
    expect(ticks.first).to_have_text("0 s")
    page.keyboard.press("0")
    page.keyboard.press("+")
    expect(page.locator(".tl-drawing svg")).to_have_count(1)


def test_a_model_call_tells_what_was_sent_and_nothing_of_it_is_markup(
    traced: Served, open_page: OpenPage, shoot: Shoot
) -> None:
    page = open_page(traced, f"/runs/{HARM}?open=plan", width=1440)
    labels(page).first.focus()
    page.keyboard.press("Enter")

    detail = page.locator(".tl-detail")
    expect(detail).to_contain_text("1,000 of them from the cache")
    expect(detail).to_contain_text("Attempts that failed")
    expect(detail).to_contain_text("1 message; 1 tool")
    expect(labels(page).first).to_contain_text("×2")
    for summary in detail.locator("summary").all():
        summary.click()
    expect(detail).to_contain_text("temperature")
    expect(page).to_have_url(re.compile("row="))
    box, frame = detail.bounding_box(), page.locator(".tl-frame").bounding_box()
    assert box is not None
    assert frame is not None
    assert box["x"] >= frame["x"] + frame["width"]
    check_access(page)
    shoot(page, "trace-model-1440-light")
    labels(page).nth(1).click()
    expect(detail.locator(".numbered .line")).to_have_count(3)
    expect(detail.get_by_role("button", name="Copy link")).to_be_visible()
    expect(labels(page).nth(2)).to_have_class(re.compile("depth-1"))
    page.goto(page.url)
    expect(detail).to_contain_text("first")
    assert page.evaluate("window.hurt") is None


def test_a_call_of_long_ago_is_linked_to_copied_and_the_history_downloaded(traced: Served, open_page: OpenPage) -> None:
    page = open_page(traced, f"/runs/{LONG}/activity?entry=32")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    entry = page.locator(".pointed")

    expect(entry).to_contain_text("exit 3")
    expect(entry.locator(".numbered .line")).to_have_text("output of number 7")
    expect(entry).to_be_in_viewport()
    for name, copied in (("Copy output", "output of number 7"), ("Copy link", page.url)):
        entry.get_by_role("button", name=name).press("Enter")
        wait_until(lambda copied=copied: page.evaluate("navigator.clipboard.readText()") == copied)
    with page.expect_download() as downloading:
        page.get_by_role("link", name="Download history").press("Enter")
    history = downloading.value.path().read_text().splitlines()
    assert json.loads(history[-1])["kind"] == "run.completed"


@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1024, "light"), (1440, "dark")])
def test_a_trace_fits_every_width(traced: Served, open_page: OpenPage, shoot: Shoot, width: int, theme: str) -> None:
    page = open_page(traced, f"/runs/{HARM}?open=plan&row={LANE}/m0.t0", width=width, theme=theme)
    expect(page.locator(".numbered")).to_be_visible()
    check_access(page)
    shoot(page, f"trace-{width}-{theme}")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
