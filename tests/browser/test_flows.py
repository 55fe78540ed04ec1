"""Flows: listed, looked at, answered and cancelled in the browser."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
from playwright.sync_api import Page, expect
from tests.browser.conftest import OpenPage
from tests.support.browser_world import Served

from holdfast import Context, RunPaused, get_flow, run_flow
from holdfast.enums import RunStatus

_T = TypeVar("_T")
Shoot = Callable[[Page, str], None]


async def order(ctx: Context, number: int) -> str:
    await ctx.step("charge", lambda: {"number": number, "receipt": "r-" * 60})
    decision = await ctx.approval("ship", show={"number": number, "to": "<b>Lima</b>"})
    return f"shipped {number}: {decision}"


def wait_for(work: Coroutine[Any, Any, _T]) -> _T:
    """Run it in a thread of its own: the browser's loop has this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def run_until_pause(store: Path, run_id: str) -> None:
    with pytest.raises(RunPaused):
        wait_for(run_flow(order, 7, run_id=run_id, store=store, tags={"team": "sales"}))


@pytest.fixture
def store(served: Served) -> Path:
    return served.folder / "data" / "holdfast.db"


def test_a_flow_is_found_answered_and_seen_to_its_end(
    served: Served, open_page: OpenPage, store: Path, shoot: Shoot
) -> None:
    run_until_pause(store, "order-7")
    page = open_page(served, "/")
    page.get_by_role("link", name="Flows", exact=True).click()
    row = page.get_by_role("row").filter(has_text="order-7")
    expect(row).to_contain_text("waits for ship")
    shoot(page, "flows")
    row.get_by_role("link", name="order").click()

    expect(page.locator("main")).to_contain_text("order(7)")
    expect(page.get_by_role("row").filter(has_text="charge")).to_contain_text("completed")
    question = page.get_by_role("region", name="Question ship")
    expect(question).to_contain_text("<b>Lima</b>")  # as text, whoever wrote it
    shoot(page, "flow")
    question.get_by_role("button", name="Approve").click()
    page.get_by_label("Comment").fill("go on")
    page.get_by_role("dialog").get_by_role("button", name="Approve").click()
    expect(question).to_have_count(0)

    assert wait_for(run_flow(order, 7, run_id="order-7", store=store)) == "shipped 7: approve"
    expect(page.locator("main")).to_contain_text("shipped 7: approve")


def test_a_flow_is_cancelled_and_a_viewer_can_only_look(served: Served, open_page: OpenPage, store: Path) -> None:
    run_until_pause(store, "order-8")
    viewer = open_page(served, "/flows/order-8", role="viewer")
    expect(viewer.get_by_role("button", name="Approve")).to_be_disabled()

    page = open_page(served, "/flows/order-8", width=360)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("button", name="Cancel the run").first.click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the run").click()

    expect(page.get_by_role("region", name="Question ship")).to_have_count(0)
    assert wait_for(get_flow("order-8", store=store).status()) is RunStatus.CANCELLED


def test_a_flow_is_listed_among_runs_and_answered_in_the_inbox(
    served: Served, open_page: OpenPage, store: Path, shoot: Shoot
) -> None:
    run_until_pause(store, "order-9")
    page = open_page(served, "/?tag=team%3Dsales")
    row = page.get_by_role("row").filter(has_text="order-9")
    expect(row).to_contain_text("waits for ship")
    shoot(page, "runs-with-flows")
    page.goto(f"{page.url.split('/?')[0]}/runs/order-9")  # as a link from elsewhere would have it
    expect(page.locator("main")).to_contain_text("order(7)")
    page.get_by_role("link", name="team=sales").click()
    expect(page.get_by_role("row").filter(has_text="order-9")).to_be_visible()

    page.get_by_role("link", name="Inbox").click()
    page.get_by_role("button").filter(has_text="order · order-9").click()
    card = page.get_by_role("region", name="Approve “ship” of order?")
    expect(card).to_contain_text("<b>Lima</b>")
    shoot(page, "inbox-of-a-flow")
    card.get_by_label("Comment").fill("by the inbox")
    card.get_by_role("button", name="Approve", exact=True).click()
    expect(card).to_have_count(0)

    assert wait_for(run_flow(order, 7, run_id="order-9", store=store)) == "shipped 7: approve"
