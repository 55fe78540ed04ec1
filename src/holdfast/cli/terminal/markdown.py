"""What an agent says, as Markdown on a terminal: cut into blocks while it is written, drawn when a block is complete.

Rule: nothing an agent wrote reaches the terminal before `plain`. Markdown decodes entities, so that is done once more
on what comes out of it.
"""

import functools
import itertools
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

from holdfast.cli.terminal.output import has_colour, plain

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from rich.segment import Segment

_MIN_WIDTH = 8
_STYLES = {
    "markdown.code": "cyan",
    "markdown.code_block": "none",
    "markdown.h1": "bold underline",
    "markdown.h2": "bold underline",
    "markdown.h3": "bold",
    "markdown.h4": "bold",
    "markdown.block_quote": "dim",
    "markdown.item.bullet": "none",
    "markdown.item.number": "none",
    "markdown.link": "none",
    "markdown.link_url": "underline",
    "markdown.table.header": "bold",
    "markdown.table.border": "dim",
    "markdown.hr": "dim",
}


def can_draw() -> bool:
    """Return whether standard output is a terminal that can show more than plain lines."""
    return bool(sys.stdout.isatty()) and os.environ.get("TERM") != "dumb"


def text_width(indent: int) -> int:
    return max(shutil.get_terminal_size().columns - indent - 1, _MIN_WIDTH)


def split_complete(text: str) -> tuple[list[str], str]:
    """Split a text into the blocks that nothing can be added to any more, and the rest.

    A block is complete when another one has begun on a whole line after it: a paragraph can become a heading, a list
    goes on after an empty line.
    """
    whole = text[: text.rfind("\n") + 1]
    tokens = _parser().parse(whole)
    starts = [token.map[0] for token in tokens if token.level == 0 and token.nesting >= 0 and token.map]
    if len(starts) < 2:
        return [], text
    lines = whole.split("\n")  # as the parser counts them
    blocks = ["\n".join(lines[start:end]).rstrip() for start, end in itertools.pairwise(starts)]
    return blocks, "\n".join(lines[starts[-1] :]) + text[len(whole) :]


def draw(text: str, width: int) -> list[str]:
    """Return the lines of a Markdown text, with colours where standard output has them."""
    text = plain(text)
    try:
        rows = _render(text, width)
    except Exception:  # a parser or a lexer may stumble over anything; the text is shown all the same
        rows = []
    if not any(rows):  # nor does the parser say anything about what is nested too deeply
        rows = text.splitlines()
    while rows and not rows[0]:
        del rows[0]
    while rows and not rows[-1]:
        del rows[-1]
    return rows


def _render(text: str, width: int) -> list[str]:
    from rich.console import Console
    from rich.theme import Theme

    system: Any = "standard" if has_colour(sys.stdout) else None
    console = Console(width=width, color_system=system, force_terminal=True, highlight=False, theme=Theme(_STYLES))
    rows = console.render_lines(_answer_class()(text), pad=False)
    return [_to_line([part for part in row if not part.control], console._color_system) for row in rows]


def _to_line(parts: "list[Segment]", colours: Any) -> str:
    while parts and not parts[-1].text.strip():
        parts.pop()
    pieces = [(plain(part.text).replace("\n", " ").replace("\t", " "), part.style) for part in parts]
    return "".join(style.render(text, color_system=colours) if style else text for text, style in pieces).rstrip()


@functools.cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    # Nothing of the text is left out: `List<int>` is no HTML, a picture is its address, a reference is a line.
    parser = MarkdownIt("commonmark", {"html": False})
    return parser.enable(["table", "strikethrough"]).disable(["image", "reference"])


def _parse(text: str) -> "list[Token]":
    """Parse a text into tokens; a line stays a line, as whoever wrote it saw it."""
    tokens = _parser().parse(text)
    for token in tokens:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type = "hardbreak"
    return tokens


@functools.cache
def _answer_class() -> Any:
    from rich.markdown import CodeBlock, Heading, Markdown
    from rich.syntax import Syntax

    class LeftHeading(Heading):
        """A heading as in a text; rich would centre it in a frame."""

        def __rich_console__(self, console: Any, options: Any) -> Any:
            self.text.justify = "left"
            yield self.text

    class BareCode(CodeBlock):
        """Code without a background, so that it fits any terminal's colours."""

        def __rich_console__(self, console: Any, options: Any) -> Any:
            code = str(self.text).rstrip()
            yield Syntax(code, self.lexer_name, theme=self.theme, word_wrap=True, background_color="default")

    class AnswerMarkdown(Markdown):
        elements = {  # noqa: RUF012 - rich's own
            **Markdown.elements,
            "heading_open": LeftHeading,
            "fence": BareCode,
            "code_block": BareCode,
        }

        def __init__(self, text: str) -> None:
            # Links show where they lead, instead of hiding it behind their text.
            super().__init__("", code_theme="ansi_dark", hyperlinks=False)
            self.markup, self.parsed = text, _parse(text)

    return AnswerMarkdown
