"""The web pages: small files of the package, read once, sent with a tag so that a browser asks only what changed.

Rule: every path here is one that the pages' own js/model/routes.js knows; all else stays a refusal of the API.
"""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

WEB_DIR = Path(__file__).parents[2] / "web"

PAGE_PATHS = (
    "/",
    "/runs/{rest:path}",
    "/new",
    "/workflows",
    "/workflows/{rest:path}",
    "/personas",
    "/personas/{rest:path}",
    "/budget",
    "/settings",
    "/health",
    "/sign-in",
)
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class _File:
    content: bytes
    media_type: str
    etag: str


def add_pages(app: FastAPI, folder: Path = WEB_DIR) -> None:
    """Serve the pages and their files, where they are installed."""
    files = _read_files(folder)
    for path in files:
        if path != "/index.html":
            _add(app, path, _serve(files[path]))
    if "/index.html" in files:
        for path in PAGE_PATHS:
            _add(app, path, _serve(files["/index.html"]))


def _read_files(folder: Path) -> dict[str, _File]:
    """Read the files of the pages, by address. A symbolic link out of the folder is no file of ours."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in _MEDIA_TYPES and path.is_file() and path.resolve().is_relative_to(folder.resolve()):
            content = path.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            found[f"/{path.relative_to(folder).as_posix()}"] = _File(content, _MEDIA_TYPES[path.suffix], etag)
    return found


def _add(app: FastAPI, path: str, serve: Callable[[Request], Awaitable[Response]]) -> None:
    app.add_route(path, serve, methods=["GET"], include_in_schema=False)  # Starlette answers HEAD by it too


def _serve(file: _File) -> Callable[[Request], Awaitable[Response]]:
    # no-cache: a new version of the package is seen at once, an old one costs an empty answer.
    headers = {"ETag": file.etag, "Cache-Control": "no-cache"}

    async def serve(request: Request) -> Response:
        known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
        if file.etag in known:
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers=headers, media_type=file.media_type)

    return serve
