"""Schedules: made, paused, fired at once and removed in the browser, with the keyboard alone."""

import contextlib
import re
import sqlite3
from collections.abc import Callable

from playwright.sync_api import Page, expect
from tests.browser.conftest import OpenPage
from tests.browser.test_everyone import HOSTILE, check_access
from tests.support.browser_world import Served

Shoot = Callable[[Page, str], None]


def test_a_schedule_is_made_paused_started_and_removed(served: Served, open_page: OpenPage, shoot: Shoot) -> None:
    page = open_page(served, "/schedules")
    expect(page.get_by_role("heading", name="There are no schedules")).to_be_visible()
    page.keyboard.press("c")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("nightly")
    dialog.get_by_label("What should be done").fill(HOSTILE)
    dialog.get_by_label("Workflow").fill("plain")
    dialog.get_by_label("Repository").fill(str(served.repo))
    dialog.get_by_label("Cron line").fill("every night")
    dialog.get_by_label("Rehearse with the simulated model").check()
    dialog.get_by_label("Cron line").press("Enter")
    expect(dialog.get_by_role("alert")).to_be_visible()
    dialog.get_by_label("Cron line").fill("30 2 * * 1-5")
    dialog.get_by_label("Cron line").press("Enter")
    row = page.get_by_role("row").filter(has_text="nightly")
    expect(row).to_contain_text("active")
    expect(row).to_contain_text("rehearsal")
    assert page.evaluate("window.hurt") is None

    row.get_by_role("button", name="Pause").press("Enter")
    expect(row).to_contain_text("paused")
    row.get_by_role("button", name="Let go on").press("Enter")
    expect(row).to_contain_text("active")
    for width, theme in ((390, "dark"), (1024, "light")):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=theme)
        shoot(page, f"schedules-{width}-{theme}")
        check_access(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    row.get_by_role("button", name="Start").press("Enter")
    expect(page.locator(".run-status")).to_be_visible()
    served.wait_for(page.url.rsplit("/", 1)[1], "completed")
    page.go_back()
    row.get_by_role("button", name="Remove").press("Enter")
    dialog.get_by_role("button", name="Remove schedule").press("Enter")
    expect(page.get_by_role("heading", name="There are no schedules")).to_be_visible()


def test_whoever_only_looks_is_told_why_nothing_can_be_made(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, "/schedules", role="viewer")
    made = page.get_by_role("button", name="New schedule…")
    expect(made).to_have_attribute("aria-disabled", "true")
    expect(made).to_have_attribute("title", re.compile("operator"))


def test_what_was_given_up_and_why_times_were_skipped_is_shown(served: Served, open_page: OpenPage) -> None:
    rows = [
        ("broken", "'The folder is gone.', '2026-01-02T02:31:00.000Z', 0, NULL, '2099-01-01T00:00:00.000Z'"),
        ("held", "NULL, NULL, 4, 'gone', '2099-01-01T00:00:00.000Z'"),
    ]
    insert = (
        "INSERT INTO schedules (name, target, kind, cron, zone, problem, problem_at, skipped, skipped_for, next_at)"
    )
    with (
        contextlib.closing(sqlite3.connect(served.folder / "data" / "holdfast.db", timeout=60.0)) as database,
        database,
    ):
        for name, values in rows:
            database.execute(f"{insert} VALUES ('{name}', 'plain', 'workflow', '0 * * * *', 'UTC', {values})")
    page = open_page(served, "/schedules")
    broken, held = (page.get_by_role("row").filter(has_text=name) for name, _ in rows)
    expect(broken).to_contain_text("not fired")
    expect(broken).to_contain_text("The folder is gone.")
    expect(broken).to_contain_text("Given up, last tried")
    expect(held).to_contain_text("4 times were skipped while its run gone was not over.")
    for row in (broken, held):
        row.get_by_role("button", name="Remove").press("Enter")
        page.get_by_role("dialog").get_by_role("button", name="Remove schedule").press("Enter")
        expect(row).to_have_count(0)
