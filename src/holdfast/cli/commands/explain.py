"""The command that prints the documentation: an error code's row, or a page."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.lazy import did_you_mean
from holdfast.cli.terminal.arguments import JSON
from holdfast.cli.terminal.completion import complete_topics
from holdfast.cli.terminal.output import folded, paint, print_json, print_text
from holdfast.errors import ConfigInvalid

_ROW = re.compile(r"^\| `(?P<code>[a-z_]+)` \| (?P<message>.*?) \| (?P<hint>.*?) \|$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\(([^)]*)\)")


def explain(
    topic: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC", help="An error's code, or a page's name.", autocompletion=complete_topics),
    ] = None,
    as_json: JSON = False,
) -> None:
    """Explain an error code, or print a page of the documentation.

    Without a topic, list the topics.

    Example: holdfast explain run_busy
    """
    codes, pages = read_codes(), find_pages()
    if topic is None:
        _list_topics(codes, pages, as_json=as_json)
    elif topic in codes:
        _explain_code(topic, *codes[topic], as_json=as_json)
    elif topic in pages:
        text = pages[topic].read_text(encoding="utf-8")
        print_json({"page": topic, "text": text}) if as_json else print_text(text.rstrip())
    else:
        hint = did_you_mean(topic, [*codes, *pages]).strip() or "List the topics: holdfast explain"
        raise ConfigInvalid(f"There is no error code and no page {topic!r}.", hint=hint, key="TOPIC")


def read_codes() -> dict[str, tuple[str, str]]:
    """Return what the reference says of each error code: what is the case, and what to do."""
    text = find_pages()["errors"].read_text(encoding="utf-8")
    return {row["code"]: (row["message"], row["hint"]) for row in _ROW.finditer(text)}


def find_pages() -> dict[str, Path]:
    """Return the pages of the documentation by name; how-tos go before reference pages of the same name."""
    return {path.stem: path for path in _list_files(_find_folder())}


def _list_files(folder: Path) -> Iterator[Path]:
    yield from sorted((folder / "reference").glob("*.md"))
    yield from sorted((folder / "howto").glob("*.md"))
    yield from (folder / name for name in ("tutorial.md", "glossary.md"))


def _find_folder() -> Path:
    """Return the documentation: inside the installed package, or beside the sources."""
    package = Path(__file__).parents[2]
    installed = package / "docs"
    return installed if installed.is_dir() else package.parents[1] / "docs"


def _list_topics(codes: dict[str, tuple[str, str]], pages: dict[str, Path], *, as_json: bool) -> None:
    if as_json:
        print_json({"codes": sorted(codes), "pages": sorted(pages)})
        return
    print_text(f"{paint('Pages', 'bold')}\n{folded(', '.join(sorted(pages)))}\n")
    print_text(f"{paint('Error codes', 'bold')}\n{folded(', '.join(sorted(codes)))}")


def _explain_code(code: str, message: str, hint: str, *, as_json: bool) -> None:
    message, hint = _to_plain(message), _to_plain(hint)
    if as_json:
        print_json({"code": code, "message": message, "hint": hint})
        return
    print_text(f"{paint(code, 'bold')}\n{folded(message)}\n{folded(f'What to do: {hint}')}")


def _to_plain(text: str) -> str:
    """Return a cell's text for a terminal; a link becomes the command that prints its page."""
    linked = _LINK.sub(lambda link: f"{link[1]} (holdfast explain {Path(link[2]).stem})", text)
    return linked.replace("`", "")
