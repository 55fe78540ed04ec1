"""The outcome of a run: what its review says, what it changed, what was checked, and what to do with it."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.browser.conftest import OpenPage
from tests.browser.test_everyone import check_access
from tests.support.browser_world import HARM, Served, make_repository
from tests.support.ssh_server import serve_by_ssh


@pytest.fixture(scope="module")
def reviewed(served: Served) -> str:
    repo, author = served.make_own_repository("outcome"), {"author": "z-reviewed"}
    run_id = served.start_run("reviewed", title="Write notes", repo_path=repo, persona_overrides=author)
    served.wait_for(run_id, "completed")
    return run_id


def test_a_finished_run_opens_on_its_result_and_is_not_plain_green(
    served: Served, open_page: OpenPage, reviewed: str
) -> None:
    page = open_page(served, f"/runs/{reviewed}")

    panel = page.locator(".panel")
    expect(page.get_by_role("link", name="Outcome")).to_have_attribute("aria-current", "page")
    expect(page.locator(".run-status.tone-waiting")).to_contain_text("The review asks for changes.")
    expect(panel.get_by_label("Review")).to_contain_text("major")
    expect(panel, served.explain(reviewed)).to_contain_text("1 file changed, +1 −0")
    expect(panel).to_contain_text("2 commands run, 1 failed at the last try.")
    expect(panel.get_by_role("link", name="Download patch")).to_be_visible()
    assert page.evaluate("window.hurt") is None
    expect(panel.locator("img")).to_have_count(0)
    expect(panel.get_by_text(HARM).first).to_be_visible()
    panel.get_by_role("link", name="Read what phase “review” handed in").click()
    expect(panel.locator(".document .headline")).to_have_text("The review asks for changes.")
    expect(panel.locator(".document")).to_contain_text("Findings 1 major, 1 note")
    page.goto(served.url)
    expect(page.locator(".runs tbody tr").filter(has_text="Write notes")).to_contain_text("Changes wanted")
    for number in range(2):  # the plot begins with three
        served.wait_for(served.start_run("plain", title=f"Beside {number}"), "completed")
    expect(page.locator(f".dots .dot.tone-waiting[href='/runs/{reviewed}']")).to_be_attached()
    page.keyboard.press("Control+k")
    page.keyboard.type("Write notes")
    expect(page.get_by_role("option").filter(has_text="Write notes")).to_contain_text("Changes wanted")
    page.keyboard.press("Enter")
    expect(panel.get_by_label("Review")).to_be_visible()
    page.keyboard.press("Control+k")
    page.keyboard.type("merge into")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("Merge into main?")
    page.go_back()
    expect(page.get_by_role("dialog")).to_have_count(0)  # it was about the page that went
    page.goto(f"{served.url}/workflows/reviewed")
    expect(page.get_by_role("row").filter(has_text="Write notes").first).to_contain_text("Changes wanted")


def test_what_does_not_fit_is_shown_before_a_merge_and_a_merged_run_is_marked(
    served: Served, open_page: OpenPage
) -> None:
    repo = Path(served.make_own_repository("merged"))
    run_id = served.start_run(
        "reviewed", title="To be merged", repo_path=str(repo), persona_overrides={"author": "z-reviewed"}
    )
    served.wait_for(run_id, "completed")
    name = HARM.replace("/", "")
    rival = repo / "notes" / f"{name}.txt"
    rival.parent.mkdir(exist_ok=True)
    rival.write_text("something else\n")
    page = open_page(served, f"/runs/{run_id}")

    _press(page, "Merge into main…")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"notes/{name}.txt")
    expect(dialog.get_by_role("alert")).to_be_visible()
    page.keyboard.press("Escape")
    rival.unlink()
    _press(page, "Merge into main…")
    expect(dialog).to_contain_text("Nothing was changed.")
    expect(dialog).to_contain_text("+1")
    assert page.evaluate("window.hurt") is None
    dialog.get_by_role("button", name="Merge into main").press("Enter")

    expect(page.locator(".run-head")).to_contain_text("merged into main")
    expect(page.locator(".panel").get_by_role("button", name="Merge again…")).to_be_visible()
    assert rival.read_text() == "one, two"
    log = subprocess.run(["git", "-C", repo, "log", "--format=%s", "main"], capture_output=True, text=True)
    assert "To be merged" in log.stdout
    page.goto(served.url)
    expect(page.locator(".runs tbody tr").filter(has_text="To be merged")).to_contain_text("merged into main")
    page.goto(f"{served.url}/runs/{run_id}/changes")
    _press(page, "More context")
    expect(page.locator(".panel").get_by_role("button", name="More context", pressed=True)).to_be_visible()
    expect(page.locator(".panel .diff-file").first).to_contain_text("one, two")
    assert page.url.endswith("context=25")


def test_a_pull_request_pushes_a_branch_and_leads_to_the_form_of_the_host(served: Served, open_page: OpenPage) -> None:
    repo = make_repository(served.folder / "work" / "cloned")
    hosted = served.folder / "team" / "cloned.git"
    subprocess.run(["git", "clone", "-q", "--bare", repo, hosted], check=True)
    subprocess.run(["git", "-C", repo, "remote", "add", "origin", "https://github.com/team/cloned"], check=True)
    serve_by_ssh(served.folder, "github.com", served.folder / "config" / "git" / "config")
    run_id = served.start_run(
        "reviewed", title="Pay later", repo_path=str(repo), persona_overrides={"author": "z-reviewed"}
    )
    served.wait_for(run_id, "completed")
    with served.client("operator") as operator:  # has not the machine's keys
        outcome, url = operator.get(f"/api/runs/{run_id}/outcome").json(), f"/api/runs/{run_id}/merge"
        [why] = [step["why"] for step in outcome["steps"] if step["verb"] == "pull_request"]
        refused = operator.post(url, json={"pull_request": True})
    assert "not among the allowed ones" in why
    assert (refused.status_code, refused.json()["code"]) == (403, "repository_not_allowed")
    page = open_page(served, f"/runs/{run_id}")
    _press(page, "Open pull request…")
    branch = f"run-{run_id[:8]}-pay-later"
    expect(page.get_by_role("dialog")).to_contain_text(f"{branch} of github.com would be created: 1 file, +1 −0.")
    page.get_by_role("dialog").get_by_role("button", name="Push the branch").press("Enter")

    form = f"https://github.com/team/cloned/compare/main...{branch}?expand=1"
    expect(page.get_by_role("link", name="Open the form")).to_be_focused()
    expect(page.get_by_role("link", name="Open the form")).to_have_attribute("href", form)
    pushed = subprocess.run(["git", "-C", hosted, "log", "-1", "--format=%s", branch], capture_output=True, text=True)
    assert "Pay later" in pushed.stdout
    expect(page.locator(".run-head")).to_contain_text(f"merged into {branch} of github.com")
    expect(page.locator(".panel").get_by_role("button", name="Merge into main…")).to_be_visible()


def test_a_failed_run_says_why_and_offers_to_retry(served: Served, open_page: OpenPage) -> None:
    run_id = served.start_run("plain", title="Spoilt", persona_overrides={"author": "z-spoiler"})
    served.wait_for(run_id, "failed")
    page = open_page(served, f"/runs/{run_id}", role="viewer")

    panel = page.locator(".panel")
    expect(page.locator(".run-status.tone-bad")).to_contain_text("failed")
    expect(panel.get_by_role("button", name="Retry…")).to_have_attribute("aria-disabled", "true")
    expect(panel).to_contain_text("No file was changed.")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_outcome_is_accessible_and_fits(
    served: Served, open_page: OpenPage, shoot: Callable[[Page, str], None], reviewed: str, theme: str
) -> None:
    page = open_page(served, f"/runs/{reviewed}", theme=theme, width=390)
    for width in (390, 1024, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        expect(page.locator(".panel .review-card")).to_be_visible()
        shoot(page, f"outcome-{width}-{theme}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    check_access(page)


def _press(page: Page, name: str) -> None:
    page.locator(".panel").get_by_role("button", name=name).press("Enter")
