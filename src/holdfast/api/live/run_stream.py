"""Live events of single runs: one reader for each run, however many people watch it."""

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence

from holdfast.api.live.client_queue import MAX_QUEUED_BYTES, ClientQueue
from holdfast.api.live.stream import Frame, LiveStream, encode_event
from holdfast.enums import RunStatus
from holdfast.persistence.db import Database
from holdfast.persistence.event_feed import read_pages_of_runs
from holdfast.persistence.listings import read_states
from holdfast.runtime.coalescer import Coalescer
from holdfast.runtime.events import Event
from holdfast.runtime.journal import Journal

_PAGES_AT_ONCE = 8  # in one turn at the database; others may want a connection, too


class RunStreams:
    """The streams of this server that follow one run each; those of the same run share a reader."""

    def __init__(self, db: Database, journal: Journal, *, max_queued: int, max_bytes: int = MAX_QUEUED_BYTES) -> None:
        self._journal = journal
        self._max_queued = max_queued
        self._max_bytes = max_bytes
        # However many clients ask at once, they share a query and so a connection of the database.
        self.read_state = Coalescer(functools.partial(read_states, db))
        self.read_page = Coalescer(functools.partial(_read_pages, db))
        self._readers: dict[str, _RunReader] = {}
        self._is_closed = False

    def count_clients(self) -> int:
        return sum(len(reader.queues) for reader in self._readers.values())

    def close(self) -> None:
        """End every stream where it stands; its client resumes elsewhere or later."""
        self._is_closed = True
        for reader in self._readers.values():
            reader.cut_off()

    def follow(self, run_id: str, after: int, *, idle_s: float) -> AsyncGenerator[bytes, None]:
        """Stream frames after `after`, a comment whenever `idle_s` passed without one, and `done` once the run is over.

        Ends without `done` if the client was too slow or the server stops.
        """
        return LiveStream(_RunSource(self, self._journal, run_id, idle_s)).follow(after)

    async def wait_closed(self) -> None:
        """Return when nothing of this uses the database any more."""
        await self.read_state.settle()
        await self.read_page.settle()

    @contextlib.contextmanager
    def join(self, run_id: str, idle_s: float) -> Iterator[tuple["_RunReader", ClientQueue[Frame]]]:
        """Give a new client a queue, and the run a reader if it has none; the last to leave ends it."""
        reader = self._readers.get(run_id)
        if reader is None or reader.task.done():
            reader = self._readers[run_id] = _RunReader(self._journal, run_id)
        queue: ClientQueue[Frame] = ClientQueue(self._max_queued, max_bytes=self._max_bytes, idle_s=idle_s)
        reader.queues.add(queue)
        if self._is_closed:
            queue.cut_off()
        try:
            yield reader, queue
        finally:
            queue.close()
            reader.queues.discard(queue)
            if not reader.queues:
                reader.task.cancel()
                if self._readers.get(run_id) is reader:
                    del self._readers[run_id]


class _RunReader:
    """Puts what is new in one run into the queues of its clients, from its making until it is cancelled."""

    def __init__(self, journal: Journal, run_id: str) -> None:
        self.queues: set[ClientQueue[Frame]] = set()
        self.start = 0
        self.has_begun = asyncio.Event()
        """Everything from now on comes into the queues: what the store does not hold by then will come."""
        self.over_at: int | None = None
        """The number at which the run was seen to be over, so that many clients ask the database once."""
        self._journal = journal
        self._run_id = run_id
        self.task = asyncio.create_task(self._read(), name=f"holdfast-tail-{run_id}")

    def cut_off(self) -> None:
        for queue in list(self.queues):
            queue.cut_off()

    async def _read(self) -> None:
        try:
            self.start = await self._journal.read_head(self._run_id)
            self.has_begun.set()
            following = self._journal.follow(self._run_id, self.start)
            async with contextlib.aclosing(following) as events:  # type: ignore[type-var]
                async for event in events:
                    frame = _to_frame(event.seq - 1, event)
                    for queue in list(self.queues):
                        queue.put(frame, len(frame.text))
        finally:
            # Without a reader nobody would hear of the next event: better to come back than to wait for ever.
            self.has_begun.set()
            self.cut_off()


class _RunSource:
    """One client of a run: positions are the numbers of its events, and it ends when the run is over."""

    def __init__(self, streams: RunStreams, journal: Journal, run_id: str, idle_s: float) -> None:
        self._streams = streams
        self._journal = journal
        self._run_id = run_id
        self._idle_s = idle_s

    @contextlib.contextmanager
    def join(self) -> Iterator[ClientQueue[Frame]]:
        with self._streams.join(self._run_id, self._idle_s) as (self._reader, queue):
            yield queue

    async def start(self) -> int:
        await self._reader.has_begun.wait()
        return self._reader.start

    async def read_after(self, position: int) -> AsyncIterator[Iterable[Frame]]:
        while page := await self._streams.read_page((self._run_id, position)):
            yield page
            position = page[-1].position

    def to_text(self, frame: Frame) -> bytes:
        return frame.text

    def to_heartbeat(self, position: int) -> bytes:
        return b": still here\n"  # no blank line behind it, which some clients take for the last event again

    async def find_end(self) -> int | None:
        """Return the number of the last event of a run that is over."""
        reader = self._reader
        if reader.over_at is not None and reader.over_at >= self._journal.heads.get(self._run_id, 0):
            return reader.over_at
        # The state first: a run that is opened again after this has a higher head by then.
        state = await self._streams.read_state(self._run_id)
        if state is None or not RunStatus(state).is_terminal:
            return None
        reader.over_at = await self._journal.read_head(self._run_id)
        return reader.over_at

    async def read_closing(self) -> bytes:
        state = await self._streams.read_state(self._run_id)
        return b"event: done\ndata: " + json.dumps({"run_id": self._run_id, "state": state}).encode() + b"\n\n"


async def _read_pages(db: Database, places: list[tuple[str, int]]) -> Sequence[list[Frame] | BaseException]:
    """Read and encode a page for each run and number, once for all who want the same."""
    distinct = list(dict.fromkeys(places))
    found: dict[tuple[str, int], list[Frame] | BaseException] = {}
    for start in range(0, len(distinct), _PAGES_AT_ONCE):
        some = distinct[start : start + _PAGES_AT_ONCE]
        for place, page in zip(some, await read_pages_of_runs(db, some), strict=True):
            found[place] = page if isinstance(page, BaseException) else list(_to_frames(place[1], page))
            await asyncio.sleep(0)  # a long journal must not hold the whole server up
    return [found[place] for place in places]


def _to_frames(before: int, events: Sequence[Event]) -> Iterator[Frame]:
    """Encode events, whose numbers may skip."""
    for event in events:
        yield _to_frame(before, event)
        before = event.seq


def _to_frame(before: int, event: Event) -> Frame:
    return Frame(before, event.seq, str(event.kind), encode_event(event.seq, event), event.is_terminal)
