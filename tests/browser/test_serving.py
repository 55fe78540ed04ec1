"""How the pages are sent: types, tags, policy, size."""

import re
from collections.abc import Iterator

import httpx
import pytest
from tests.support.browser_world import Served

from holdfast.api.http import pages

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
        ("/css/base.css", "text/css"),
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


def test_all_files_together_are_small() -> None:
    sizes = {path.relative_to(WEB): path.stat().st_size for path in WEB.rglob("*") if path.is_file()}

    assert sizes
    assert sum(sizes.values()) < MAX_BYTES, sorted(sizes.items(), key=lambda each: -each[1])[:10]
