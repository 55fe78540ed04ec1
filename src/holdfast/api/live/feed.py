"""Live events of all runs: one reader, however many people watch, and positions that hold over restarts and servers.

Rule: while nobody watches nothing is read or written here, and no append ever waits for it.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from holdfast.api.live.client_queue import MAX_QUEUED_BYTES, ClientQueue
from holdfast.api.live.flow_positions import FlowPositions
from holdfast.api.live.stream import Frame, LiveStream, encode_brief, encode_event, encode_message
from holdfast.concurrency import shielded
from holdfast.errors import JournalCorrupt, LastEventIdInvalid
from holdfast.persistence.db import Database
from holdfast.persistence.event_feed import (
    EventRange,
    find_moved,
    give_positions,
    is_turn,
    list_active,
    needs_positions,
    read_events,
    read_position,
    read_stretches,
)
from holdfast.persistence.statements import to_time_text
from holdfast.runtime.checkpoint.base import Append, AppendResult, JournalStore
from holdfast.runtime.events import Event
from holdfast.runtime.journal import Journal
from holdfast.runtime.stores import open_store
from holdfast.runtime.threads import Watcher

_LOOK_AT_ALL_EVERY_S = 5.0  # for what is written to runs that are over; all else is noticed at once
_NEW = timedelta(minutes=2)  # how far the clocks of two servers may be apart without a run being noticed late
_PAGE = 50  # a client that reads slowly holds so many while they are sent
Events = Mapping[str, Mapping[int, Event]]
_log = logging.getLogger("holdfast.api")


@dataclass(frozen=True)
class EventFilter:
    """What a client wants to hear of: kinds, or families of them by their first word; nothing named is everything.

    With `in_full` it wants the events of these runs whole; of all others only that they happened, and no text.
    """

    kinds: frozenset[str] = frozenset()
    has_text: bool = True
    in_full: frozenset[str] | None = None

    def to_text(self, frame: Frame) -> bytes:
        """Return what a client with this filter is sent of a frame; nothing if it does not want it."""
        family = frame.kind.partition(".")[0]
        is_brief = self.in_full is not None and bool(frame.brief) and frame.run_id not in self.in_full
        if family == "text" and (is_brief or not self.has_text):
            return b""
        if self.kinds and not {frame.kind, family} & self.kinds:
            return b""
        return frame.brief if is_brief else frame.text


class Feed:
    """The streams of this server that follow all runs; they share a reader."""

    def __init__(self, db: Database, journal: Journal, *, max_queued: int, max_bytes: int = MAX_QUEUED_BYTES) -> None:
        self._db = db
        self._journal = journal
        self._max_queued = max_queued
        self._max_bytes = max_bytes
        self._queues: set[ClientQueue[Frame]] = set()
        self._reader: _FeedReader | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def count_clients(self) -> int:
        return len(self._queues)

    def close(self) -> None:
        """End every stream where it stands; its client resumes elsewhere or later."""
        self._is_closed = True
        for queue in self._queues:
            queue.cut_off()

    async def wait_closed(self) -> None:
        """Return when nothing of this uses the database any more."""
        if self._reader is not None:
            self._stop_reader(self._reader)
        if self._ending:
            await asyncio.wait(self._ending)

    def note_commit(self, batch: Sequence[Append], results: Sequence[AppendResult], _took_s: float) -> None:
        """Take note of how far a commit of this process has moved which runs."""
        if self._reader is not None:
            pairs = zip(batch, results, strict=True)
            written = [(append, seqs[-1]) for append, seqs in pairs if isinstance(seqs, list) and seqs]
            self._reader.note(
                {append.run_id: head for append, head in written},
                {append.run_id for append, _ in written if any(is_turn(event.kind) for event in append.events)},
            )

    async def check(self, after: int) -> None:
        """Check that a position is one of this feed. Raises `LastEventIdInvalid` if it lies ahead of every event."""
        if after > await read_position(self._db):
            raise LastEventIdInvalid("Last-Event-ID lies ahead of every event of this server.")

    def follow(self, after: int | None, events: EventFilter, *, idle_s: float) -> AsyncGenerator[bytes, None]:
        """Stream frames after a position, or from now on; a quiet stream says where it stands every `idle_s`.

        Ends only if the client was too slow or the server stops.
        """
        return LiveStream(_FeedSource(self, self._db, events, idle_s)).follow(after)

    @contextlib.contextmanager
    def join(self, idle_s: float) -> Iterator[tuple["_FeedReader", ClientQueue[Frame]]]:
        """Give a new client a queue, and the feed a reader if it has none; the last to leave ends it."""
        queue: ClientQueue[Frame] = ClientQueue(self._max_queued, max_bytes=self._max_bytes, idle_s=idle_s)
        self._queues.add(queue)
        if self._is_closed:
            queue.cut_off()
        if self._reader is None or self._reader.task.done():
            self._reader = _FeedReader(self._db, self._journal, self._queues)
        reader = self._reader
        try:
            yield reader, queue
        finally:
            queue.close()
            self._queues.discard(queue)
            if not self._queues and self._reader is reader:
                self._stop_reader(reader)

    def _stop_reader(self, reader: "_FeedReader") -> None:
        self._reader = None
        self._ending.add(reader.task)
        reader.task.add_done_callback(self._ending.discard)
        reader.stop()


class _FeedSource:
    """One client of the feed: it is sent what its filter makes of the frames, and never an end."""

    def __init__(self, feed: Feed, db: Database, events: EventFilter, idle_s: float) -> None:
        self.to_text = events.to_text
        self._feed = feed
        self._db = db
        self._idle_s = idle_s

    @contextlib.contextmanager
    def join(self) -> Iterator[ClientQueue[Frame]]:
        with self._feed.join(self._idle_s) as (self._reader, queue):
            yield queue

    async def start(self) -> int:
        return await self._reader.get_start()

    def read_after(self, position: int) -> AsyncIterator[list[Frame]]:
        return read_pages(self._db, position)

    def to_heartbeat(self, position: int) -> bytes:
        # A number without data tells nobody anything, but it is what a client comes back with.
        return f"id: {position}\n: still here\n\n".encode()

    async def find_end(self) -> int | None:
        return None

    async def read_closing(self) -> bytes:
        return b""


class _FeedReader:
    """Gives positions to what is new and puts it into the queues, from its making until it is stopped."""

    def __init__(self, db: Database, journal: Journal, queues: set[ClientQueue[Frame]]) -> None:
        self._db = db
        self._journal = journal
        self._queues = queues
        self._heads: dict[str, int] = {}
        """What this process has written since the last look."""
        self._turned: set[str] = set()
        """Which of these runs have turned by it, if they are flows."""
        self._settled: dict[str, int] = {}
        """Up to which number active runs surely have positions."""
        self._flows = FlowPositions(db, journal)
        self._woken = asyncio.Event()
        self._has_news = False
        self._looked_at_all_at = 0.0
        self._start: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._is_stopped = False
        self.task = asyncio.create_task(self._run(), name="holdfast-feed")

    def stop(self) -> None:
        """End soon, and not in the middle of anything."""
        self._is_stopped = True
        self._woken.set()

    async def get_start(self) -> int:
        """Return the position behind everything that had happened when the reader began."""
        return await asyncio.shield(self._start)

    def note(self, heads: Mapping[str, int], turned: Set[str]) -> None:
        self._heads.update(heads)
        self._turned |= turned
        self._woken.set()

    def _note_change(self, _heads: Mapping[str, int], _is_change: bool) -> None:
        self._has_news = True
        self._flows.note_news()
        self._woken.set()

    async def _run(self) -> None:
        store: JournalStore | None = None
        watcher: Watcher | None = None
        try:
            # A store of its own: to notice what other processes commit is one listener's per store.
            store = await asyncio.to_thread(open_store, self._db.address)
            watcher = Watcher(store, asyncio.get_running_loop(), list, self._note_change)
            await self._look_at_all()
            last = await read_position(self._db)
            self._start.set_result(last)
            while not self._is_stopped:
                last = await self._pass_on(last)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(_LOOK_AT_ALL_EVERY_S, self._flows.wait_s())):
                        await self._woken.wait()
                self._woken.clear()
                await self._look(store)
        except Exception as error:
            _log.warning("The events of all runs cannot be followed for now", exc_info=True)
            if not self._start.done():
                self._start.set_exception(error)
                self._start.exception()  # whoever waits is told; if nobody does, nobody need be
            # Without a reader nobody would hear of the next event: better to come back than to wait for ever.
            for queue in list(self._queues):
                queue.cut_off()
        finally:
            self._start.cancel()
            if watcher is not None:
                watcher.stop()
            if store is not None:
                await asyncio.to_thread(store.close)  # the watcher may be inside it for a moment

    async def _look(self, store: JournalStore) -> None:
        """Give positions to what was heard of: our own commits as they are, others' by looking at active runs."""
        if not needs_positions(self._db):
            return
        if time.monotonic() - self._looked_at_all_at > _LOOK_AT_ALL_EVERY_S:
            await self._look_at_all()
        heads, self._heads = self._heads, {}
        turned, self._turned = self._turned, set()
        await self._flows.give({run_id: heads[run_id] for run_id in turned})
        await self._flows.look()
        if self._has_news:
            self._has_news = False
            active = await list_active(self._db, created_since=to_time_text(datetime.now(UTC) - _NEW))
            # Those that were active before may have ended since, with events that are still to be told.
            looked_at = active | self._settled.keys()
            heads = {**await asyncio.to_thread(store.read_heads, sorted(looked_at)), **heads}
            self._settled = {run_id: seq for run_id, seq in self._settled.items() if run_id in active}
        moved = {
            run_id: head
            for run_id, head in heads.items()
            if head > self._settled.get(run_id, 0) and run_id not in self._flows
        }
        if moved:
            await give_positions(self._journal, moved)
            self._settled.update(moved)

    async def _look_at_all(self) -> None:
        self._looked_at_all_at = time.monotonic()
        if not needs_positions(self._db):
            return
        moved = await find_moved(self._db)
        if moved:
            await give_positions(self._journal, moved)
        await self._flows.look_far_back()

    async def _pass_on(self, after: int) -> int:
        async for page in read_pages(self._db, after):
            for frame in page:
                after = frame.position
                for queue in list(self._queues):
                    queue.put(frame, len(frame.text))
        return after


