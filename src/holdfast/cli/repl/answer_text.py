"""What the agent is saying: rows that are finished go up the screen, the end of it stays where it can still change."""

from collections.abc import Callable

from holdfast.cli.terminal.markdown import can_draw, draw, split_complete, text_width
from holdfast.cli.terminal.output import paint, plain

INDENT = "  "
_OFTEN_CHARS = 8_000
"""A block that is longer than this is looked at less often, so that a huge one does not take ages."""


def cut_row(line: str, width: int) -> tuple[str, str]:
    """Cut a row that fits, between words where there are any, and return it and the rest."""
    end = line.rfind(" ", 1, width + 1)
    return (line[:end], line[end + 1 :]) if end > 0 else (line[:width], line[width:])


class AnswerText:
    """One text at a time, written piece by piece: as Markdown block by block, or as plain lines.

    Each row goes to `emit` once. `tail` is what was written and not emitted yet.
    """

    def __init__(self, emit: Callable[[str], None], *, is_drawn: bool | None = None) -> None:
        self._emit = emit
        self._is_drawn = can_draw() if is_drawn is None else is_drawn
        self._start()

    def _start(self) -> None:
        self.tail = ""
        self._is_first_row = True
        self._is_code = False
        self._next_look = 0

    def write(self, text: str) -> None:
        self.tail += plain(text)
        if not self._is_drawn:
            self._write_lines()
        elif "\n" in text and len(self.tail) >= self._next_look:
            blocks, self.tail = split_complete(self.tail)
            for block in blocks:
                self._emit_block(block)
            size = len(self.tail)
            self._next_look = 0 if size < _OFTEN_CHARS else size + size // 8

    def end(self) -> None:
        """Emit what is left; what is written next is another text."""
        if self.tail.strip():
            if self._is_drawn:
                self._emit_block(self.tail)
            else:
                self._emit_line(self.tail)
        self._start()

    def last_rows(self, many: int) -> list[str]:
        """Return the end of `tail`, in rows that fit the terminal; lines that are empty at its end are left out."""
        width = text_width(len(INDENT))
        rows: list[str] = []
        for line in reversed(self.tail.rstrip().expandtabs().splitlines()):
            wrapped = []
            while len(line) > width:
                row, line = cut_row(line, width)
                wrapped.append(row)
            rows = [*wrapped, line, *rows]
            if len(rows) >= many:
                break
        return rows[-many:]

    # -- Markdown -----------------------------------------------------------------------------------------------------

    def _emit_block(self, block: str) -> None:
        rows = draw(block, text_width(len(INDENT)))
        if rows and not self._is_first_row:
            self._emit_row("")
        for row in rows:
            self._emit_row(row)

    # -- plain lines --------------------------------------------------------------------------------------------------

    def _write_lines(self) -> None:
        *lines, self.tail = self.tail.split("\n")
        for line in lines:
            self._emit_line(line)
        width = text_width(len(INDENT))
        while len(self.tail) > width and not self._is_code:
            row, self.tail = cut_row(self.tail, width)
            self._emit_row(row)

    def _emit_line(self, line: str) -> None:
        if line.lstrip().startswith("```"):
            self._is_code = not self._is_code
        elif not self._is_code:
            width = text_width(len(INDENT))
            while len(line) > width:
                row, line = cut_row(line, width)
                self._emit_row(row)
        if line.strip() or not self._is_first_row:
            self._emit_row(line)

    def _emit_row(self, row: str) -> None:
        mark = paint("● ", "running") if self._is_first_row else INDENT
        self._is_first_row = False
        self._emit(f"{mark}{row}".rstrip())
