"""What a model says while it says it, as events. They are for watchers alone: no replay reads them.

Rule: a call never waits for them, and a piece ends where no key can go on, so that none is written in two halves.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from langchain_core.callbacks import AsyncCallbackHandler

from holdfast.agents.redaction import SECRETS
from holdfast.runtime.events import Event, EventKind
from holdfast.runtime.run_log import RunLog
from holdfast.runtime.step import Interrupted

EVERY_S = 0.25
_MAX_WORD_CHARS = 4000
_MAX_REASONING_CHARS = 4000
_MAX_BUSY_S = 0.005

_current: ContextVar["LiveText | None"] = ContextVar("holdfast_live_text", default=None)


class LiveText:
    """The text of one attempt at one model call, told in pieces a quarter of a second apart."""

    def __init__(
        self, log: RunLog, key: str, lane_id: str, attempt: int, *, on_progress: Callable[[], None] = lambda: None
    ) -> None:
        self._log = log
        self._on_progress = on_progress
        self._lane_id = lane_id
        self._origin = {"key": key, "attempt": attempt} if attempt > 1 else {"key": key}
        self._waiting = ""
        self._chars = 0
        self._reasoning = ""
        self._writer: asyncio.Task[None] | None = None
        self._is_over = asyncio.Event()
        self.yielded_at = time.monotonic()
        """When the call last let others work."""

    async def __aenter__(self) -> "LiveText":
        self._token = _current.set(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        _current.reset(self._token)
        self._is_over.set()
        if self._writer is not None:
            # At most one append: what is written later would stand behind the answer. It is not cancelled with us.
            await asyncio.wait((self._writer,))

    def feed(self, text: str, reasoning: str) -> None:
        """Take what the model said next, perhaps nothing; ignored once the call is over."""
        if self._is_over.is_set():
            return
        self._on_progress()
        self._reasoning = (self._reasoning + reasoning)[:_MAX_REASONING_CHARS]
        if not text:
            return
        self._waiting += text
        self._chars += len(text)
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write_pieces())

    async def _write_pieces(self) -> None:
        while not await self._is_over_within(EVERY_S):
            piece, self._waiting = _split(self._waiting)
            if piece:
                # A journal that takes nothing more says so to the call itself.
                with contextlib.suppress(Exception, Interrupted):
                    await self._log.append(self._delta(piece))

    async def _is_over_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_over.wait()
        return self._is_over.is_set()

    def last_events(self) -> list[Event]:
        """Return the events of the text that was not written yet; they go with the answer, and stand before it."""
        events = []
        if self._reasoning:
            text = SECRETS.scrub_text(self._reasoning)
            events.append(self._log.event(EventKind.REASONING_SUMMARY, self._lane_id, **self._origin, text=text))
        if self._waiting:
            events.append(self._delta(self._waiting))
        if self._chars:
            events.append(self._log.event(EventKind.TEXT_DONE, self._lane_id, **self._origin, chars=self._chars))
        return events

    def _delta(self, text: str) -> Event:
        clean = SECRETS.scrub_text(text).encode(errors="replace").decode()
        return self._log.event(EventKind.TEXT_DELTA, self._lane_id, **self._origin, text=clean)


_WORD_END = re.compile(r"[\s\u0080-\U0010ffff]")


def _split(text: str) -> tuple[str, str]:
    """Cut where a key can end: behind a blank, or behind a character that no provider's key has, as in Chinese."""
    ends = [found.end() for found in _WORD_END.finditer(text)]
    end = ends[-1] if ends else (len(text) if len(text) >= _MAX_WORD_CHARS else 0)
    end = min(end, len(text) - SECRETS.count_begun(text))  # a known secret may have any characters
    return text[:end], text[end:]


class LiveTextCallback(AsyncCallbackHandler):
    """Hands the pieces a client receives to the call they belong to. Belongs to every model that streams."""

    run_inline = True

    async def on_llm_new_token(self, token: Any, *, chunk: Any = None, **_: Any) -> None:
        live = _current.get()
        if live is None:
            return
        message = getattr(chunk, "message", None)
        thought = getattr(message, "additional_kwargs", {}).get("reasoning_content")
        text = token if isinstance(token, str) else getattr(message, "text", "")
        live.feed(text, thought if isinstance(thought, str) else "")
        if time.monotonic() - live.yielded_at > _MAX_BUSY_S:
            # Pieces that are there already are read without a wait: other runs would stand still, and so would whoever
            # wants to cancel this one.
            await asyncio.sleep(0)
            live.yielded_at = time.monotonic()
