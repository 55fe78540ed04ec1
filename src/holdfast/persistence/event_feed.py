"""One order of events over all runs, for those who follow all of them at once.

Rule: an append knows nothing of it. On SQLite commits happen one after the other, and the position of an event's row is
its place. On Postgres they do not: there whoever follows gives positions to what is new, as stretches of one run's
events, in a transaction that only one process can be in at a time. Either way positions become visible in their order:
a reader who has read up to one has missed nothing before it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import bindparam, func, or_, select, text
from sqlalchemy.orm import Session

from holdfast.enums import OPEN_STATES
from holdfast.errors import HoldfastError, JournalCorrupt
from holdfast.persistence.db import Database
from holdfast.persistence.models import FeedRow, RunEventRow, RunRow
from holdfast.runtime.checkpoint.base import Statement
from holdfast.runtime.checkpoint.blobs import MARK, digests_in
from holdfast.runtime.checkpoint.hash_chain import decode, genesis
from holdfast.runtime.events import Event
from holdfast.runtime.journal import Journal
from holdfast.runtime.jsondata import from_json

FEED_JOURNAL = "holdfast-feed"  # it has no events; whoever appends to it holds its lock until the commit
_PAGE_EVENTS = 200
_PAGE_BYTES = 256 * 1024  # thousands of clients may each hold one that they do not read
_MARK = f'"{MARK}"'.encode()
_FLOW_TURNS = ("run.", "human.")  # the kinds that are told of flows, which may write thousands of others a second
_LAST_POSITIONS = 10_000  # among so many the last one of a flow is looked for; else all flows are
_MOST_AT_ONCE = 1000  # runs per transaction; it may be shared with appends that should not wait for long


@dataclass(frozen=True)
class EventRange:
    """Consecutive events of one run; `position` is that of the last one. Without a run there is nothing to tell."""

    position: int
    run_id: str
    first_seq: int
    last_seq: int

    def position_of(self, seq: int) -> int:
        return self.position - (self.last_seq - seq)


def needs_positions(db: Database) -> bool:
    """Return true if events have no position until `give_positions` gives them one."""
    return db.path is None


async def give_positions(journal: Journal, heads: Mapping[str, int]) -> None:
    """Make sure that the events of these runs up to these numbers have positions; may happen twice, anywhere."""
    moved = list(heads.items())
    for start in range(0, len(moved), _MOST_AT_ONCE):
        moves = Statement(_GIVE, {"moves": json.dumps(moved[start : start + _MOST_AT_ONCE])}, expect=None)
        # crash: events without positions are found by the next look, of whichever process.
        await journal.append(FEED_JOURNAL, [], rows=[moves])


_GIVE = """
INSERT INTO feed (position, run_id, first_seq, last_seq)
SELECT (SELECT COALESCE(MAX(position), 0) FROM feed) + SUM(n.head - n.seen) OVER (ORDER BY n.place),
    n.run_id, n.seen + 1, n.head
