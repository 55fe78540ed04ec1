"""Live events: one reader per run, however many people watch it.

Rule: a client is fed from the store up to where the reader stands and from the reader's queue after that; numbers
decide what comes next, so nothing is missed and nothing is told twice. A client that cannot keep up loses its place in
the queue, never an event: it comes back with the last number it has seen.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from holdfast.api.live.client_queue import ClientQueue, join
from holdfast.concurrency import shielded
from holdfast.enums import RunStatus
from holdfast.persistence.db import Database
from holdfast.persistence.listings import read_state
from holdfast.runtime.events import Event
from holdfast.runtime.journal import Journal


@dataclass(frozen=True)
class Frame:
    """One event as it goes over the wire."""

    seq: int
    text: bytes
    is_end: bool


@dataclass(eq=False)
class _Tail:
    listeners: set[ClientQueue[Frame]] = field(default_factory=set)
    reader: "asyncio.Task[None] | None" = None
    has_begun: asyncio.Event = field(default_factory=asyncio.Event)
    """The reader tells everything from now on: what the store does not hold by then will come."""
    over_at: int | None = None
    """The number at which the run was seen to be over, so that many clients ask the database once."""


class RunStreams:
    def __init__(self, db: Database, journal: Journal, *, max_queued: int) -> None:
        self._db = db
        self._journal = journal
        self._max_queued = max_queued
        self._tails: dict[str, _Tail] = {}
        self._is_closed = False

    def count_clients(self) -> int:
        return sum(len(tail.listeners) for tail in self._tails.values())

    def close(self) -> None:
        """End every stream where it stands; its client resumes elsewhere or later."""
        self._is_closed = True
        for tail in self._tails.values():
            for listener in tail.listeners:
                listener.cut_off()

    async def follow(self, run_id: str, after: int, *, idle_s: float) -> AsyncGenerator[bytes, None]:
        """Frames after `after`, a comment whenever `idle_s` passed without one, and `done` once the run is over.

        Ends without `done` if the client was too slow or the server stops.
        """
        with self._listening(run_id, idle_s) as (tail, listener):
            last = after
            await tail.has_begun.wait()
            while not (listener.is_cut_off or self._is_closed):
                stored = await self._journal.read(run_id, last)
                for text in join(to_text(event.seq, event) for event in stored):
                    yield text
                    await asyncio.sleep(0)  # between two pieces it may turn out that the client has gone
                last = stored[-1].seq if stored else last
                end = await self._find_end(tail, run_id)
                if end is not None and end > last:
                    continue  # written since, and after the end nothing might come that wakes this
                if end is not None:
                    yield b"event: done\ndata: " + await self._told_end(run_id) + b"\n\n"
                    return
                while (frames := await listener.take()) is not None:
                    following = list(_following(frames, last))
                    last = following[-1].seq if following else last
                    for text in join(frame.text for frame in following) if frames else (b": still here\n\n",):
                        yield text
                    if _is_left(frames, last) or (following and following[-1].is_end):
                        break  # the store has what lies between, or says whether the run is over

    @contextlib.contextmanager
    def _listening(self, run_id: str, idle_s: float) -> Iterator[tuple[_Tail, ClientQueue[Frame]]]:
        tail = self._tails.setdefault(run_id, _Tail())
        listener: ClientQueue[Frame] = ClientQueue(self._max_queued, idle_s=idle_s)
        tail.listeners.add(listener)
        if tail.reader is None:
            tail.reader = asyncio.create_task(self._read(run_id, tail), name=f"holdfast-tail-{run_id}")
        try:
            yield tail, listener
        finally:
            listener.close()
            tail.listeners.discard(listener)
            if not tail.listeners:
                tail.reader.cancel()
                if self._tails.get(run_id) is tail:
                    del self._tails[run_id]

    async def _read(self, run_id: str, tail: _Tail) -> None:
        try:
            head = await self._journal.read_head(run_id)
            tail.has_begun.set()
            async with contextlib.aclosing(self._journal.follow(run_id, head)) as events:  # type: ignore[type-var]
                async for event in events:
                    frame = to_frame(event)
                    for listener in list(tail.listeners):
                        listener.tell(frame)
        finally:
            # Without a reader nobody would hear of the next event: better to come back than to wait for ever.
            tail.has_begun.set()
            for listener in list(tail.listeners):
                listener.cut_off()

    async def _find_end(self, tail: _Tail, run_id: str) -> int | None:
        """The number of the last event of a run that is over."""
        if tail.over_at is not None and tail.over_at >= self._journal.known_head(run_id):
            return tail.over_at
        # The state first: a run that is opened again after this has a higher head by then.
        state = await shielded(read_state(self._db, run_id))
        if state is None or not RunStatus(state).is_terminal:
            return None
        tail.over_at = await self._journal.read_head(run_id)
        return tail.over_at

    async def _told_end(self, run_id: str) -> bytes:
        return json.dumps({"run_id": run_id, "state": await shielded(read_state(self._db, run_id))}).encode()


def _following(frames: Iterable[Frame], last: int) -> Iterator[Frame]:
    """Those that come right after what was told, up to a gap or the run's end."""
    for frame in frames:
        if frame.seq > last + 1:
            return
        if frame.seq == last + 1:
            last = frame.seq
            yield frame
            if frame.is_end:
                return


def _is_left(frames: Sequence[Frame], last: int) -> bool:
    return bool(frames) and frames[-1].seq > last


def to_frame(event: Event) -> Frame:
    return Frame(event.seq, to_text(event.seq, event), event.is_terminal)


def to_text(number: int, event: Event) -> bytes:
    """The line break is the only character that could end a field early, and JSON writes it as an escape."""
    data = json.dumps(event.to_dict(), ensure_ascii=False, separators=(",", ":"))
    kind = "".join(character for character in event.kind if character.isprintable())
    return f"id: {number}\nevent: {kind}\ndata: {data}\n\n".encode(errors="replace")
