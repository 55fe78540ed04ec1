"""Reading what was made: a difference with its files, its words and its colours, and comments that become a request."""

import json
import re

from playwright.sync_api import Page, expect
from pydantic import TypeAdapter
from tests.browser.conftest import OpenPage
from tests.browser.test_everyone import HOSTILE, Shoot, check_access
from tests.support.browser_world import Served

from holdfast.presentation.artifact_document import ArtifactDocument, to_document

DRAW = """async ([files, isDeciding]) => {
    const { changesView } = await import("/js/parts/diff-view.js");
    const { h } = await import("/js/h.js");
    const control = h("textarea.input", { "aria-label": "Comment", "data-asks": "changes", "data-draft": "here" });
    const request = h("div.approval-answer", control);
    const main = document.querySelector("main");
    main.replaceChildren(h("h1", "Review"), ...(isDeciding ? [request] : []));
    main.append(changesView({ files, summary: "3 files, +9 −1" }));
}"""

READ = """async (documents) => {
    const { documentView } = await import("/js/parts/document.js");
    document.querySelector("main").append(...documents.map(documentView));
}"""
ARTIFACTS = {
    "dev/plan@1": {"summary": HOSTILE, "steps": [{"title": HOSTILE, "changes": HOSTILE, "files": [HOSTILE]}]},
    "dev/spec@1": {"requirements": HOSTILE, "acceptance_criteria": [{"text": HOSTILE, HOSTILE: HOSTILE}]},
    "dev/review@1": {"verdict": HOSTILE, "findings": [{"severity": HOSTILE, "where": HOSTILE, "what": HOSTILE}]},
    "dev/change@1": {"files": [{"path": "a/" * 200, "change": HOSTILE}], "commands": [{"outcome": "failed"}]},
    "own/thing@1": {HOSTILE: {HOSTILE: [[HOSTILE]]}, "empty": ""},
}


def draw(page: Page, files: list[dict[str, object]], *, is_deciding: bool = False) -> None:
    expect(page.locator("h1")).to_have_text("Health")
    page.evaluate(DRAW, [files, is_deciding])


def a_file(path: str, *lines: dict[str, object], **more: object) -> dict[str, object]:
    plain = {"kind": "changed", "added": len(lines), "removed": 0, "pairs": [], "is_binary": False, "is_own": False}
    return {"path": path, **plain, "lines": list(lines), **more}


def line(text: str, number: int = 1, **more: object) -> dict[str, object]:
    return {"type": "add", "b": number, "text": text, **more}


def test_files_words_and_colours_are_shown_and_text_stays_text(
    served: Served, open_page: OpenPage, shoot: Shoot
) -> None:
    hostile = line(HOSTILE, marks=[[0, 4]], tokens=[[5, 20, "k"]])
    files = [
        a_file(f"src/{HOSTILE}.py", hostile, line("return 1", 2, tokens=[[0, 6, "k"]], marks=[[7, 8]])),
        a_file("src/uv.lock", line("locked"), is_generated=True, digest="1..2", note="long: without colours"),
        a_file("src/logo.png", is_binary=True, digest="2..3"),
    ]
    for width, theme in ((390, "dark"), (1024, "light"), (1440, "light")):
        page = open_page(served, "/health", width=width, theme=theme)
        draw(page, files)
        expect(page.locator(".diff mark")).to_have_count(2)
        expect(page.get_by_text("locked")).to_have_count(0)
        expect(page.get_by_text("3 files, +9 −1")).to_be_visible()
        shoot(page, f"review-{width}-{theme}")
        check_access(page)
        assert page.evaluate("window.hurt") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    tree = page.get_by_role("navigation", name="Changed files")
    tree.get_by_role("button", name=re.compile("uv.lock")).click()
    expect(page.get_by_text("locked")).to_be_visible()
    tree.get_by_label("Viewed: uv.lock").press("Space")
    expect(page.get_by_text("locked")).not_to_be_visible()
    expect(page.get_by_text("long: without colours")).to_be_visible()
    page.reload()
    expect(page.locator("h1")).to_have_text("Health")
    draw(page, [files[0], {**files[1], "is_generated": False}, {**files[2], "digest": "3..4"}])
    expect(tree.get_by_label("Viewed: uv.lock")).to_be_checked()
    expect(page.get_by_text("locked")).to_have_count(0)
    expect(tree.get_by_label("Viewed: logo.png")).not_to_be_checked()


