"""How the pages are sent: types, tags, policy, size."""

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, expect
from tests.support.browser_world import Served

from holdfast.api.http import pages

WEB = pages.WEB_DIR
MAX_BYTES = 120_000
"""Of all files together, as they go over the wire."""
MAX_FIRST_VIEW_BYTES = 60_000
"""Of the files that the first view of a run needs; how much the run itself is depends on the run."""


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url) as opened:
        yield opened


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/", "text/html"),
        ("/js/main.js", "text/javascript"),
        ("/styles.css", "text/css"),
        ("/icon.svg", "image/svg+xml"),
    ],
)
def test_files_have_their_type_a_strict_policy_and_a_tag(client: httpx.Client, path: str, media_type: str) -> None:
    answer = client.get(path)
    again = client.get(path, headers={"If-None-Match": answer.headers["etag"]})

    assert answer.headers["content-type"].startswith(media_type)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert (again.status_code, again.content) == (304, b"")


def test_every_page_of_the_routes_is_served_and_nothing_else_is(client: httpx.Client) -> None:
    known = re.findall(r'path: "([^"]+)"', (WEB / "js" / "model" / "routes.js").read_text())
    for pattern in known:
        path = re.sub(r":\w+\??", "some-thing", pattern)
        assert client.get(path).text == client.get("/").text, path
        assert client.get(re.sub(r"/:\w+\?", "", pattern).replace(":runId", "x")).status_code == 200, pattern

    assert client.get("/nowhere").status_code == 404
    assert client.get("/js/../../api/pages.py").status_code == 404
    assert client.get("/js/%2e%2e/%2e%2e/api/pages.py").status_code == 404
    assert client.get("/README.md").status_code == 404
    assert client.get("/api/nowhere").headers["content-type"] == "application/problem+json"


def test_markup_is_never_made_from_text() -> None:
    forbidden = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser")
    found = [path.name for path in WEB.rglob("*.js") if forbidden.search(path.read_text())]

    assert found == []
    assert re.search(r"\son\w+=|style=", (WEB / "index.html").read_text()) is None


def test_all_files_together_are_small(client: httpx.Client) -> None:
    paths = [path.relative_to(WEB).as_posix() for path in WEB.rglob("*") if path.is_file() and path.suffix != ".css"]
    addresses = {"/" if path == "index.html" else f"/{path}" for path in paths} | {"/styles.css"}
    sizes = {address: _count_sent_bytes(client, address) for address in addresses}

    assert sizes
    assert sum(sizes.values()) < MAX_BYTES, sorted(sizes.items(), key=lambda each: -each[1])[:10]


def test_styles_are_one_file_with_every_rule(client: httpx.Client) -> None:
    sent = client.get("/styles.css").text

    assert "/*" not in sent
    assert not [
        text for text in re.findall(r'"[^"\n]*"', sent) if set(text) & set("{};")
    ]  # space around them is not sent
    names = sorted(path.stem for path in (WEB / "css").glob("*.css"))
    assert names == sorted(pages._STYLES)
    assert [sent.count(end) for end in "{}"] == [
        sum(
            re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL).count(end)
            for path in (WEB / "css").glob("*.css")
        )
        for end in "{}"
    ]


@pytest.mark.parametrize(("tab", "view"), [("", ".outcome-parts"), ("/timeline", ".tl-drawing .seg")])
def test_the_first_view_of_a_run_is_small(served: Served, browser: Browser, tab: str, view: str) -> None:
    run_id = served.start_run("plain", title="Small")
    served.wait_for(run_id, "completed")
    with browser.new_context() as context:  # that has no file yet
        context.request.post(f"{served.url}/api/session", data={"token": served.token("admin")})
        # What else there is comes afterwards, while nothing is done.
        context.add_init_script("window.requestIdleCallback = () => {}")
        page = context.new_page()
        page.goto(f"{served.url}/runs/{run_id}{tab}")
        expect(page.locator(view).first).to_be_attached()
        measured = page.evaluate(
            """() => ["navigation", "resource"].flatMap((type) => performance.getEntriesByType(type))
                .map((each) => [each.name, each.encodedBodySize]).filter(([name]) => !name.includes("/api/"))"""
        )

    assert measured
    assert sum(size for _, size in measured) < MAX_FIRST_VIEW_BYTES, sorted(measured, key=lambda each: -each[1])[:10]


def test_whoever_takes_nothing_compressed_gets_the_file_as_it_is(client: httpx.Client) -> None:
    packed = client.get("/js/main.js")
    plain = client.get("/js/main.js", headers={"Accept-Encoding": "identity"})

    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.headers["etag"] != plain.headers["etag"]
    assert packed.content == plain.content
    assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"


def test_scripts_are_sent_without_comments_and_spaces_in_braces_and_otherwise_whole(client: httpx.Client) -> None:
    for path in WEB.rglob("*.js"):
        sent = client.get(f"/{path.relative_to(WEB).as_posix()}").text
        rest = re.sub(r"[ ;\n]", "", sent)
        for line in path.read_text().split("\n"):
            code = line.strip()
            while code and not rest.startswith(re.sub("[ ;]", "", code)):
                assert "//" in code, (path, line)
                code = code[: code.rindex("//")].rstrip()
            rest = rest[len(re.sub("[ ;]", "", code)) :]
        assert rest == "", path
        # So no text of a template may have such a line or end, and no text or pattern such a space.
        texts = re.findall(r"""//\s.*|"(?:[^"\\\n]|\\.)*"|(`[^`]*`)""", path.read_text())
        assert not re.search(r"(^|\s)// ", "\n".join(texts), re.MULTILINE), path
        quoted = re.findall(r"""//\s.*|("(?:[^"\\\n]|\\.)*")""", path.read_text())
        found = [text for text in quoted if re.search(r"\{ | \}|\) \{|;\}", text)]
        assert found == [], path


def test_long_answers_are_compressed_and_event_streams_are_not(served: Served) -> None:
    run_id = served.start_run("plain", title="Compressed")
    served.wait_for(run_id, "completed")
    with served.client() as client:
        timeline = client.get(f"/api/runs/{run_id}")
        stream = client.get(f"/api/runs/{run_id}/events")

    assert timeline.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in stream.headers
    assert "event: done" in stream.text


def _count_sent_bytes(client: httpx.Client, path: str) -> int:
    with client.stream("GET", path) as answer:
        return sum(len(piece) for piece in answer.iter_raw())