FROM (
    SELECT m.run_id, m.head, m.place,
        COALESCE((SELECT MAX(f.last_seq) FROM feed AS f WHERE f.run_id = m.run_id), 0) AS seen
    FROM (
        SELECT e.value->>0 AS run_id, CAST(e.value->>1 AS bigint) AS head, e.place
        FROM json_array_elements(CAST(:moves AS json)) WITH ORDINALITY AS e (value, place)
    ) AS m WHERE EXISTS (SELECT 1 FROM runs AS r WHERE r.id = m.run_id)
) AS n
WHERE n.head > n.seen
"""


async def find_moved(db: Database) -> dict[str, int]:
    """Find every run with events that have no position yet, and its last number: a look at all runs."""
    query = text(
        "SELECT r.id, j.head FROM runs AS r JOIN journal_runs AS j ON j.run_id = r.id "
        "WHERE j.head > COALESCE((SELECT MAX(f.last_seq) FROM feed AS f WHERE f.run_id = r.id), 0) "
        "ORDER BY r.created_at, r.id"
    )
    async with db.session() as session:
        return {run_id: int(head) for run_id, head in await session.execute(query)}


async def list_active(db: Database, *, created_since: str) -> set[str]:
    """List the runs that may be written to at any moment, and the new ones, which may be over already."""
    query = select(RunRow.id).where(or_(RunRow.state.in_(OPEN_STATES), RunRow.created_at > created_since))
    async with db.session() as session:
        return set(await session.scalars(query))


async def read_position(db: Database) -> int:
    """Read the last position there is, 0 if there is none."""
    query = select(func.max(FeedRow.position)) if needs_positions(db) else text("SELECT MAX(position) FROM events")
    async with db.session() as session:
        return int((await session.execute(query)).scalar() or 0)


async def read_stretches(db: Database, after: int, *, limit: int) -> list[EventRange]:
    """Read the stretches of events after a position; the first one may begin before it."""
    async with db.session() as session:
        if not needs_positions(db):
            return to_stretches((await session.execute(_ROWS, {"after": after, "limit": limit})).all())
        query = select(FeedRow).where(FeedRow.position > after).order_by(FeedRow.position).limit(limit)
        rows = await session.scalars(query)
        return [EventRange(row.position, row.run_id, row.first_seq, row.last_seq) for row in rows]


# Of a flow only some kinds are told.
_ROWS = text(
    "SELECT e.position, CASE WHEN EXISTS (SELECT 1 FROM runs AS r WHERE r.id = e.run_id) THEN e.run_id "
    "WHEN (substr(e.type, 1, 4) = 'run.' OR substr(e.type, 1, 6) = 'human.') "
    "AND EXISTS (SELECT 1 FROM flow_runs AS r WHERE r.run_id = e.run_id) THEN e.run_id ELSE '' END, "
    "e.seq FROM events AS e WHERE e.position > :after ORDER BY e.position LIMIT :limit"
)


def to_stretches(rows: Iterable[Sequence[object]]) -> list[EventRange]:
    """Put together what lies together; what is no run's is put together too, so that it can be passed over."""
    found: list[EventRange] = []
    for position, run_id, seq in rows:
        assert isinstance(position, int) and isinstance(run_id, str) and isinstance(seq, int)  # noqa: PT018
        last = found[-1] if found else None
        if last is not None and last.run_id == run_id and run_id == "":
            found[-1] = EventRange(position, "", 0, 0)
        elif last is not None and (last.run_id, last.last_seq + 1, last.position + 1) == (run_id, seq, position):
            found[-1] = EventRange(position, run_id, last.first_seq, seq)
        else:
            found.append(EventRange(position, run_id, seq, seq))
    return found


async def read_events(db: Database, stretches: Sequence[EventRange]) -> dict[str, dict[int, Event]]:
    """Read the events of consecutive stretches, by run and number; none of a run that was deleted since.

    Raises `JournalCorrupt` if one of the runs is damaged there.
    """
    ranges: dict[str, list[range]] = {}
    for stretch in stretches:
        of_run = ranges.setdefault(stretch.run_id, [])
        if of_run and of_run[-1].stop == stretch.first_seq:
            of_run[-1] = range(of_run[-1].start, stretch.last_seq + 1)
        else:
            of_run.append(range(stretch.first_seq, stretch.last_seq + 1))
    ranges.pop("", None)

    def read(session: Session) -> dict[str, dict[int, Event]]:
        return {
            run_id: {
                event.seq: event
                for numbers in of_run
                for event in _read_events(session, run_id, numbers.start, numbers.stop - 1)
            }
            for run_id, of_run in ranges.items()
        }

    async with db.session() as session:
        return await session.run_sync(read)


async def read_pages_of_runs(db: Database, places: Sequence[tuple[str, int]]) -> list[list[Event] | HoldfastError]:
    """Read for each run and number the events that come right after it: a page, empty only if there are none.

    A page has a bounded size, but for a single event that is bigger. A damaged run has its error in its place.
    """

    def read(session: Session) -> list[list[Event] | HoldfastError]:
        pages: list[list[Event] | HoldfastError] = []
        for run_id, after in places:
            try:
                pages.append(_read_events(session, run_id, after + 1, None, limit=_PAGE_EVENTS))
            except JournalCorrupt as error:
                pages.append(error)
        return pages

    async with db.session() as session:
        return await session.run_sync(read)


def _read_events(
    session: Session, run_id: str, first: int, last: int | None, *, limit: int | None = None
) -> list[Event]:
    of_run = RunEventRow.run_id == run_id
    before = session.scalar(
        select(RunEventRow.hash).where(of_run, RunEventRow.seq < first).order_by(RunEventRow.seq.desc()).limit(1)
    )
    query = select(RunEventRow.seq, RunEventRow.type, RunEventRow.body, RunEventRow.hash)
    query = query.where(of_run, RunEventRow.seq >= first).order_by(RunEventRow.seq)
    if last is not None:
        query = query.where(RunEventRow.seq <= last)
    rows = [
        (seq, kind, body.encode(), bytes(chained)) for seq, kind, body, chained in session.execute(query.limit(limit))
    ]
    events, _ = decode(
        run_id,
        rows if limit is None else rows[: _count_fitting(session, rows)],
        genesis(run_id) if before is None else bytes(before),
        lambda digests: _read_blobs(session, sorted(digests)),
    )
    return events


