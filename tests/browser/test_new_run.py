"""A new run: seen before it is started, wrong fields told in place, started once, and one like another."""

import json
import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import FilePayload, Page, Route, expect
from tests.browser.conftest import OpenPage
from tests.support.browser_world import Served

Shoot = Callable[[Page, str], None]
HOSTILE = '# Title\n\n<img src=x onerror="window.hit=1"> [go](javascript:window.hit=1) **bold** \x1b[31mred\u202e'


def fill_in(page: Page, served: Served, workflow: str = "plain") -> None:
    page.get_by_label("Repository", exact=True).fill(str(served.repo))
    page.get_by_role("radio", name=re.compile(f"^{workflow}")).check()
    page.get_by_label("What should be done").fill("Add a --verbose flag to the shop.")
    page.get_by_role("radio", name=re.compile("^Rehearse first")).check()


def count_runs(served: Served, title: str) -> int:
    with served.client() as client:
        return len(client.get("/api/runs", params={"text": title}).json()["items"])


def test_a_run_is_started_from_the_form_and_its_page_opens(served: Served, open_page: OpenPage, shoot: Shoot) -> None:
    (served.repo / "draft.txt").write_text("not committed")
    page = open_page(served, "/new")
    expect(page.get_by_text("Choose a workflow to see what it does.")).to_be_visible()

    fill_in(page, served, "asking")

    plan = page.get_by_role("complementary", name="What will happen")
    expect(plan).to_contain_text("A rehearsal calls no real model")
    expect(plan.locator(".graph-node")).to_have_count(2)
    expect(page.get_by_text("1 change not committed: the run does not see it")).to_be_visible()
    expect(page.locator("#role-author")).to_contain_text("(chosen for you)")
    expect(page.get_by_text("It covers spec_write and backend simulated is choice 1 of the role.")).to_be_visible()
    shoot(page, "new-run")
    page.get_by_label("Title").fill("From the form")
    for name in ("shot.png", "other.png"):
        file = {"name": name, "mimeType": "image/png", "buffer": b"\x89PNG\r\n\x1a\n" + name.encode()}
        page.get_by_label("Images").set_input_files(files=[FilePayload(**file)])
    page.get_by_role("button", name="other.png").click()
    page.get_by_role("button", name="Start rehearsal").click()
    page.wait_for_url(re.compile("/runs/"))
    with served.client() as client:
        detail = client.get(f"/api{page.url.removeprefix(served.url)}").json()
    assert detail["images"] == ["image shot.png (PNG, 16 B)"]
    expect(page.get_by_role("heading", level=1)).to_contain_text("From the form")
    (served.repo / "draft.txt").unlink()


def test_two_clicks_and_a_lost_answer_make_one_run(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, "/new")
    fill_in(page, served)
    page.get_by_label("Title").fill("Only once")
    lost: list[str] = []

    def lose_the_first_answer(route: Route) -> None:
        if route.request.method == "POST" and not lost:
            lost.append(route.fetch().text())
            route.abort()
        else:
            route.continue_()

    page.route("**/api/runs", lose_the_first_answer)
    start = page.get_by_role("button", name="Start rehearsal")
    start.dblclick()
    expect(page.get_by_text("Starting again is safe")).to_be_visible()

    start.click()

    page.wait_for_url(re.compile("/runs/"))
    assert page.url.endswith(json.loads(lost[0])["run_id"])
    assert count_runs(served, "Only once") == 1


def test_a_form_that_was_changed_after_it_was_sent_leads_to_the_run_it_made(
    served: Served, open_page: OpenPage
) -> None:
    page = open_page(served, "/new")
    fill_in(page, served)
    page.get_by_label("Title").fill("Sent before")
    page.route(
        "**/api/runs",
        lambda route: (route.fetch(), route.abort()) if route.request.method == "POST" else route.continue_(),
    )
    page.get_by_role("button", name="Start rehearsal").click()
    expect(page.get_by_text("Starting again is safe")).to_be_visible()
    page.unroute("**/api/runs")

    page.get_by_label("Title").fill("Changed after")
    page.get_by_role("button", name="Start rehearsal").click()

    expect(page.get_by_text("This form has started a run already")).to_be_visible()
    page.get_by_role("link", name="Look at it").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Sent before")


def test_what_is_wrong_is_told_at_its_field(served: Served, open_page: OpenPage, shoot: Shoot) -> None:
    page = open_page(served, "/new")
    page.get_by_role("button", name="Start run").click()

    expect(page.get_by_text("Choose a workflow.", exact=True)).to_be_visible()
    expect(page.get_by_text("Choose the repository to work on.")).to_be_visible()
    expect(page.get_by_label("What should be done")).to_have_attribute("aria-invalid", "true")
    shoot(page, "new-run-mistakes")
    fill_in(page, served)
    expect(page.get_by_text("Choose a workflow.", exact=True)).to_be_hidden()
    page.get_by_label("Start from branch").fill("nowhere")
    expect(page.get_by_text("The repository has no branch 'nowhere'.")).to_be_visible()
    page.get_by_label("Start from branch").fill("main")
    page.get_by_label("Repository", exact=True).fill("/etc")
    expect(page.get_by_text("The repository does not lie under the server's workspace root.")).to_be_visible()
    page.get_by_role("button", name="Start rehearsal").click()
    expect(page.get_by_label("Repository", exact=True)).to_be_focused()
    expect(page.get_by_label("Repository", exact=True)).to_have_attribute("aria-invalid", "true")


