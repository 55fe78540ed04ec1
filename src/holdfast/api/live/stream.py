"""The stream of one client: one algorithm, whatever is followed.

Rule: a client is fed from the store up to where the reader stands and from the reader's queue after that; positions
decide what comes next, so nothing is missed and nothing is sent twice.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from holdfast.api.live.client_queue import ClientQueue, join
from holdfast.runtime.events import Event


class Frame(NamedTuple):
    """One event as it goes over the wire; of what is followed, nothing lies between `before` and its position."""

    before: int
    position: int
    kind: str
    text: bytes
    is_end: bool = False
    """After it the stream may be over."""
    run_id: str = ""
    brief: bytes = b""
    """The same event without its content, for who wants to know that it happened and no more."""


class StreamSource(Protocol):
    """What the stream of one client is made from."""

    def join(self) -> AbstractContextManager[ClientQueue[Frame]]:
        """Put a queue for the client among those that the reader fills, until it is left."""
        ...

    async def start(self) -> int:
        """Wait until the reader has begun, and return the position after which it puts everything into the queue."""
        ...

    def read_after(self, position: int) -> AsyncIterator[Iterable[Frame]]:
        """Yield what is stored after a position, page by page."""
        ...

    def to_text(self, frame: Frame) -> bytes:
        """Return what the client is sent of this frame; nothing if it does not want it."""
        ...

    def to_heartbeat(self, position: int) -> bytes:
        """Make what is sent when nothing else was for a while."""
        ...

    async def find_end(self) -> int | None:
        """Return the position of the last frame where nothing is expected after it; `None` while something is."""
        ...

    async def read_closing(self) -> bytes:
        """Read what is sent last."""
        ...


class LiveStream:
    """Sends one client what its source has after a position, then each new frame as it comes."""

    def __init__(self, source: StreamSource) -> None:
        self.position = 0
        """Up to where the client was sent everything that it wants."""
        self._source = source
        self._has_passed_end = False

    async def follow(self, after: int | None) -> AsyncGenerator[bytes, None]:
        """Yield frames after a position, or from now on, and a heartbeat whenever the stream was quiet for a while.

        Ends with the source's closing frame, or without it if the client was too slow or the server stops.
        """
        source = self._source
        with source.join() as queue:
            # What the reader finds at its start it leaves in the store; only from then on does it fill the queue.
            start = await source.start()
            self.position = start if after is None else after
            if after is None:
                yield encode_message(start, "ready", {"position": start})
            while not queue.is_cut_off:
                async for page in source.read_after(self.position):
                    for text in join(self._pass(page)):
                        yield text
                        await asyncio.sleep(0)  # between two pieces it may turn out that the client has gone
                end = await source.find_end()
                if end is not None and end > self.position:
                    continue  # written since, and after the end nothing might come that wakes this
                if end is not None:
                    yield await source.read_closing()
                    return
                self._has_passed_end = False
                while (frames := await queue.take()) is not None:
                    if not frames:
                        yield source.to_heartbeat(self.position)
                        continue
                    for text in join(self._pass(frames)):
                        yield text
                    if frames[-1].position > self.position or self._has_passed_end:
                        break  # the store has what lies between, or says whether the stream is over

    def _pass(self, frames: Iterable[Frame]) -> Iterator[bytes]:
        """Yield the texts of the frames that come right after the position, up to a gap, and move it behind them."""
        for frame in frames:
            if frame.before > self.position:
                return
            if frame.position <= self.position:
                continue
            self.position = frame.position
            self._has_passed_end = self._has_passed_end or frame.is_end
            if text := self._source.to_text(frame):
                yield text


def encode_event(position: int, event: Event) -> bytes:
    """Encode an event for the wire.

    The line break is the only character that could end a field early, and JSON writes it as an escape.
    """
    return _encode(position, event.kind, encode_line(event))


def encode_brief(position: int, event: Event) -> bytes:
    """Encode for the wire that there is an event, without its content."""
    return _encode(position, event.kind, _to_line({"run_id": event.run_id, "seq": event.seq, "kind": event.kind}))


def encode_line(event: Event) -> str:
    """Encode an event as one line of JSON."""
    return _to_line(event.to_dict())


def _to_line(data: Mapping[str, object]) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def _encode(position: int, kind: str, line: str) -> bytes:
    name = "".join(character for character in kind if character.isprintable())
    return f"id: {position}\nevent: {name}\ndata: {line}\n\n".encode(errors="replace")


def encode_message(position: int, kind: str, data: Mapping[str, object]) -> bytes:
    """Encode what is no event of a journal for the wire."""
    return f"id: {position}\nevent: {kind}\ndata: {json.dumps(data)}\n\n".encode()
