"""Workers: who drives runs, how each is, and letting one end."""

from typing import Any

from playwright.sync_api import Route, expect
from tests.browser.conftest import OpenPage
from tests.browser.test_everyone import check_access, settle
from tests.support.browser_world import Served
from tests.support.progress_limit import wait_until


def worker(name: str, tone: str, text: str, **facts: Any) -> dict[str, Any]:
    usual = {"machine": "m-1", "version": "0.1.0", "since": "2026-01-01T00:00:00Z", "slots": 8, "driven": 3}
    how = {"silent_s": 1.0, "is_alive": True, "is_draining": False, "queues": ["runs"], "flows": ["pay"]}
    return {"name": name, **usual, **how, "clock_off_s": 0.0, "status": {"tone": tone, "text": text}, **facts}


FLEET = [
    worker("build-1", "good", "Takes runs."),
    worker("build-2", "waiting", "Its clock is 3600 s ahead of the database's; timers go by the latter."),
    worker("build-3", "bad", "Silent for 40 s: its runs go on elsewhere.", is_alive=False, silent_s=40.0),
]


def test_a_server_on_one_machine_is_the_worker_itself(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, "/")
    page.get_by_label("You:").click()
    served.wait_for(served.start_run("asking", title="Waits"), "paused")
    expect(page.locator(".needs-you")).to_be_visible()
    page.get_by_role("link", name="Workers").click()  # of a menu that stays open when the number beside it changes

    row = page.get_by_role("row").filter(has_text="Takes runs.")
    expect(row).to_contain_text("runs, default")
    expect(page.get_by_role("button", name="Let it end")).to_have_count(0)


def test_a_fleet_stands_with_what_is_wrong_and_one_can_be_let_end(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, "/")
    drained: list[str] = []

    def drain(route: Route) -> None:
        drained.append(route.request.url)
        route.fulfill(status=202, json={"items": FLEET, "is_shared": True})

    page.route("**/api/workers", lambda route: route.fulfill(json={"items": FLEET, "is_shared": True}))
    page.route("**/api/workers/*/drain", drain)
    page.goto(f"{served.url}/workers")

    row = page.get_by_role("row").filter(has_text="build-2")
    expect(row).to_contain_text("Its clock is 3600 s ahead of the database's")
    expect(row).to_contain_text("3 of 8")
    expect(row).to_contain_text("runs, flow pay")
    silent = page.get_by_role("row").filter(has_text="build-3")
    expect(silent).to_contain_text("40 s ago")
    expect(silent).not_to_contain_text("3 of 8")  # those runs go on elsewhere
    expect(silent.get_by_role("button")).to_have_count(0)
    settle(page)
    check_access(page)
    row.get_by_role("button", name="Let it end").focus()
    page.evaluate("document.querySelector('table').isOld = true")
    wait_until(lambda: not page.evaluate("document.querySelector('table').isOld"), "the fleet is drawn anew")
    expect(row.get_by_role("button", name="Let it end")).to_be_focused()  # and not that of the first worker
    row.get_by_role("button", name="Let it end").click()
    page.get_by_role("dialog").get_by_role("button", name="Let it end").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert [url.rpartition("/api")[2] for url in drained] == ["/workers/build-2/drain"]
