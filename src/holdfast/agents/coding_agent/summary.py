"""What a known coding agent's output says as a whole: its session, its last words, what it has used."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from holdfast.agents.calls.gate import Usage
from holdfast.agents.coding_agent.adapters.base import Adapter, OutputItem, ToolState, add_usage

MAX_LINE_BYTES = 4 * 1024**2
_MAX_TEXT_CHARS = 100_000
_MAX_HEAD_BYTES, _MAX_TAIL_BYTES = 1024**2, 63 * 1024**2  # of an endless output its session and its end are enough


@dataclass
class OutputSummary:
    """The fold of an output; `words` is the last line that is no JSON, for an agent that failed without saying why."""

    session: str = ""
    model: str = ""
    text: str = ""
    """All that the model said, the end of it."""
    final: str = ""
    error: str = ""
    words: str = ""
    total: Usage | None = None
    calls: dict[str, Usage] = field(default_factory=dict)

    @property
    def usage(self) -> Usage | None:
        """The total that the agent reports, or else the sum of its calls."""
        used = self.total
        if used is None:
            for call in self.calls.values():
                used = add_usage(used, call)
        return used

    @property
    def answer(self) -> str:
        return self.final or self.text

    def add(self, item: OutputItem) -> None:
        self.session = item.session or self.session
        self.model = item.model or self.model
        self.final = item.final or self.final
        self.error = item.error or self.error
        self.total = item.total or self.total
        if item.text:
            self.text = f"{self.text}{item.text}"[-_MAX_TEXT_CHARS:]
            self.error = ""  # it went on after it
        if item.tool and item.state is not ToolState.FAILED:
            self.text = ""  # what was said before is not the answer
            self.error = ""
        if item.usage is not None:
            self.calls[item.call_id or f"#{len(self.calls)}"] = item.usage


def summarize(adapter: Adapter, log_path: Path) -> OutputSummary:
    """Read a whole output, however long, line by line; a line that is too long for a report is passed over."""
    summary = OutputSummary()
    for line in _read_lines(log_path):
        items = adapter.read_line(line)
        for item in items:
            summary.add(item)
        if not items and line.strip() and not line.startswith("{"):
            summary.words = line.strip()
    return summary


def _read_lines(path: Path) -> Iterator[str]:
    try:
        file = path.open("rb")
    except OSError:
        return
    with file:
        size = path.stat().st_size
        if size > _MAX_HEAD_BYTES + _MAX_TAIL_BYTES:
            yield from _to_lines(file, _MAX_HEAD_BYTES)
            file.seek(size - _MAX_TAIL_BYTES)
            file.readline(MAX_LINE_BYTES)  # the rest of a line
        yield from _to_lines(file, size)


def _to_lines(file: BinaryIO, max_bytes: int) -> Iterator[str]:
    is_torn = False
    end = file.tell() + max_bytes
    while file.tell() < end and (piece := file.readline(MAX_LINE_BYTES)):
        is_whole = piece.endswith(b"\n")
        if not is_torn and (is_whole or len(piece) < MAX_LINE_BYTES):
            yield piece.decode(errors="replace").rstrip("\r\n")
        is_torn = not is_whole and len(piece) == MAX_LINE_BYTES
