"""The list of runs: found by who, where and when, several acted on at once, and commands by their names."""

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Route, expect
from sqlalchemy import insert
from tests.browser.conftest import OpenPage
from tests.browser.test_everyone import HOSTILE, Shoot, check_access
from tests.support.browser_world import Served
from tests.support.progress_limit import wait_until

from holdfast.persistence.db import Database
from holdfast.persistence.models import LedgerRow, RunRow, WorkflowTemplateRow
from holdfast.persistence.statements.table import to_time_text
from holdfast.runtime.events import create_event
from holdfast.runtime.stores import open_journal

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


async def fill_store(data_dir: Path) -> None:
    data_dir.mkdir(parents=True, exist_ok=True)
    db = Database(f"sqlite+aiosqlite:///{data_dir / 'holdfast.db'}")
    await db.init_schema()
    runs = []
    for number in range(501):
        at = to_time_text(START - timedelta(hours=number))
        facts = {
            "title": HOSTILE if number == 1 else f"No. {number}",
            "started_by": "ana" if number % 250 == 0 else "ben",
        }
        times = {"created_at": at, "updated_at": at, "started_at": at, "ended_at": at}
        state = "failed" if number < 3 else "completed"
        place = {"workflow": "many", "repo_path": f"/srv/{'shop' if number % 2 else 'till'}"}
        runs.append({"id": f"run-{number:05}", "template_id": "t", "state": state, **facts, **times, **place})
    async with db.session() as session, session.begin():
        await session.execute(insert(WorkflowTemplateRow), [{"id": "t", "name": "many", "hash": "h"}])
        await session.execute(insert(RunRow), runs)
        costs = [{"id": f"l{number}", "run_id": f"run-{number:05}", "amount_micros": number} for number in range(501)]
        await session.execute(insert(LedgerRow), costs)
    async with open_journal(db.store) as journal:
        await journal.append("run-00000", [create_event("run-00000", "run.failed", error={"message": "No."})])
    await db.dispose()


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("listed")
    with ThreadPoolExecutor(1) as aside:  # the browser's own loop runs in this thread
        aside.submit(lambda: asyncio.run(fill_store(folder / "data"))).result()
    server = Served(folder).start()
    yield server
    server.stop()


def test_runs_are_found_by_person_repository_and_day(listed: Served, open_page: OpenPage) -> None:
    page = open_page(listed, "/?person=ana")
    rows = page.locator(".runs tbody tr:not(.spacer)")
    expect(rows).to_have_count(3)
    page.get_by_label("Repository").fill("till")
    page.get_by_label("Repository").press("Enter")
    expect(page).to_have_url(re.compile("repo=till"))
    expect(rows).to_have_count(3)
    page.get_by_label("Order").select_option("Oldest first")
    expect(rows.first).to_contain_text("No. 500")
    page.goto(f"{listed.url}/?since=2026-03-01T10:30:00Z&person=ben")
    expect(rows).to_have_count(1)
    expect(page.locator("th").first).to_have_text("Run")


def test_the_list_is_ordered_by_cost_over_all_its_pages(listed: Served, open_page: OpenPage) -> None:
    page = open_page(listed)
    rows = page.locator(".runs tbody tr:not(.spacer)")
    page.get_by_role("button", name="Cost").press("Enter")
    expect(rows.first).to_contain_text("No. 500")
    expect(page).to_have_url(re.compile("order=costliest"))
    expect(page.get_by_role("columnheader", name="Cost")).to_have_attribute("aria-sort", "descending")
    expect(page.get_by_text("More below…")).to_be_attached()
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    expect(page.locator(".runs").get_by_text("No. 395", exact=True)).to_be_attached()  # of the second page
    page.evaluate("scrollTo(0, 0)")
    page.get_by_role("button", name="Cost").press("Enter")
    expect(rows.first).to_contain_text("No. 0")


def test_an_answer_to_other_filters_is_not_shown(listed: Served, open_page: OpenPage) -> None:
    page = open_page(listed, "/?repo=srv")
    rows = page.locator(".runs tbody tr:not(.spacer)")
    expect(rows.first).to_contain_text("No. 0")
    late: list[Route] = []
    page.route(re.compile(r"/api/runs\?.*person=ana"), lambda route: late.append(route))
    started_by = page.get_by_label("Started by")
    started_by.fill("ana")
    started_by.press("Enter")
    wait_until(lambda: page.evaluate("1") and late, "the first answer is asked for")
    started_by.fill("ben")
    started_by.press("Enter")
    expect(rows.first).not_to_contain_text("No. 0")

    for route in late:
        with page.expect_response(re.compile("person=ana")):
            route.continue_()
    page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")

    expect(rows.first).not_to_contain_text("No. 0")


def test_a_stretch_of_the_plot_filters_and_its_dots_are_reached_by_keys(listed: Served, open_page: OpenPage) -> None:
    page = open_page(listed)
    plot = page.locator(".dots")
    expect(plot).to_contain_text("took")
    plot.locator(".dot").first.focus()
    page.keyboard.press("ArrowLeft")
    expect(plot.locator(".dot").nth(1)).to_be_focused()
    box: Any = {}
    wait_until(lambda: box.update(plot.bounding_box() or {}) or box, "the plot stands")  # it may be drawn anew now
    page.mouse.move(box["x"] + 60, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 60)
    page.mouse.up()
    expect(page).to_have_url(re.compile("since=.*until="))


