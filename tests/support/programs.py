"""Programs that tests use and pip does not bring; `scripts/install-test-tools.sh` installs what is missing."""

import shutil
import subprocess
from pathlib import Path

import playwright

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for name in _BROWSERS if (found := shutil.which(name))), "")
NODE = str(Path(playwright.__file__).parent / "driver" / "node")


def find_node_fault() -> str:
    """Why the node that comes with Playwright does not run; empty where it does."""
    try:
        ran = subprocess.run([NODE, "--version"], capture_output=True, text=True)
    except OSError as error:
        return f"Playwright's node does not start: {error}"
    return "" if ran.returncode == 0 else f"Playwright's node does not start: {ran.stderr.strip()}"


def find_browser_fault() -> str:
    """Why no page can be looked at; empty where one can."""
    if not CHROMIUM:
        return "no Chromium is installed: scripts/install-test-tools.sh gets it"
    return find_node_fault()
