"""What a command prints while it runs, as events. They are for watchers alone: no replay reads them.

Of a program that nobody knows it is the text as it comes. Of a known coding agent it is what its lines say: the model's
words and one line a tool call as `text.delta`, tool calls and the session as `agent.progress` too.
"""

import asyncio
import contextlib
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from holdfast.agents.coding_agent.adapters.base import Adapter, OutputItem, ToolState
from holdfast.agents.coding_agent.summary import MAX_LINE_BYTES
from holdfast.agents.redaction import SECRETS
from holdfast.runtime.events import EventKind
from holdfast.runtime.step import Interrupted, step_key
from holdfast.workspace import spool_folder

EVERY_S = 1.0
_MAX_PIECE_BYTES = 16_000
_MAX_REPORTED_BYTES = 256_000  # of one command; the whole of it stays in the spool
_MAX_ACTIVITIES = 2_000


class EventSink(Protocol):
    """Where events for watchers go."""

    async def append_event(self, kind: str, **facts: Any) -> None: ...

    async def read_payloads(self, kind: str) -> list[dict[str, Any]]: ...


class OutputEvents:
    """Reports the output of the current step's command, from where it was reported last, also of one found again."""

    def __init__(
        self, sink: EventSink | None, spool_dir: Path, *, adapter: Adapter | None = None, part: int = 0
    ) -> None:
        self._sink = sink
        self._key = step_key().partition(":")[2]
        self._path = spool_folder(spool_dir, step_key()) / "out"
        self._lines = None if adapter is None else _Lines(adapter)
        self._part = part
        self._at = 0
        self._reported = 0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "OutputEvents":
        if self._sink is not None:
            if self._path.exists():  # crash: the command has told some of it to an engine that is no more
                payloads = await self._sink.read_payloads(EventKind.TEXT_DELTA)
                reported = [payload for payload in payloads if self._is_own(payload)]
                self._at = max((int(payload["end"]) for payload in reported), default=0)
                self._reported = sum(len(str(payload.get("text", ""))) for payload in reported)
            self._task = asyncio.get_running_loop().create_task(self._follow())
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        if error is None:
            while await self._report_piece(is_last=True):
                pass

    async def report_session(self, session: str) -> None:
        """Record the session of the agent; it is known before the agent prints it, if we have chosen its name."""
        await self._append(EventKind.AGENT_PROGRESS, session=session)

    def _is_own(self, payload: dict[str, Any]) -> bool:
        is_same = payload.get("key") == self._key and payload.get("part", 0) == self._part
        return is_same and isinstance(payload.get("end"), int)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            await asyncio.shield(asyncio.ensure_future(self._report_piece()))

    async def _report_piece(self, *, is_last: bool = False) -> bool:
        if self._sink is None:
            return False
        if self._lines is not None:
            return await self._report_lines(self._lines, is_last=is_last)
        piece = self._read(_MAX_PIECE_BYTES)
        end = len(piece) if is_last else max(piece.rfind(b"\n"), piece.rfind(b" ")) + 1  # no key in two halves
        if not end or self._at >= _MAX_REPORTED_BYTES:
            return False
        await self._report_text(piece[:end].decode(errors="replace"), end)
        return True

    async def _report_lines(self, lines: "_Lines", *, is_last: bool) -> bool:
        piece = self._read(MAX_LINE_BYTES)
        end = piece.rfind(b"\n") + 1
        if not end and (is_last or len(piece) == MAX_LINE_BYTES):
            end = len(piece)
        if not end:
            return False
        items, text = lines.read(piece[:end])
        for item in items:
            if item.session:
                await self.report_session(item.session)
            if item.tool and lines.count <= _MAX_ACTIVITIES:
                activity = SECRETS.scrub_text(item.activity)
                await self._append(EventKind.AGENT_PROGRESS, tool=item.tool, activity=activity, state=item.state)
        if text and self._reported < _MAX_REPORTED_BYTES:
            # crash: an activity may be reported once more; the text says where the next one goes on.
            await self._report_text(text[: _MAX_REPORTED_BYTES - self._reported], end)
        else:
            self._at += end
        return True

    async def _report_text(self, text: str, length: int) -> None:
        start, self._at = self._at, self._at + length
        self._reported += len(text)
        await self._append(EventKind.TEXT_DELTA, start=start, end=self._at, text=SECRETS.scrub_text(text))

    async def _append(self, kind: str, **facts: Any) -> None:
        part = {"part": self._part} if self._part else {}
        # A journal that takes nothing more says so to the step itself.
        with contextlib.suppress(Exception, Interrupted):
            if self._sink is not None:
                await self._sink.append_event(kind, key=self._key, **part, **facts)

    def _read(self, size: int) -> bytes:
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                return file.read(size)
        except OSError:
            return b""


class _Lines:
    """Reads pieces of whole lines by an adapter; what it has said of a session it does not say again."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._session = ""
        self.count = 0

    def read(self, piece: bytes) -> tuple[list[OutputItem], str]:
        items, words = [], []
        for line in piece.decode(errors="replace").splitlines():
            for item in self._adapter.read_line(line):
                if item.session and item.session != self._session:
                    self._session = item.session
                    items.append(item)
                if item.tool:
                    self.count += 1
                    items.append(item)
                words.append(_describe(item))
        return items, "".join(words)


def _describe(item: OutputItem) -> str:
    """Say an item as a watcher reads it; nothing for what is only counted."""
    if item.text:
        return item.text if item.text.endswith("\n") else f"{item.text}\n"
    if item.error:
        return f"! {item.error}\n"
    if item.tool and item.state is ToolState.STARTED:
        return f"▸ {item.tool} {item.activity}".rstrip() + "\n"
    if item.tool:
        return f"{'✓' if item.state is ToolState.COMPLETED else '✕'} {item.tool} {item.activity}".rstrip() + "\n"
    return ""