def test_a_list_that_changes_leaves_the_focus_and_a_stretch_that_is_drawn(served: Served, open_page: OpenPage) -> None:
    for _ in range(3):
        served.wait_for(served.start_run("plain", title="Plotted"), "completed")
    page = open_page(served)
    dots = page.locator(".dots .dot")
    expect(dots.nth(2)).to_be_visible()
    page.evaluate("document.querySelector('.dots').dataset.before = 'this'")
    dots.nth(1).focus()
    focused = "document.activeElement.getAttribute('href')"
    href = page.evaluate(focused)

    served.wait_for(served.start_run("plain", title="Beside"), "completed")
    expect(page.locator(".dots[data-before]")).to_have_count(0)
    assert page.evaluate(focused) == href

    box: Any = {}
    wait_until(lambda: box.update(page.locator(".dots").bounding_box() or {}) or box, "the plot stands")
    page.mouse.move(box["x"] + 60, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 60)
    served.wait_for(served.start_run("plain", title="Drawn beside"), "completed")
    expect(page.locator(".runs tbody tr").filter(has_text="Drawn beside")).to_have_count(1)
    page.mouse.up()
    expect(page).to_have_url(re.compile("since=.*until="))


@pytest.mark.parametrize(("width", "theme"), [(390, "light"), (1440, "dark")])
def test_several_runs_are_chosen_and_what_cannot_be_done_says_why(
    listed: Served, open_page: OpenPage, shoot: Shoot, width: int, theme: str
) -> None:
    page = open_page(listed, width=width, theme=theme)
    page.get_by_label("Choose No. 0").check()
    page.get_by_label("Choose No. 0").press("Space")
    page.get_by_label("Choose No. 0").press("Space")
    expect(page.get_by_label("Choose No. 0")).to_be_focused()  # and not the link beside it
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")

    expect(page.locator(".bulk")).to_contain_text("2 runs chosen")
    expect(page.locator(".runs a:focus")).to_be_in_viewport()
    expect(page.get_by_role("button", name="Abort")).to_have_attribute("aria-disabled", "true")
    shoot(page, f"list-{width}-{theme}")
    check_access(page)
    page.get_by_role("button", name="Retry 2…").click()
    expect(page.get_by_role("dialog")).to_contain_text("Retry 2 runs?")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Choose none").press("Enter")
    expect(page.locator(".runs tbody .picker").first).to_be_focused()
    page.get_by_label("Choose No. 3").check()
    page.get_by_role("button", name=re.compile("^Failed")).click()
    expect(page.locator(".runs tbody tr:not(.spacer)")).to_have_count(3)
    expect(page.locator(".bulk")).to_be_empty()  # what is not seen any more is not acted on
    assert page.evaluate("window.hurt") is None
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_of_several_runs_those_that_are_refused_are_named_and_the_others_done(
    served: Served, open_page: OpenPage
) -> None:
    names = [f"Several {number} {HOSTILE}" for number in range(3)]
    runs = [served.start_run("asking", title=name) for name in names]
    for run_id in runs:
        served.wait_for(run_id, "paused")
    page = open_page(served, "/?text=Several")
    page.get_by_label("Choose all runs of the list").check()
    expect(page.locator(".bulk")).to_contain_text("3 runs chosen")
    refusal = {"code": "store_busy", "title": "Busy", "detail": "The database is busy."}
    page.route(f"**/api/runs/{runs[1]}/abort", lambda route: route.fulfill(status=503, json=refusal))
    page.get_by_role("button", name="Abort 3…").press("Enter")
    dialog = page.get_by_role("dialog")

    dialog.get_by_role("button", name="Abort 3 runs").press("Enter")

    expect(dialog.get_by_role("alert")).to_contain_text("Abort was refused for 1 of 3 runs; it is done for the others.")
    expect(dialog.get_by_role("listitem").filter(has_text="The database is busy.")).to_contain_text("Several 1")
    for run_id in (runs[0], runs[2]):
        served.wait_for(run_id, "cancelled")
    expect(page.locator(".bulk")).to_contain_text("1 run chosen")
    page.unroute(f"**/api/runs/{runs[1]}/abort")
    dialog.get_by_role("button", name="Abort 3 runs").press("Enter")  # once more does nothing twice
    expect(dialog).to_have_count(0)
    served.wait_for(runs[1], "cancelled")
    expect(page.locator(".bulk")).to_be_empty()
    assert page.evaluate("window.hurt") is None


def test_filters_are_named_and_taken_away_one_by_one(listed: Served, open_page: OpenPage) -> None:
    page = open_page(listed, "/?person=ana&since=2026-02-01T10:30:15Z&repo=till")
    held = page.get_by_role("group", name="Filters that hold")
    expect(held.get_by_role("button")).to_have_text(
        [re.compile("repository till"), re.compile("started by ana"), re.compile(r"since 1 Feb.*\d:30:15")]
    )
    held.get_by_role("button", name="Take away: since").press("Enter")
    expect(page).not_to_have_url(re.compile("since"))
    expect(page.locator(".runs tbody tr:not(.spacer)")).to_have_count(3)
    page.goto(f"{listed.url}/?text=run-0025")  # as it is copied from elsewhere
    expect(page.locator(".runs tbody tr:not(.spacer)")).to_have_count(10)


def test_a_command_is_found_by_its_name_with_keys_alone(listed: Served, open_page: OpenPage, shoot: Shoot) -> None:
    page = open_page(listed)
    expect(page.locator(".runs")).to_be_visible()
    page.keyboard.press("Control+k")
    page.keyboard.type("onerror")
    expect(page.get_by_role("option").filter(has_text="<img src=x")).to_be_visible()
    shoot(page, "palette-1280-light")
    check_access(page)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Control+k")
    page.keyboard.type("budget")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/budget$"))
    assert page.evaluate("window.hurt") is None