def _count_fitting(session: Session, rows: Sequence[tuple[int, str, bytes, bytes]]) -> int:
    """Count the rows that make a page of the size it may have, with the big values they refer to; one at least."""
    marked = {seq: digests_in([from_json(body)]) for seq, _, body, _ in rows if _MARK in body}
    sizes = _read_sizes(session, sorted({digest for digests in marked.values() for digest in digests}))
    size = 0
    for number, (seq, _, body, _) in enumerate(rows):
        size += len(body) + sum(sizes.get(digest, 0) for digest in marked.get(seq, ()))
        if size > _PAGE_BYTES:
            return max(1, number)
    return len(rows)


def _read_sizes(session: Session, digests: Sequence[str]) -> dict[str, int]:
    if not digests:
        return {}
    query = text("SELECT digest, length(body) FROM blobs WHERE digest IN :digests").bindparams(
        bindparam("digests", expanding=True)
    )
    return {digest: int(size) for digest, size in session.execute(query, {"digests": list(digests)})}


def _read_blobs(session: Session, digests: Sequence[str]) -> dict[str, bytes]:
    query = text("SELECT digest, body FROM blobs WHERE digest IN :digests").bindparams(
        bindparam("digests", expanding=True)
    )
    return {digest: bytes(body) for digest, body in session.execute(query, {"digests": list(digests)})}


# -- flows: where they stand and what they ask, not their steps --------------------------------------------------------


class FlowMove(NamedTuple):
    """A flow's events with numbers above `after` and up to `head`, among which there may be some to tell."""

    after: int
    head: int


def is_turn(kind: str) -> bool:
    """Return true for a kind that says where a flow stands, or what it asks."""
    return kind.startswith(_FLOW_TURNS)


async def give_flow_positions(journal: Journal, moves: Mapping[str, FlowMove]) -> None:
    """Make sure that what is to be told of these flows has positions; may happen twice, anywhere."""
    rows = [(run_id, move.after, move.head) for run_id, move in moves.items()]
    for start in range(0, len(rows), _MOST_AT_ONCE):
        statement = Statement(_GIVE_TO_FLOWS, {"moves": json.dumps(rows[start : start + _MOST_AT_ONCE])}, expect=None)
        # crash: events without positions are found by the next look, of whichever process.
        await journal.append(FEED_JOURNAL, [], rows=[statement])


_GIVE_TO_FLOWS = """
INSERT INTO feed (position, run_id, first_seq, last_seq)
SELECT (SELECT COALESCE(MAX(position), 0) FROM feed) + ROW_NUMBER() OVER (ORDER BY n.place, e.seq),
    n.run_id, e.seq, e.seq
FROM (
    SELECT m.run_id, m.after, m.head, m.place,
        COALESCE((SELECT MAX(f.last_seq) FROM feed AS f WHERE f.run_id = m.run_id), 0) AS seen
    FROM (
        SELECT e.value->>0 AS run_id, CAST(e.value->>1 AS bigint) AS after, CAST(e.value->>2 AS bigint) AS head, e.place
        FROM json_array_elements(CAST(:moves AS json)) WITH ORDINALITY AS e (value, place)
    ) AS m WHERE EXISTS (SELECT 1 FROM flow_runs AS r WHERE r.run_id = m.run_id)
) AS n JOIN events AS e ON e.run_id = n.run_id
WHERE e.seq > GREATEST(n.seen, n.after) AND e.seq <= n.head
    AND (substr(e.type, 1, 4) = 'run.' OR substr(e.type, 1, 6) = 'human.')
"""


async def find_moved_flows(db: Database, since: float) -> dict[str, int]:
    """Find the flows whose rows have changed since, and those that are driven now, with their last numbers."""
    query = text(
        "SELECT r.run_id, j.head FROM flow_runs AS r JOIN journal_runs AS j ON j.run_id = r.run_id "
        "WHERE r.updated_at > :since OR (r.status = 'running' AND r.wake_at IS NULL AND r.waits_for IS NULL) "
        "ORDER BY r.updated_at, r.run_id"
    )
    async with db.session() as session:
        return {run_id: int(head) for run_id, head in await session.execute(query, {"since": since})}


async def read_last_flow_time(db: Database) -> float:
    """Read when the event of a flow happened that got the last position; 0 if nobody knows."""
    query = text(
        "SELECT e.body FROM (SELECT position, run_id, last_seq FROM feed ORDER BY position DESC LIMIT :limit) AS f "
        "JOIN flow_runs AS r ON r.run_id = f.run_id "
        "JOIN events AS e ON e.run_id = f.run_id AND e.seq = f.last_seq ORDER BY f.position DESC LIMIT 1"
    )
    async with db.session() as session:
        body = (await session.execute(query, {"limit": _LAST_POSITIONS})).scalar()
    content = from_json(body.encode()) if isinstance(body, str) else None
    at = content.get("ts") if isinstance(content, dict) else None
    return float(at) if isinstance(at, int | float) else 0.0
