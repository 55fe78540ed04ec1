"""A text in the person's own editor."""

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from holdfast.cli.terminal.output import say


def edit_text(text: str, *, suffix: str = ".md") -> str:
    """Return the text as the person leaves it; unchanged where the editor fails, is not there, or leaves nothing."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.NamedTemporaryFile("w+", suffix=suffix, encoding="utf-8") as file:
        file.write(text)
        file.flush()
        try:
            done = subprocess.run([*shlex.split(editor), file.name], check=False)
        except (OSError, ValueError):
            say(f"The editor {editor!r} cannot be started. Name another one in EDITOR.")
            return text
        if done.returncode != 0:
            return text
        return Path(file.name).read_text(encoding="utf-8", errors="replace").strip() or text
