"""Makes the pictures of the documentation from the program itself: .venv/bin/python scripts/make-pictures.py

A picture is one SVG file that refers to nothing outside itself: no fonts, no scripts, no addresses.
"""

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from holdfast.cli.commands.runs.diff import read_diff
from holdfast.cli.demo.workflow_story import play
from holdfast.cli.demo.workflow_view import StoryView

IMAGES = Path(__file__).parent.parent / "docs" / "images"
WIDTH = 80
THEME = TerminalTheme(
    (22, 27, 34),
    (214, 221, 229),
    [
        (72, 79, 88),
        (255, 123, 114),
        (110, 200, 120),
        (226, 179, 64),
        (121, 174, 255),
        (210, 168, 255),
        (98, 200, 214),
        (214, 221, 229),
    ],
)
TEMPLATE = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px;
}}
.{unique_id}-title {{ font-family: system-ui, sans-serif; font-size: 16px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


class ShortStoryView(StoryView):
    """The demo as it is, without what a picture has no room for: looking around, the artifacts' names, the end."""

    _ACTS = (2, 3, 4, 5, 6, 7)

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._act = 0

    def show_act(self, number: int, title: str) -> None:
        self._act = number
        if number in self._ACTS:
            super().show_act(self._ACTS.index(number) + 1, title)

    def show_project(self, *_: Any) -> None:
        pass

    def show_result(self, run_id: str, proof: Any, tests: str) -> None:
        self._print(("tests  ", "dim"), (tests, "green"), indent=5)
        for line in read_diff(run_id).partition("diff --git a/test_")[0].splitlines():
            if line[:1] in "+-" and not line.startswith(("+++", "---")):
                self._print((line, {"+": "green", "-": "red"}[line[:1]]), indent=5)

    def show_command(self, arguments: list[str]) -> None:
        super().show_command([Path(word).name if word.startswith("/") else word for word in arguments])

    def show_line(self, line: str) -> None:
        is_call = line.startswith("  ")
        is_notable_call = any(tool in line for tool in ("write_file", "edit_file", "execute"))
        if is_notable_call or not (is_call or line.startswith(("run ", "● run"))):
            super().show_line(line)

    def show_holds(self, claims: Iterable[tuple[str, bool]]) -> None:
        self._print()

    def show_farewell(self, folder_left: Path | None) -> None:
        pass


def main() -> None:
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor", highlight=False
    )
    if play(is_fast=True, view=ShortStoryView(console)):
        raise SystemExit("The demo did not hold what it claims; no picture was made.")
    svg = console.export_svg(title="holdfast demo", theme=THEME, code_format=TEMPLATE, unique_id="demo")
    IMAGES.mkdir(parents=True, exist_ok=True)
    (IMAGES / "demo.svg").write_text(svg)


if __name__ == "__main__":
    main()
