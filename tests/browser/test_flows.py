"""Flows: listed, looked at, answered and cancelled in the browser."""

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
from playwright.sync_api import Page, expect
from tests.browser.conftest import OpenPage
from tests.browser.test_everyone import check_access, check_access_in_both_themes
from tests.support.browser_world import Served

from holdfast import Context, RunPaused, get_flow, run_flow
from holdfast.enums import RunStatus

_T = TypeVar("_T")
Shoot = Callable[[Page, str], None]


async def order(ctx: Context, number: int) -> str:
    await ctx.step("charge", lambda: {"number": number, "receipt": "r-" * 60})
    ctx.log("mail sent", number=number)
    ctx.set_status("waits for <i>somebody</i>")
    decision = await ctx.approval("ship", show={"number": number, "to": "<b>Lima</b>"})
    return f"shipped {number}: {decision}"


async def double(ctx: Context, number: int) -> int:
    return await ctx.step("double", lambda: number * 2)


async def parent(ctx: Context) -> int:
    return await ctx.run_flow(double, 21)


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
    link = row.get_by_role("link", name="order")
    page.keyboard.press("j")
    while not link.evaluate("link => link === document.activeElement"):
        page.keyboard.press("j")
    page.keyboard.press("Enter")

    expect(page.locator("main")).to_contain_text("order(7)")
    expect(page.locator("h1")).to_have_text("order")
    expect(page).to_have_title(re.compile("order · order-7"))
    expect(page.get_by_role("row").filter(has_text="charge")).to_contain_text("completed")
    expect(page.get_by_role("row").filter(has_text="charge")).to_contain_text('{ "number": 7, "receipt"')
    expect(page.get_by_role("link", name="Download the events")).to_have_attribute("download", "order-7.jsonl")
    expect(page.get_by_role("row").filter(has_text='mail sent {"number":7}')).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="status: waits for <i>somebody</i>")).to_be_visible()
    question = page.get_by_role("region", name="Approve “ship” of order?")
    expect(question).to_contain_text("<b>Lima</b>")  # as text, whoever wrote it
    shoot(page, "flow")
    check_access(page)
    page.keyboard.press("a")
    page.keyboard.type("go on")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(question).to_have_count(0)
    expect(page.locator("h1")).to_be_focused()

    assert wait_for(run_flow(order, 7, run_id="order-7", store=store)) == "shipped 7: approve"
    expect(page.locator("main")).to_contain_text("shipped 7: approve")


def test_a_flow_is_cancelled_and_a_viewer_can_only_look(served: Served, open_page: OpenPage, store: Path) -> None:
    run_until_pause(store, "order-8")
    viewer = open_page(served, "/flows/order-8", role="viewer")
    expect(viewer.get_by_role("button", name="Approve")).to_have_attribute("aria-disabled", "true")

    page = open_page(served, "/flows/order-8", width=360)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("document.querySelector('.nav [aria-current]').getBoundingClientRect().right <= innerWidth")
    page.get_by_role("button", name="Cancel the run…").press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Cancel the run").press("Enter")

    expect(page.locator(".approval")).to_have_count(0)
    expect(page.locator("h1")).to_be_focused()
    assert wait_for(get_flow("order-8", store=store).status()) is RunStatus.CANCELLED


