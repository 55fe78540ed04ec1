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
    const request = h("div.approval-answer", h("textarea.input", { "aria-label": "Comment" }));
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
        a_file("src/uv.lock", line("locked"), is_generated=True),
        a_file("src/logo.png", is_binary=True),
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
    page.get_by_role("navigation", name="Changed files").get_by_role("button", name=re.compile("uv.lock")).click()
    expect(page.get_by_text("locked")).to_be_visible()


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
    draw(page, [a_file("a.py", line("x = 1", 7))], is_deciding=True)

    page.get_by_role("button", name="Comment on line 7").focus()
    page.keyboard.press("Enter")
    page.keyboard.type("Name it.")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    expect(page.get_by_label("Comment", exact=True)).to_have_value("a.py:7: Name it.\n")
    expect(page.locator(".line-comment")).to_contain_text("Name it.")
    expect(page.get_by_role("button", name="Comment on line 7")).to_be_focused()


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
