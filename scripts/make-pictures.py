"""Makes the pictures of the documentation from the program itself: .venv/bin/python scripts/make-pictures.py

A picture is one SVG file that refers to nothing outside itself: no fonts, no scripts, no addresses.
"""

import io
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from holdfast.cli.demo_view import View
from holdfast.cli.flow_demo import Story

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


def main() -> None:
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor", highlight=False
    )
    with tempfile.TemporaryDirectory(prefix="holdfast-picture-") as folder:
        story = Story(Path(folder), View(console), is_fast=True)
        story.act()
        story.show_table()
    svg = console.export_svg(title="make run", theme=THEME, code_format=TEMPLATE, unique_id="demo")
    IMAGES.mkdir(parents=True, exist_ok=True)
    (IMAGES / "demo.svg").write_text(svg)


if __name__ == "__main__":
    main()