def test_a_failed_flow_is_run_again_and_the_list_hears_of_it(served: Served, open_page: OpenPage, store: Path) -> None:
    async def fragile(ctx: Context) -> None:
        await ctx.step("try", lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        wait_for(run_flow(fragile, run_id="fragile-1", store=store))
    flows = open_page(served, "/flows")
    expect(flows.get_by_role("row").filter(has_text="fragile-1")).to_contain_text("ZeroDivisionError: division by zero")
    page = open_page(served, "/flows/fragile-1")
    expect(page.get_by_role("row").filter(has_text="try")).to_contain_text("failed")

    page.get_by_role("button", name="Run it again").click()
    page.get_by_role("dialog").get_by_role("button", name="Run it again").click()

    expect(page.get_by_role("button", name="Run it again")).to_have_count(0)
    assert wait_for(get_flow("fragile-1", store=store).status()) is RunStatus.PENDING
    expect(flows.get_by_role("row").filter(has_text="fragile-1")).to_contain_text("is to be started")

    for run_id in ("fragile-2", "fragile-3"):
        with pytest.raises(ZeroDivisionError):
            wait_for(run_flow(fragile, run_id=run_id, store=store, tags={"torn": "yes"}))
    flows.goto(f"{served.url}/flows?tag=torn")
    flows.get_by_role("link", name="list of runs").click()
    flows.get_by_label("Choose all runs of the list").press("Space")
    flows.get_by_role("button", name="Retry 2…").press("Enter")
    flows.get_by_role("dialog").get_by_role("button", name="Retry 2 runs").press("Enter")
    expect(flows.locator(".runs tbody tr").filter(has_text="is to be started")).to_have_count(2)


POISON = """
import asyncio, os, signal, sys
from holdfast import Runtime, flow, start_flow

@flow("poison")
async def poison(ctx):
    await ctx.step("dies", lambda: os.kill(os.getpid(), signal.SIGKILL))

async def main():
    handle = await start_flow(poison, run_id="poison-1", store=sys.argv[1])
    async with Runtime(sys.argv[1], flows=[poison]):
        while await handle.status() != "paused":
            await asyncio.sleep(0.01)

asyncio.run(main())
"""


def test_a_flow_that_kills_its_processes_is_looked_at_and_run_again(
    served: Served, open_page: OpenPage, store: Path, shoot: Shoot
) -> None:
    command = [sys.executable, "-c", POISON, str(store)]
    codes = [subprocess.run(command, capture_output=True, check=False).returncode for _ in range(4)]
    assert codes == [-signal.SIGKILL] * 3 + [0]

    flows = open_page(served, "/flows")
    expect(flows.get_by_role("row").filter(has_text="poison-1")).to_contain_text("died again and again")
    inbox = open_page(served, "/inbox")
    inbox.locator(".inbox-list button").filter(has_text="poison").click()
    inbox.get_by_role("link", name="Open the run").click()
    expect(inbox).to_have_url(re.compile("/flows/poison-1$"))
    page = open_page(served, "/flows/poison-1")
    expect(page.locator(".verdict")).to_contain_text("Three processes in a row died with it")
    shoot(page, "flow-crashing")
    check_access_in_both_themes(page)

    page.get_by_role("button", name="Run it again").click()
    page.get_by_role("dialog").get_by_role("button", name="Run it again").click()

    expect(page.get_by_role("button", name="Run it again")).to_have_count(0)
    expect(page.locator(".verdict")).not_to_contain_text("died with it")
    shoot(page, "flow-to-go-on")
    expect(flows.get_by_role("row").filter(has_text="poison-1")).to_contain_text("is to go on", ignore_case=True)
    again = subprocess.run(command, capture_output=True, check=False)
    assert again.returncode == -signal.SIGKILL


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


async def refuse(ctx: Context) -> None:
    def charge() -> None:
        raise ValueError("The <b>card</b> was refused")

    await ctx.step("charge", charge)


def test_a_failed_flow_says_which_step_failed_on_a_phone_too(
    served: Served, open_page: OpenPage, store: Path, shoot: Shoot
) -> None:
    with pytest.raises(ValueError, match="refused"):
        wait_for(run_flow(refuse, run_id="refused-card", store=store, tags={"card": "old"}))
    page = open_page(served, "/flows?tag=card%3Dold", width=390)
    expect(page.get_by_role("link", name="refuse", exact=True)).to_be_visible()
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="refuse", exact=True)).to_be_focused()
    check_access_in_both_themes(page, shoot, "flows-390")
    page.keyboard.press("Enter")

    step = page.get_by_role("row").filter(has_text="charge")
    expect(step.get_by_role("cell").filter(has_text="failed")).to_be_visible()
    expect(step).to_contain_text("ValueError: The <b>card</b> was refused")
    check_access_in_both_themes(page, shoot, "flow-390")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("navigation", name="Where you are").get_by_role("link", name="Flows").press("Enter")
    page.get_by_role("button", name="Completed").press("Enter")
    expect(page.get_by_role("row").filter(has_text="refused")).to_have_count(0)
    for path, place in (("/inbox", ".inbox-list li"), ("/?tag=card%3Dold", ".runs tbody tr")):
        page.goto(served.url + path)
        listed = page.locator(place).filter(has_text="refused-card")
        expect(listed).to_contain_text("ValueError: The <b>card</b> was refused")


def test_a_flow_that_is_not_there_says_so(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, "/flows/nowhere")

    expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    expect(page.get_by_role("link", name="All runs", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Try again")).to_have_count(0)


def test_a_flow_leads_to_its_child_and_back(served: Served, open_page: OpenPage, store: Path) -> None:
    assert wait_for(run_flow(parent, run_id="parent-1", store=store)) == 42
    page = open_page(served, "/flows/parent-1")
    page.get_by_role("row").filter(has_text="child").get_by_role("link", name="double").click()
    expect(page.locator("h1")).to_have_text("double")
    expect(page.locator("main")).to_contain_text("double(21)")
    page.get_by_role("link", name="parent-1").click()
    expect(page.locator("h1")).to_have_text("parent")