async def read_pages(db: Database, after: int) -> AsyncIterator[list[Frame]]:
    """Yield everything that has a position after this one, as stored now."""
    while stretches := cut(await shielded(read_stretches(db, after, limit=_PAGE)), after, _PAGE):
        try:
            events = await shielded(read_events(db, stretches))
        except JournalCorrupt:
            events = None
        page: list[Frame] = []
        for stretch in stretches:
            page += to_frames(stretch, events, after) if events is not None else await _read_alone(db, stretch, after)
            after = page[-1].position if page else after
        yield page


def cut(stretches: Sequence[EventRange], after: int, limit: int) -> list[EventRange]:
    """Return the first of these stretches after a position, up to so many events; the last one may be cut short."""
    found: list[EventRange] = []
    for stretch in stretches:
        if not stretch.run_id:  # no run's: a place to go on from, however far
            found.append(stretch)
            continue
        first = max(stretch.first_seq, stretch.last_seq - (stretch.position - after) + 1)
        last = min(stretch.last_seq, first + limit - 1)
        found.append(EventRange(stretch.position_of(last), stretch.run_id, first, last))
        limit -= last - first + 1
        if limit <= 0:
            break
    return found


def to_frames(stretch: EventRange, events: Events, after: int) -> Iterator[Frame]:
    of_run = events.get(stretch.run_id, {})
    numbers = range(stretch.first_seq, stretch.last_seq + 1)
    for seq in numbers if len(numbers) <= len(of_run) else filter(numbers.__contains__, of_run):  # numbers may skip
        event, position = of_run.get(seq), stretch.position_of(seq)
        if event is not None and position > after:
            text, brief = encode_event(position, event), encode_brief(position, event)
            yield Frame(after, position, str(event.kind), text, run_id=stretch.run_id, brief=brief)
            after = position
    if after < stretch.position:  # no run's, or deleted since: a place to go on from, and nothing to tell
        yield Frame(after, stretch.position, "", b"")


async def _read_alone(db: Database, stretch: EventRange, after: int) -> list[Frame]:
    """Read one run's events by themselves; if they are damaged, a frame says so instead of them.

    One damaged run must not keep everyone from the others.
    """
    try:
        return list(to_frames(stretch, await shielded(read_events(db, [stretch])), after))
    except JournalCorrupt as error:
        details = {"run_id": stretch.run_id, "code": error.code, "detail": error.message}
        kind = "run.unreadable"
        return [Frame(after, stretch.position, kind, encode_message(stretch.position, kind, details))]