def test_artifacts_have_views_by_their_schema_and_text_stays_text(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, "/health", width=390)
    expect(page.locator("h1")).to_have_text("Health")
    documents = [to_document(schema_id, json.dumps(value)) for schema_id, value in ARTIFACTS.items()]

    page.evaluate(READ, TypeAdapter(list[ArtifactDocument]).dump_python(documents, mode="json"))

    expect(page.locator(".document")).to_have_count(len(ARTIFACTS))
    expect(page.locator(".doc-steps > li .doc-head")).to_contain_text("<script>")
    expect(page.locator(".doc-items .mark.tone-bad")).to_have_text("failed")
    expect(page.locator(".headline")).to_contain_text("Its verdict is")
    check_access(page)
    assert page.evaluate("window.hurt") is None
    assert page.locator("main img, main script").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_comment_on_a_line_goes_into_the_request_with_keys_alone(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, "/health")
    gone = {"type": "del", "a": 8, "b": None, "text": "y = 1"}
    draw(page, [a_file("a.py", line("x = 1", 7), gone)], is_deciding=True)

    button = page.get_by_role("button", name="Comment on line 7")
    button.focus()
    page.keyboard.press("Enter")
    page.keyboard.type("Name it")
    page.keyboard.press("Escape")
    expect(page.locator(".line-comment")).to_have_count(0)
    expect(button).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Comment on a.py:7")).to_have_value("Name it")  # what was typed is not lost
    page.keyboard.press("End")
    page.keyboard.type(".")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    request = page.get_by_label("Comment", exact=True)
    note = page.locator(".line-comment")
    expect(request).to_have_value("a.py:7: Name it.\n")
    expect(note).to_contain_text("Name it.")
    expect(page.get_by_role("button", name="Comment on line 7")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("End")
    page.keyboard.type("\nAnd test it.")
    page.keyboard.press("Escape")
    expect(note).not_to_contain_text("And test it.")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Comment on a.py:7")).to_have_value("Name it.\nAnd test it.")
    page.keyboard.press("Control+Enter")
    expect(request).to_have_value("a.py:7: Name it.\n  And test it.\n")
    page.get_by_role("button", name="Comment on line 8 as it was").press("Enter")
    page.keyboard.type(HOSTILE)
    page.keyboard.press("Control+Enter")
    expect(note).to_have_count(2)
    expect(request).to_have_value(re.compile("And test it.\na.py:8 before: <img"))
    note.first.get_by_role("button", name="Remove").press("Enter")
    expect(note).to_have_count(1)
    expect(request).to_have_value(re.compile("^a.py:8 before: <img"))
    assert page.evaluate("window.hurt") is None

    page.goto(f"{served.url}/health")
    draw(page, [a_file("b.py", *(line(f"x = {number}", number) for number in range(1, 6)))], is_deciding=True)
    page.get_by_role("button", name="Comment on line 4").press("Enter")
    page.get_by_role("button", name="Comment on line 2").press("Shift+Enter")
    expect(page.locator(".line-comment")).to_have_count(1)
    page.get_by_label("Comment on b.py:2-4").press_sequentially("Fold these")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_label("Comment", exact=True)).to_have_value("b.py:2-4: Fold these\n")
    expect(page.locator("tr:has([aria-label='Comment on line 4']) + .line-comment")).to_contain_text("Fold these")


def test_side_by_side_a_line_may_be_on_one_side_only(served: Served, open_page: OpenPage) -> None:
    gone = {"type": "del", "a": 1, "b": None, "text": "one"}
    come = {"type": "add", "a": None, "b": 1, "text": HOSTILE, "marks": [[0, 4]]}
    pairs = [{"left": gone, "right": come}, {"left": None, "right": {**come, "b": 2, "text": "two"}}]
    page = open_page(served, "/health")

    draw(page, [a_file("a.py", pairs=[*pairs, {"left": {**gone, "a": 3}, "right": None}])], is_deciding=True)

    expect(page.locator(".diff.split tr")).to_have_count(3)
    page.get_by_role("button", name="Comment on line 3 as it was").press("Enter")
    page.keyboard.type("Why?")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_label("Comment", exact=True)).to_have_value("a.py:3 before: Why?\n")
    assert page.evaluate("window.hurt") is None


