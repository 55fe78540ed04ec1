"""From HTML to text that reads well: headings, lists, links and tables in lines; no scripts, styles or hidden parts.

Reads whatever a stranger serves in time that grows with its length alone, which the library's parser does not promise.
"""

import html
import re
from urllib.parse import urljoin

_TAG_NAME = re.compile(r"/?[a-z][a-z0-9-]*", re.IGNORECASE)
_LINK = re.compile(r"""\bhref\s*=\s*(?:"([^"]{1,2000})"|'([^']{1,2000})'|([^\s>"']{1,2000}))""", re.IGNORECASE)
_SKIPPED = frozenset({"script", "style", "noscript", "template", "svg", "iframe", "object", "select", "textarea"})
_BLOCKS = frozenset(
    {
        *(
            "address",
            "article",
            "aside",
            "blockquote",
            "body",
            "dd",
            "details",
            "div",
            "dl",
            "dt",
            "fieldset",
            "figure",
        ),
        *("footer", "form", "header", "hr", "main", "nav", "ol", "p", "pre", "section", "table", "tr", "ul", "br"),
    }
)
_MAX_TAG_CHARS = 20_000


def to_readable_text(source: str, base_url: str = "") -> str:
    """Return the text of a page. Links keep their addresses, whole ones."""
    writer = _TextWriter(base_url)
    position, lower = 0, source.lower()
    while True:
        start = source.find("<", position)
        if start < 0:
            writer.add_text(source[position:])
            return writer.to_text()
        writer.add_text(source[position:start])
        if source.startswith("<!--", start):
            end = source.find("-->", start + 4)
            position = len(source) if end < 0 else end + 3
            continue
        name = _TAG_NAME.match(source, start + 1)
        if name is None and not source.startswith(("<!", "<?"), start):
            writer.add_text("<")
            position = start + 1
            continue
        end = source.find(">", start + 1)
        if end < 0:
            return writer.to_text()
        position = end + 1
        tag = name[0].lower() if name else ""
        if tag in _SKIPPED:
            end = lower.find(f"</{tag}", position)
            position = len(source) if end < 0 else end
        elif tag:
            writer.add_tag(tag, source[start : min(end, start + _MAX_TAG_CHARS)])


class _TextWriter:
    """Collects lines. Blanks in a row are one; so are empty lines."""

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url
        self._lines: list[str] = []
        self._line: list[str] = []
        self._links: list[str] = []

    def add_text(self, text: str) -> None:
        if text:
            self._line.append(html.unescape(text))

    def add_tag(self, tag: str, source: str) -> None:
        name = tag.removeprefix("/")
        if name == "a":
            self._add_link(source, is_end=tag != name)
        elif name in ("td", "th") and tag != name:
            self._line.append(" | ")
        elif name == "li" or re.fullmatch("h[1-6]", name):
            self._end_line()
            if tag == name:
                self._line.append("- " if name == "li" else "#" * int(name[1]) + " ")
        elif name in _BLOCKS or name == "title":
            self._end_line()

    def _add_link(self, source: str, *, is_end: bool) -> None:
        if is_end:
            address = self._links.pop() if self._links else ""
            if address:
                self._line.append(f" ({address})")
            return
        found = _LINK.search(source)
        target = html.unescape(next(filter(None, found.groups()))).strip() if found else ""
        try:
            whole = urljoin(self._base_url, target)
        except ValueError:
            whole = ""
        self._links = [whole if whole.startswith(("http://", "https://")) and not target.startswith("#") else ""]

    def _end_line(self) -> None:
        self._lines.append(" ".join("".join(self._line).split()))
        self._line = []

    def to_text(self) -> str:
        self._end_line()
        return re.sub(r"\n{3,}", "\n\n", "\n".join(line for line in self._lines if line not in ("-", "|"))).strip()
