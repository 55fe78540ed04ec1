"""`/`: the web pages where they are installed, else one plain page that says where the API is."""

from pathlib import Path

from fastapi import FastAPI
from starlette.responses import HTMLResponse
from starlette.staticfiles import StaticFiles

WEB_DIR = Path(__file__).parent.parent / "web"

_PLAIN = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>holdfast</title></head>
<body>
<h1>holdfast</h1>
<p>This server runs agent work on repositories. Its pages are not installed; programs use the API.</p>
<ul>
<li><a href="/openapi.json">The API's description</a></li>
<li><a href="/api/runs">Runs</a></li>
<li><a href="/api/approvals">What waits for a person</a></li>
<li><a href="/api/health">Health</a></li>
</ul>
</body>
</html>
"""


def add_pages(app: FastAPI, folder: Path = WEB_DIR) -> None:
    """To be called last: what no route has taken is looked for among the pages."""
    if (folder / "index.html").is_file():
        app.mount("/", StaticFiles(directory=folder, html=True), name="web")
        return

    @app.get("/", include_in_schema=False)
    async def show_plain_page() -> HTMLResponse:
        return HTMLResponse(_PLAIN)
