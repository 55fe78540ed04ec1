"""The web pages: small files of the package, read and compressed once, with a tag so that only what changed is sent.

Rule: every path here is one that the pages' own js/model/routes.js knows; all else is not found, in a browser too.
"""

import gzip
import hashlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from holdfast.api.http.problems import on_http_exception

WEB_DIR = Path(__file__).parents[2] / "web"

PAGE_PATHS = (
    "/",
    "/runs/{rest:path}",
    "/compare",
    "/inbox",
    "/flows",
    "/flows/{rest:path}",
    "/new",
    "/talk",
    "/workflows",
    "/workflows/{rest:path}",
    "/personas",
    "/personas/{rest:path}",
    "/schedules",
    "/budget",
    "/settings",
    "/health",
    "/workers",
    "/sign-in",
)
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_STYLES = ("base", "run", "pages")  # in the order in which they override each other; sent as one file
_COMMENT_LINE = re.compile(rb"^//.*$", re.MULTILINE)
_COMMENT_AT_END = re.compile(rb"[ \t]+// [^\n\"'`]*$", re.MULTILINE)  # with a quote behind it, it may be text
# A line that the next one can follow at once, since it is empty or ends so; never one with a comment that was left.
_OPEN_LINE = re.compile(rb"^((?:(?!//).)*[,;{(\[]|)\n+", re.MULTILINE)
# Spaces in braces, and before them or a semicolon that ends a block; no text and no pattern of ours has one of these.
_BRACE_SPACE = re.compile(rb"(?<=\{) | (?=\})|(?<=\)) (?=\{)|;(?=\})")
_CSS_COMMENT = re.compile(rb"/\*.*?\*/", re.DOTALL)
_CSS_SPACE = re.compile(rb"\s*([{};])\s*")  # around what ends a rule or a part of it; no text of ours has one of these
_CSS_COLON = re.compile(rb"([{;][a-z-]+): ")
_INDENT = re.compile(rb"^[ \t]+", re.MULTILINE)  # of no text: none of ours goes over several lines


@dataclass(frozen=True)
class _File:
    """`packed` is the content as it is sent to whoever takes it compressed; it has a tag of its own."""

    content: bytes
    packed: bytes
    media_type: str
    etag: str
    packed_etag: str


def add_pages(app: FastAPI, folder: Path = WEB_DIR) -> None:
    """Serve the pages and their files, where they are installed."""
    files = _read_files(folder)
    for path in files:
        if path != "/index.html":
            _add(app, path, _serve(files[path]))
    if "/index.html" in files:
        for path in PAGE_PATHS:
            _add(app, path, _serve(files["/index.html"]))
        app.add_exception_handler(404, _serve_missing(files["/index.html"]))


def _read_files(folder: Path) -> dict[str, _File]:
    """Read the files of the pages, by address. A symbolic link out of the folder is no file of ours."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in _MEDIA_TYPES and path.is_file() and path.resolve().is_relative_to(folder.resolve()):
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
    styles = [found.pop(f"css/{name}.css") for name in _STYLES if f"css/{name}.css" in found]
    return {f"/{name}": _to_file(name, content) for name, content in {**found, "styles.css": b"".join(styles)}.items()}


def _to_file(name: str, content: bytes) -> _File:
    suffix = Path(name).suffix
    content = _INDENT.sub(b"", content)
    if suffix == ".js":
        content = _OPEN_LINE.sub(rb"\1", _COMMENT_AT_END.sub(b"", _COMMENT_LINE.sub(b"", content)))
        content = _BRACE_SPACE.sub(b"", content)
    elif suffix == ".css":
        content = _CSS_COLON.sub(rb"\1:", _CSS_SPACE.sub(rb"\1", _CSS_COMMENT.sub(b"", content)))
    digest = hashlib.sha256(content).hexdigest()[:32]
    packed = gzip.compress(content, mtime=0)
    return _File(content, packed, _MEDIA_TYPES[suffix], f'"{digest}"', f'"{digest}-gzip"')


def _add(app: FastAPI, path: str, serve: Callable[[Request], Awaitable[Response]]) -> None:
    app.add_route(path, serve, methods=["GET"], include_in_schema=False)  # Starlette answers HEAD by it too


def _serve_missing(file: _File) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Answer a browser at an unknown address with the page that says so, and everyone else as ever."""

    async def serve(request: Request, error: Exception) -> Response:
        is_browser = request.method in ("GET", "HEAD") and "text/html" in request.headers.get("accept", "")
        if not is_browser or request.url.path.startswith("/api/"):
            return await on_http_exception(request, error)
        return Response(file.content, status_code=404, media_type=file.media_type)

    return serve


def _serve(file: _File) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        is_packed = "gzip" in request.headers.get("accept-encoding", "")
        etag = file.packed_etag if is_packed else file.etag
        # no-cache: a new version of the package is seen at once, an old one costs an empty answer.
        headers = {"ETag": etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
        if etag in known:
            return Response(status_code=304, headers=headers)
        if is_packed:
            headers["Content-Encoding"] = "gzip"
        return Response(file.packed if is_packed else file.content, headers=headers, media_type=file.media_type)

    return serve
