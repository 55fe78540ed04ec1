"""What a command prints while it runs, as `text.delta` events. They are for watchers alone: no replay reads them."""

import asyncio
import contextlib
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from holdfast.agents.redaction import SECRETS
from holdfast.runtime.events import EventKind
from holdfast.runtime.step import Interrupted, step_key
from holdfast.workspace import spool_folder

EVERY_S = 1.0
_MAX_PIECE_BYTES = 16_000
_MAX_REPORTED_BYTES = 256_000  # of one command; the whole of it stays in the spool


class EventSink(Protocol):
    """Where events for watchers go."""

    async def append_event(self, kind: str, **facts: Any) -> None: ...

    async def read_payloads(self, kind: str) -> list[dict[str, Any]]: ...


class OutputEvents:
    """Tells the output of the current step's command, from where it was told last; one that was found again too."""

    def __init__(self, sink: EventSink | None, spool_dir: Path) -> None:
        self._sink = sink
        self._key = step_key().partition(":")[2]
        self._path = spool_folder(spool_dir, step_key()) / "out"
        self._at = 0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "OutputEvents":
        if self._sink is not None:
            if self._path.exists():  # crash: the command has told some of it to an engine that is no more
                reported = [
                    facts for facts in await self._sink.read_payloads(EventKind.TEXT_DELTA) if self._is_own(facts)
                ]
                self._at = max((int(facts["end"]) for facts in reported), default=0)
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

    def _is_own(self, facts: dict[str, Any]) -> bool:
        return facts.get("key") == self._key and isinstance(facts.get("end"), int)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            await asyncio.shield(asyncio.ensure_future(self._report_piece()))

    async def _report_piece(self, *, is_last: bool = False) -> bool:
        piece = self._read()
        end = len(piece) if is_last else max(piece.rfind(b"\n"), piece.rfind(b" ")) + 1  # no key in two halves
        if not end or self._at >= _MAX_REPORTED_BYTES or self._sink is None:
            return False
        start, self._at = self._at, self._at + end
        text = SECRETS.scrub_text(piece[:end].decode(errors="replace"))
        # A journal that takes nothing more says so to the step itself.
        with contextlib.suppress(Exception, Interrupted):
            await self._sink.append_event(EventKind.TEXT_DELTA, key=self._key, start=start, end=self._at, text=text)
        return True

    def _read(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                return file.read(_MAX_PIECE_BYTES)
        except OSError:
            return b""