def test_personas_are_chosen_with_a_reason_and_can_be_overridden(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, "/new?workflow=feature-delivery")
    expect(page.get_by_role("radio", name=re.compile("^feature-delivery"))).to_be_checked()
    unable = page.locator("#role-developer option", has_text="openai-sol-implementer: OPENAI_API_KEY is not set")
    expect(unable).to_be_disabled()

    page.get_by_role("radio", name=re.compile("^Rehearse first")).check()

    expect(page.locator("#role-developer")).to_contain_text("simulated-developer (chosen for you)")
    page.locator("#role-developer").select_option("simulated-stand-in")
    expect(page.get_by_text("It was asked for.")).to_be_visible()
    expect(page.locator("#role-developer")).to_have_value("simulated-stand-in")


def test_what_was_typed_survives_a_reload_and_its_preview_is_only_text(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, "/new")
    page.get_by_label("What should be done").fill(HOSTILE)
    page.reload()

    page.get_by_role("button", name="Preview").click()

    preview = page.get_by_role("region", name="Preview")
    expect(preview).to_contain_text("<img src=x")
    expect(preview.locator("strong")).to_have_text("bold")
    assert preview.locator("img, a").count() == 0
    assert page.evaluate("window.hit") is None


def test_one_like_a_run_is_filled_in_with_real_models_after_a_rehearsal(served: Served, open_page: OpenPage) -> None:
    run_id = served.start_run("plain", title="The first", requirements_md="Say hello.", budget_usd=2.5, priority=7)

    page = open_page(served, f"/new?like={run_id}")

    expect(page.get_by_role("heading", level=1)).to_have_text("Start one like this")
    expect(page.get_by_label("Title")).to_have_value("The first")
    expect(page.get_by_label("What should be done")).to_have_value("Say hello.")
    expect(page.get_by_label("Repository", exact=True)).to_have_value(str(served.repo))
    expect(page.get_by_label("Limit in dollars")).to_have_value("2.5")
    expect(page.get_by_text("the same queue, “runs”, with priority 7.")).to_be_visible()
    expect(page.get_by_role("radio", name=re.compile("^Real models"))).to_be_checked()
    expect(page.get_by_role("radio", name=re.compile("^plain"))).to_be_checked()


def test_a_viewer_can_look_but_not_start(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, "/new", role="viewer")

    expect(page.get_by_text("You can look, but not start.")).to_be_visible()
    page.get_by_role("radio", name=re.compile("^feature-delivery")).check()
    expect(page.locator(".plan .graph-node")).to_have_count(4)
    expect(page.get_by_role("button", name="Start run")).to_have_attribute("aria-disabled", "true")


def test_a_run_is_started_with_the_keyboard_alone_on_a_phone(served: Served, open_page: OpenPage, shoot: Shoot) -> None:
    page = open_page(served, "/", width=320, theme="dark")
    expect(page.get_by_role("link", name="New run")).to_be_visible()
    page.keyboard.press("n")
    expect(page.get_by_role("heading", name="New run")).to_be_focused()
    expect(page.get_by_role("radio", name=re.compile("^spec-and-review"))).to_be_visible()

    page.get_by_role("radio").first.focus()
    for _ in range(4):
        page.keyboard.press("ArrowDown")
    expect(page.get_by_role("radio", name=re.compile("^spec-and-review"))).to_be_checked()
    page.get_by_label("What should be done").focus()
    page.keyboard.type("Keys only")
    page.get_by_label("Repository", exact=True).focus()
    page.keyboard.type(str(served.repo))
    page.get_by_role("radio", name=re.compile("^Real models")).focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#role-author")).to_contain_text("simulated")
    shoot(page, "new-run-phone-dark")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_label("Title").focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/runs/"))


def test_a_lost_connection_keeps_the_form_and_says_so(tmp_path: Path, open_page: OpenPage) -> None:
    server = Served(tmp_path).start()
    try:
        page = open_page(server, "/new")
        fill_in(page, server)
        expect(page.locator("#role-author")).to_contain_text("chosen for you")
        server.kill()
        page.get_by_role("button", name="Start rehearsal").click()
        expect(page.get_by_text("The server does not answer").first).to_be_visible()
        server.start()
        page.get_by_role("button", name="Start rehearsal").click()
        page.wait_for_url(re.compile("/runs/"))
        expect(page.get_by_role("heading", level=1)).to_contain_text("verbose")
    finally:
        server.stop()
