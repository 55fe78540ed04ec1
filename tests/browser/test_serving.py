"""How the pages are sent: types, tags, policy, size."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.browser.world import Served

from holdfast.api import pages

WEB = pages.WEB_DIR
MAX_BYTES = 200_000


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url) as opened:
        yield opened


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/", "text/html"),
        ("/js/main.js", "text/javascript"),
        ("/css/tokens.css", "text/css"),
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
    known = re.findall(r'path: "([^"]+)"', (WEB / "js" / "routes.js").read_text())
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


def loaded_by(start: Path) -> set[Path]:
    """A module and everything it needs before it runs."""
    todo, seen = [start], set()
    while todo:
        module = todo.pop()
        if module in seen:
            continue
        seen.add(module)
        found = re.findall(r'^(?:import|export)\s[^;]*?from "(\.[^"]+)"|^import "(\.[^"]+)"', module.read_text(), re.M)
        todo += [(module.parent / (one or other)).resolve() for one, other in found]
    return seen


def test_what_a_browser_loads_for_any_page_is_small() -> None:
    shell = [WEB / "index.html", WEB / "icon.svg", WEB / "js" / "theme.js", *WEB.glob("css/*.css")]
    for page in (WEB / "js" / "pages").rglob("*.js"):
        inside = {page, WEB / "js" / "pages" / "run.js"} if page.parent.name == "run" else {page}
        files = {*shell, *loaded_by(WEB / "js" / "main.js"), *(each for one in inside for each in loaded_by(one))}
        size = sum(path.stat().st_size for path in files)
        assert size < MAX_BYTES, f"{page.name} needs {size} bytes"
