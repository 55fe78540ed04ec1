"""Ten thousand runs and ten thousand events: only what is in view exists, and the rest can be reached."""

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import expect
from sqlalchemy import insert
from tests.browser.conftest import OpenPage
from tests.support.browser_world import Served

from holdfast.persistence.db import Database
from holdfast.persistence.models import RunRow, WorkflowTemplateRow
from holdfast.runtime.events import create_event
from holdfast.runtime.stores import open_journal

MANY = 10_000
LONG = "run-00000"


async def fill_store(data_dir: Path) -> None:
    data_dir.mkdir(parents=True, exist_ok=True)
    db = Database(f"sqlite+aiosqlite:///{data_dir / 'holdfast.db'}")
    await db.init_schema()
    start = datetime(2026, 3, 1, tzinfo=UTC)
    runs = []
    for number in range(MANY):
        at = (start - timedelta(minutes=number)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        times = {"created_at": at, "updated_at": at, "started_at": at, "ended_at": at}
        runs.append(
            {"id": f"run-{number:05}", "template_id": "t", "state": "completed", "title": f"No. {number}", **times}
        )
    async with db.session() as session, session.begin():
        await session.execute(insert(WorkflowTemplateRow), [{"id": "t", "name": "many", "hash": "h"}])
        await session.execute(insert(RunRow), runs)
    async with open_journal(db.store) as journal:
        key = "plan/1/turn1/m0.t"
        events = [create_event(LONG, "phase.started", "plan/1")]
        events += [
            create_event(LONG, "tool.result", "plan/1/turn1", key=f"{key}{n}", tool="ls") for n in range(MANY - 2)
        ]
        await journal.append(LONG, [*events, create_event(LONG, "run.completed")])
    await db.dispose()


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("full")
    with ThreadPoolExecutor(1) as aside:  # the browser's own loop runs in this thread
        aside.submit(lambda: asyncio.run(fill_store(folder / "data"))).result()
    server = Served(folder).start()
    yield server
    server.stop()


def test_ten_thousand_runs_are_a_list_of_a_few_rows(full: Served, open_page: OpenPage) -> None:
    page = open_page(full)
    rows = page.locator(".runs tbody tr:not(.spacer)")
    expect(rows.first).to_contain_text("No. 0")
    expect(page.get_by_role("button", name=re.compile("^All 10,000"))).to_be_visible()

    for _ in range(5):
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        page.wait_for_timeout(400)

    expect(page.locator(".runs").get_by_text("No. 250", exact=True)).to_have_count(0)
    assert rows.count() < 80
    last = page.evaluate("Number([...document.querySelectorAll('.row-link')].at(-1).textContent.replace('No. ', ''))")
    assert last > 250


def test_names_have_room_in_a_list_that_is_longer_than_the_window(full: Served, open_page: OpenPage) -> None:
    page = open_page(full, width=1024)
    name = page.locator(".runs td.c-title").first
    expect(name).to_contain_text("No. 0")

    box = name.bounding_box()

    assert box is not None
    assert box["width"] >= 200


def test_whoever_comes_back_is_where_they_were(full: Served, open_page: OpenPage) -> None:
    page = open_page(full)
    expect(page.locator(".row-link").first).to_have_text("No. 0")
    page.evaluate("scrollTo(0, 2600)")
    row = page.get_by_role("link", name="No. 60", exact=True).and_(page.locator(".row-link"))
    row.press("Enter")
    expect(page.locator("h1")).to_have_text("No. 60")

    page.go_back()

    expect(row).to_be_focused()
    expect(row).to_be_in_viewport()
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="No. 61", exact=True).and_(page.locator(".row-link"))).to_be_focused()


def test_the_end_of_the_list_says_nothing_of_more(full: Served, open_page: OpenPage) -> None:
    page = open_page(full, "/?text=No. 99")  # 111 of them: a page of the list, and a bit
    expect(page.get_by_text("More below…")).to_be_attached()

    page.evaluate("scrollTo(0, document.body.scrollHeight)")

    expect(page.get_by_text("More below…")).to_have_count(0)
    expect(page.get_by_role("table")).to_have_attribute("aria-rowcount", "112")


def test_ten_thousand_events_are_a_list_of_a_few_rows(full: Served, open_page: OpenPage) -> None:
    page = open_page(full, f"/runs/{LONG}/events")
    expect(page.get_by_role("link", name="Events 10,000")).to_be_visible()

    page.get_by_label("Follow what is new").check()
    expect(page.locator(".events").get_by_role("link", name="10000", exact=True)).to_be_visible()
    assert page.locator(".events tbody tr").count() < 120
    page.keyboard.press("2")
    expect(page.locator(".activity > li")).to_have_count(200)
