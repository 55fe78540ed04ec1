"""How the demo looks: with colour in a terminal, plain in a file, readable at 40 columns and in ASCII."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from holdfast.cli.demo.flow_process import FILES, KILLED_IN

_NODES = tuple(dict.fromkeys(key.partition(".")[0] for key in FILES))
_INDENT = 5
_WIDE = 74  # columns that the whole table needs
_NARROW = 60
_ASCII = {"✓": "+", "↺": "=", "✗": "x", "?": "?", "◔": ".", "→": "->", "…": "...", "·": "-"}


class _Part(Protocol):
    @property
    def pid(self) -> int: ...

    def keys(self, fact: str) -> list[str]: ...


class View:
    """Prints the story, one thing at a time."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._is_ascii = not console.encoding.lower().startswith("utf")
        self._replayed: list[str] = []

    def show_title(self, feature: str) -> None:
        self._print()
        self._print(("holdfast", "bold"), f"  A run is killed and goes on: {feature} in five nodes")
        self._print((" → ".join(_NODES), "dim"), indent=10)

    def show_act(self, number: int, title: str) -> None:
        self._print()
        self._print((f"{number}  {title}", "bold"), indent=2)

    def show_fact(self, report: Mapping[str, Any]) -> None:
        """Show a fact that a process has reported to its parent."""
        fact, key = report["fact"], report["key"]
        if fact == "replayed":
            self._replayed.append(key)
        elif self._replayed:
            self._show_replayed()
        if fact == "started":
            self._print(f"process {report['pid']}", indent=_INDENT)
        elif fact == "effect" and key == KILLED_IN:
            self._show_step("…", "yellow", key, f"{FILES[key]} is written, its result is not recorded yet")
        elif fact == "called" and key != KILLED_IN:
            self._show_step("✓", "green", key, f"called, wrote {FILES[key]}")
        elif fact == "found":
            self._show_step("?", "yellow", key, f"outcome unknown: looked, {FILES[key]} is there")
        elif fact == "paused":
            self._show_step("◔", "yellow", key, "waits for a person; the process ends")

    def _show_replayed(self) -> None:
        keys, self._replayed = self._replayed, []
        names = ", ".join(keys) if len(keys) <= 3 else f"{len(keys)} steps"
        self._show_step("↺", "cyan", names, "replayed from the journal, not called")

    def show_end(self, pid: int, exit_code: int) -> None:
        if exit_code == -9:
            self._print((f"✗ kill -9 {pid}", "bold red"), ("  gone in the middle of node 3", "red"), indent=_INDENT)
        elif exit_code:
            self._print((f"✗ process {pid} ended with exit code {exit_code}", "bold red"), indent=_INDENT)

    def show_decision(self, run_id: str, key: str, action: str) -> None:
        self._print(f'decide("{run_id}", "{key}", "{action}", by="you")', indent=_INDENT)

    def show_table(self, parts: Sequence[_Part], effects: Counter[str]) -> None:
        self.show_act(5, "Who did what, counted from the files")
        is_wide = self._console.width >= _WIDE
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
        table.add_column("node", overflow="fold")
        if is_wide:
            table.add_column("side effect")
        for part in parts:
            table.add_column(str(part.pid), overflow="fold")
        table.add_column("times" if is_wide else "n", justify="right")
        last_node = ""
        for key, file_name in FILES.items():
            node = key.partition(".")[0]
            cells = [self._cell(part, key, is_wide=is_wide) for part in parts]
            name = node if node != last_node else ""
            last_node = node
            table.add_row(name, *([file_name] if is_wide else []), *cells, str(effects[key]))
        self._console.print(Padding(table, (0, 0, 0, _INDENT if is_wide else 0)))

    def _cell(self, part: _Part, key: str, *, is_wide: bool) -> Text:
        if key in part.keys("found"):
            return self._text(("found done" if is_wide else "found", "yellow"))
        if key in part.keys("replayed"):
            return self._text(("replayed" if is_wide else "replay", "cyan"))
        if key in part.keys("called"):
            return self._text(("called", "green"))
        if key in part.keys("effect"):
            return self._text(("killed", "red"))
        return self._text(("·", "dim"))

    def show_transcript(self, lines: Iterable[str]) -> None:
        self.show_act(6, "The transcript, rebuilt from the journal alone")
        for line in lines:
            self._print(line, indent=1, hang=18)

    def show_claims(self, claims: Iterable[tuple[str, bool]]) -> None:
        self.show_act(7, "What holds")
        for text, holds in claims:
            mark = ("✓ ", "green") if holds else ("✗ ", "bold red")
            self._print(mark, text if holds else (f"not so: {text}", "red"), indent=_INDENT, hang=2)
        self._print()

    def show_stopped(self) -> None:
        self._print()
        self._print("Stopped; the scratch folder is removed.")

    def _show_step(self, mark: str, style: str, key: str, text: str) -> None:
        self._print((f"{mark} {key:<15}  ", style), text, indent=_INDENT, hang=2)

    def _print(self, *pieces: str | tuple[str, str], indent: int = 0, hang: int = 0) -> None:
        """Print one paragraph; what does not fit goes on below, `hang` columns further in."""
        width = self._console.width
        indent = indent if width >= _NARROW else min(indent, 2)
        first, rest = self._break(self._text(*pieces), width - indent)
        self._console.print(Text(" " * indent) + first, soft_wrap=True)
        while rest:
            line, rest = self._break(rest, width - indent - hang)
            self._console.print(Text(" " * (indent + hang)) + line, soft_wrap=True)

    def _break(self, text: Text, width: int) -> tuple[Text, Text]:
        """Split a text into what fits into one line and the rest."""
        line = next(iter(text.wrap(self._console, max(width, 10))), Text())
        rest = text[len(line) :]
        line.rstrip()
        return line, rest[len(rest.plain) - len(rest.plain.lstrip()) :]

    def _text(self, *pieces: str | tuple[str, str]) -> Text:
        text = Text.assemble(*pieces)
        if self._is_ascii:
            for mark, plain in _ASCII.items():
                text = Text(plain).join(text.split(mark)) if mark in text.plain else text
        return text
