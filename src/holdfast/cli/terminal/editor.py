"""A text that a person reviews, and changes in their own editor."""

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from holdfast.cli.terminal.answer_input import choose
from holdfast.cli.terminal.output import plain, say


def review_text(
    text: str, heading: str, *, accept: str, edit: str = "edit", indent: str = "  ", suffix: str = ".md"
) -> str | None:
    """Show a text and ask until the person accepts it as it is or as they edited it; `None` if they cancel."""
    while True:
        print(heading)  # noqa: T201 - read by a person, here and now
        print("\n".join(f"{indent}{plain(line)}".rstrip() for line in text.splitlines()))  # noqa: T201
        # Yes and no are no choices of this question, and what many type at one.
        answer = choose(f"\n{accept} ({accept[0]})  {edit} (e)  cancel (c) > ", f"{accept[0]}ecyn")
        if answer != "e":
            return text if answer in (accept[0], "y") else None
        text = edit_text(text, suffix=suffix)


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