def test_comments_outlive_a_reload_and_the_end_of_the_session(served: Served, open_page: OpenPage) -> None:
    repo, author = served.make_own_repository("commented"), {"author": "z-reviewed"}
    run_id = served.start_run("gated", title="Commented", repo_path=repo, persona_overrides=author)
    served.wait_for(run_id, "paused")
    page = open_page(served, f"/runs/{run_id}")
    page.get_by_role("button", name="Files", exact=True).click()
    total = page.locator(".approval .diff-total")
    expect(total, served.explain(run_id)).to_have_text("1 file, +1 −0, and 1 artifact")
    expect(page.locator(".approval details.diff-file").last).not_to_have_attribute("open", "")
    number = page.get_by_role("button", name="Comment on line 1", exact=True)
    number.press("Enter")
    page.keyboard.type("Rename it.")
    page.keyboard.press("Control+Enter")
    number.press("Enter")
    page.keyboard.type(" And test it.")

    ended = page.context.request.delete(f"{served.url}/api/session", headers={"Origin": served.url})
    assert ended.ok, ended.text()
    page.reload()
    expect(page.locator("h1")).to_have_text("Log in")
    page.get_by_label("Token").fill(served.token("admin"))
    page.get_by_label("Token").press("Enter")
    editor = page.get_by_label("Comment on notes/")
    expect(editor).to_have_value("Rename it. And test it.")
    editor.press("Control+Enter")
    page.get_by_role("button", name="Request changes").click()

    expect(page.locator(".approval")).to_contain_text("Phase work, attempt 2")
    with served.client() as client:
        answered = client.get("/api/approvals?state=decided").json()["items"]
    (comment,) = [each["comment"] for each in answered if each["run_id"] == run_id]
    assert comment.endswith(".txt:1: Rename it. And test it.\n")
    served.decide(run_id, "abort")


def test_two_megabytes_of_changes_are_a_few_rows(served: Served, open_page: OpenPage) -> None:
    page = open_page(served, "/health")
    text = "value = compute_something(1, 'some text that is long enough to be a hundred characters or so')"
    draw(
        page,
        [
            a_file("big.py", *(line(text, number) for number in range(2900))),
            a_file("other.py", *(line(text, number) for number in range(18_000))),
        ],
    )

    page.locator(".diff-head").nth(1).click()
    expect(page.locator("tr.add").first).to_be_visible()

    assert page.locator("tr.add").count() < 800


def test_a_long_change_is_whole_where_it_is_approved(served: Served, open_page: OpenPage) -> None:
    repo, author = served.make_own_repository("lavish"), {"author": "z-lavish"}
    run_id = served.start_run("gated", title="Lavish", repo_path=repo, persona_overrides=author)
    served.wait_for(run_id, "paused")
    page = open_page(served, f"/runs/{run_id}")
    expect(page.locator(".approval header"), served.explain(run_id)).to_contain_text("7 files changed, +12,0")

    page.get_by_role("button", name="Files", exact=True).press("Enter")

    expect(page.locator(".approval .diff-total")).to_have_text("5 files, +12,000 −0, and 1 artifact")
    tree = page.get_by_role("navigation", name="Changed files")
    expect(tree.locator("li")).to_have_text(
        [
            "INTRO.md+0 −0",
            "a.binbinary",
            "deep/",
            "1.txt+4,000 −0",
            "2.txt+4,000 −0",
            "./",
            "z.txt+4,000 −0",
            "artifacts",
            re.compile("draft"),
        ]
    )
    expect(page.locator(".diff-head").first).to_contain_text("README.md → INTRO.mdrenamed")
    tree.get_by_role("button", name=re.compile("z.txt")).press("Enter")
    expect(page.locator(".diff-file").filter(has_text="z.txt").locator("tr.add").first).to_be_in_viewport()
    assert page.locator("tr.add").count() < 800
    served.decide(run_id, "abort")
