"""Money: today against the limit, day by day, and on what it was spent."""

import re
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect
from tests.browser.conftest import OpenPage
from tests.support.browser_world import Served

Shoot = Callable[[Page, str], None]


def spend(served: Served, run_id: str, amounts: dict[int, float]) -> None:
    """Put spending of so many days ago into the ledger, as a run of real models would have."""
    today = datetime.now(UTC)
    with sqlite3.connect(served.folder / "data" / "holdfast.db", timeout=30) as connection:
        for index, (days_ago, usd) in enumerate(amounts.items()):
            day = (today - timedelta(days=days_ago)).date().isoformat()
            model, persona = [("deepseek-v4-pro", "writer"), ("claude-opus-5.5", "<b>builder</b>")][index % 2]
            values = (uuid.uuid4().hex, run_id, "draft", "settled", round(usd * 1e6), model, persona, day, day)
            connection.execute(
                "INSERT INTO ledger (id, run_id, phase_key, state, amount_micros, model, persona, day, created_at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            )


@pytest.fixture(scope="module")
def spender(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("spender")
    (folder / "config" / "holdfast").mkdir(parents=True)
    (folder / "config" / "holdfast" / "config.toml").write_text("day_budget_usd = 8\nrun_budget_usd = 2.5\n")
    server = Served(folder).start()
    yield server
    server.stop()


def test_money_is_shown_by_day_workflow_persona_and_model(spender: Served, open_page: OpenPage, shoot: Shoot) -> None:
    page = open_page(spender, "/budget")
    expect(page.get_by_text("Nothing was spent")).to_be_visible()
    shoot(page, "budget-empty")
    run_id = spender.start_run("plain", title="Spender")
    spender.wait_for(run_id, "completed")
    amounts = {days: round(0.4 + (days * 7 % 11) * 0.45, 2) for days in range(1, 28) if days % 6}
    spend(spender, run_id, {0: 6.4, **amounts})

    page.reload()

    expect(page.get_by_role("meter")).to_have_attribute("aria-valuetext", re.compile(r"^\$6\.4\d of \$8\.00$"))
    expect(page.get_by_text("A run may spend $2.50 unless it is started with another limit.")).to_be_visible()
    expect(page.get_by_text("simulated today, count against no limit")).to_be_visible()
    expect(page.locator(".bar-fill")).to_have_count(len(amounts) + 1)
    expect(page.locator(".limit-text")).to_have_text("limit $8.00")
    expect(page.get_by_role("listitem").filter(has_text="<b>builder</b>")).to_be_visible()
    shoot(page, "budget")
    page.get_by_text("As a table").click()
    expect(page.get_by_role("row")).to_have_count(len(amounts) + 2)
    page.get_by_role("link", name="7 days").click()
    expect(page.get_by_role("heading", name="The last 7 days")).to_be_visible()
    expect(page).to_have_url(re.compile(r"\?days=7$"))
    page.go_back()
    expect(page.get_by_role("heading", name="The last 30 days")).to_be_visible()


def test_a_run_shows_apart_what_was_perhaps_paid_and_for_which_calls(spender: Served, open_page: OpenPage) -> None:
    run_id = spender.start_run("plain", title="Cut off")
    spender.wait_for(run_id, "completed")
    with sqlite3.connect(spender.folder / "data" / "holdfast.db", timeout=30) as connection:
        connection.execute(
            "INSERT INTO ledger (id, run_id, phase_key, step_key, state, amount_micros, model, day, created_at) "
            "VALUES ('f00dfeed99', ?, 'draft', 'draft/1/turn1/m7', 'reserved', 300000, '<b>m</b>', '2026-01-01', 'x')",
            (run_id,),
        )

    page = open_page(spender, f"/runs/{run_id}/cost")

    table = page.get_by_role("region", name="Calls that were perhaps paid")
    expect(table).to_contain_text("draft/1/turn1/m7<b>m</b>$0.30f00dfeed")
    expect(table).to_contain_text(f"holdfast budget {run_id[:8]} --settle NAME=USD")
    expect(page.locator(".cost-figures")).to_contain_text("Perhaps paid$0.30")


def test_old_figures_stay_when_new_ones_cannot_be_had(spender: Served, open_page: OpenPage) -> None:
    page = open_page(spender, "/budget")
    expect(page.get_by_role("meter")).to_be_visible()

    def fail(route: Route) -> None:
        route.fulfill(status=503, json={"code": "store_busy", "title": "Busy", "detail": "The database is busy."})

    page.route("**/api/budget**", fail)
    page.get_by_role("link", name="90 days").click()

    expect(page.get_by_text("The database is busy.")).to_be_visible()
    expect(page.get_by_role("meter")).to_be_visible()
    page.unroute("**/api/budget**")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("heading", name="The last 90 days")).to_be_visible()
    expect(page.get_by_text("The database is busy.")).to_be_hidden()


def test_the_budget_fits_a_phone_in_the_dark(spender: Served, open_page: OpenPage, shoot: Shoot) -> None:
    page = open_page(spender, "/budget", width=320, theme="dark")
    expect(page.locator(".bar-fill, .state").first).to_be_visible()

    shoot(page, "budget-phone-dark")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_screens_folder_is_not_committed() -> None:
    ignored = (Path(__file__).parents[2] / ".gitignore").read_text().split()
    assert {"var/", "/var/", "var"} & set(ignored)
