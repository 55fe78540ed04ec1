"""Which due run comes next: fair between users, and no more at a time than the limits that hold for all processes.

Rule: a place is nothing that is handed out and given back. It is taken by every run that a living process drives, so
that no crash can leave one taken; who wants to start one counts them under a lock.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import PurePath
from typing import Any

from sqlalchemy import TextClause, bindparam, text
from sqlalchemy.ext.asyncio import AsyncSession

from holdfast.errors import TimePassed
from holdfast.persistence.db import Database
from holdfast.persistence.statements import now_text
from holdfast.runtime.checkpoint import process_owner
from holdfast.runtime.checkpoint.base import Claim
from holdfast.runtime.checkpoint.run_lock import find_held, lock_folder

RUN_LIMITS = ("runs", "workflow", "repository", "user")
DAY_LIMIT, PROVIDER_LIMIT = "day", "provider"
_CLOCKS_DIFFER = timedelta(minutes=1)
_LOCK = 0x706C616365  # "place"


@dataclass(frozen=True)
class QueuedRun:
    """A run as far as it matters for its turn."""

    run_id: str
    user: str = ""
    workflow: str = ""
    repo_path: str = ""
    priority: int = 0
    created_at: str = ""

    def scope(self, kind: str) -> str:
        """Return the name under which a kind of limit counts it."""
        return {"workflow": self.workflow, "repository": self.repo_path, "user": self.user}.get(kind, "")

    @property
    def rank(self) -> tuple[int, str, str]:
        """Where it stands among its user's runs: the higher priority first, then the older one."""
        return -self.priority, self.created_at, self.run_id


def order_fairly(candidates: Iterable[QueuedRun], last_served: Mapping[str, str]) -> list[QueuedRun]:
    """Order runs so that users take turns, whoever was served longest ago first.

    `last_served` is when a run of a user was last begun. Between two users one run of each is among the next two,
    whatever the other has queued; a priority counts among the runs of one user.
    """
    queues: dict[str, deque[QueuedRun]] = defaultdict(deque)
    for candidate in sorted(candidates, key=lambda each: each.rank):
        queues[candidate.user].append(candidate)
    users = deque(sorted(queues, key=lambda user: (last_served.get(user, ""), queues[user][0].rank)))
    ordered: list[QueuedRun] = []
    while users:
        user = users.popleft()
        ordered.append(queues[user].popleft())
        if queues[user]:
            users.append(user)
    return ordered


@dataclass
class Places:
    """How many runs the limits allow, and how many there are."""

    limits: Mapping[tuple[str, str], int]
    """By kind and name."""
    taken: Counter[tuple[str, str]] = field(default_factory=Counter)

    def take(self, run: QueuedRun) -> None:
        """Count a run that is driven, or is about to be."""
        self.taken.update((kind, run.scope(kind)) for kind in RUN_LIMITS)

    def describe_full(self, run: QueuedRun) -> str | None:
        """Say which limit has no place for a run; `None` if all have."""
        for kind in RUN_LIMITS:
            name = run.scope(kind)
            limit, taken = self.limits.get((kind, name)), self.taken[kind, name]
            if limit is not None and taken >= limit:
                of = {"runs": "", "repository": f" of repository {PurePath(name).name}"}.get(kind, f" of {kind} {name}")
                return f"Waits for a place{of}, {taken} of {limit} are taken."
        return None


def clock_of(db: Database) -> TextClause:
    """Return the time as rows hold it, in SQL: by the clock of the database's server, where it has one."""
    if db.path is not None:
        return text("strftime('%Y-%m-%dT%H:%M:%fZ', 'now')")
    return text(r"""to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24\:MI\:SS.MS"Z"')""")


async def read_clock(db: Database) -> str:
    """Read the time as rows hold it, by the clock that timers and schedules go by."""
    async with db.session() as session:
        return str(await session.scalar(text(f"SELECT {clock_of(db).text}")))


async def check_not_passed(db: Database, due_at: str) -> None:
    """Raise `TimePassed` for a time that is over by that clock; whoever wrote it down may have another one."""
    earliest = datetime.fromisoformat(await read_clock(db)) - _CLOCKS_DIFFER
    if datetime.fromisoformat(due_at) < earliest:
        raise TimePassed(f"{due_at} is over.")


async def read_limits(session: AsyncSession, kinds: Sequence[str]) -> dict[tuple[str, str], int]:
    query = text("SELECT kind, name, amount FROM limits WHERE kind IN :kinds").bindparams(
        bindparam("kinds", expanding=True)
    )
    rows = await session.execute(query, {"kinds": list(kinds)})
    return {(row.kind, row.name): int(row.amount) for row in rows}


async def read_day_limit(db: Database, own_usd: float | None) -> tuple[float | None, bool]:
    """Read what may be spent in a day, in dollars, and whether that was set for all processes.

    A limit for all counts, whatever this process's own setting says.
    """
    async with db.session() as session:
        amount = (await read_limits(session, (DAY_LIMIT,))).get((DAY_LIMIT, ""))
    return (own_usd, False) if amount is None else (amount / 1_000_000, True)


_DRIVEN = """
SELECT r.id, r.workflow, r.repo_path, r.started_by, j.owner FROM runs AS r JOIN journal_runs AS j ON j.run_id = r.id
WHERE (r.state = 'running' OR (r.admitted_epoch > 0 AND r.admitted_epoch = j.epoch)) AND r.id <> :but
"""
_LEASED = " AND j.owner IS NOT NULL AND j.lease_until > clock_timestamp()"


async def count_places(db: Database, session: AsyncSession, *, but: str = "") -> Places:
    """Count what every living process drives, one run left out; nothing is counted where there is no limit."""
    places = Places(await read_limits(session, RUN_LIMITS))
    if places.limits:
        rows = list(await session.execute(text(_DRIVEN + ("" if db.path else _LEASED)), {"but": but}))
        is_living = _find_living(db, rows)
        for row in rows:
            if is_living(row):
                places.take(QueuedRun(row.id, row.started_by, row.workflow, row.repo_path))
    return places


def _find_living(db: Database, rows: Sequence[Any]) -> Callable[[Any], bool]:
    if db.path is None:
        return lambda row: not process_owner.is_dead_text(row.owner)
    held = find_held(lock_folder(db.path), [row.id for row in rows])
    return lambda row: row.id in held


async def admit(db: Database, claim: Claim) -> str | None:
    """Take a place for a claimed run; return what it waits for instead if a limit has none.

    Exact over processes: counting and taking are one transaction, and one such transaction is made at a time. The place
    is the claim's, and gone with it.
    """
    async with db.session() as session:
        if not await read_limits(session, RUN_LIMITS):
            return None
        await session.rollback()
        # On SQLite the write itself keeps others out until the commit.
        if db.path is None:
            await session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        params = {"id": claim.run_id, "epoch": claim.epoch}
        await session.execute(text("UPDATE runs SET admitted_epoch = 0 WHERE id = :id"), params)
        query = text("SELECT id, workflow, repo_path, started_by FROM runs WHERE id = :id")
        run = (await session.execute(query, params)).one()
        places = await count_places(db, session, but=claim.run_id)
        waits_for = places.describe_full(QueuedRun(run.id, run.started_by, run.workflow, run.repo_path))
        if waits_for is None:
            taken = text("UPDATE runs SET admitted_epoch = :epoch, waits_for = NULL WHERE id = :id")
            await session.execute(taken, params)
        else:
            waits = text("UPDATE runs SET waits_for = :waits_for WHERE id = :id")
            await session.execute(waits, params | {"waits_for": waits_for})
        # crash: before this line no place is taken; after it the place is one of a claim without an owner, and free.
        await session.commit()
        return waits_for


async def note_waits(session: AsyncSession, waits: Mapping[str, str | None]) -> None:
    """Write at each of these runs what it waits for; `None` if it waits for a place no more."""
    change = text("UPDATE runs SET waits_for = :waits_for WHERE id = :id")
    for run_id, waits_for in sorted(waits.items()):
        await session.execute(change, {"waits_for": waits_for, "id": run_id})


async def list_limits(db: Database) -> list[dict[str, Any]]:
    """List the limits that hold for all processes, by kind and name."""
    async with db.session() as session:
        rows = await session.execute(text("SELECT kind, name, amount, set_at, set_by FROM limits ORDER BY kind, name"))
        return [dict(row._mapping) for row in rows]


async def put_limit(db: Database, kind: str, name: str, amount: int, *, by: str) -> None:
    """Set a limit, in place of the one that was there; runs that the day's limit holds look again at once."""
    values = {"kind": kind, "name": name, "amount": amount, "set_at": now_text(), "set_by": by}
    async with db.session() as session:
        await session.execute(
            text(
                "INSERT INTO limits (kind, name, amount, set_at, set_by) "
                "VALUES (:kind, :name, :amount, :set_at, :set_by) ON CONFLICT (kind, name) "
                "DO UPDATE SET amount = excluded.amount, set_at = excluded.set_at, set_by = excluded.set_by"
            ),
            values,
        )
        await _release_day(db, session, kind)
        await _tell_all(db, session)
        await session.commit()


async def drop_limit(db: Database, kind: str, name: str) -> bool:
    """Remove a limit; return whether there was one."""
    async with db.session() as session:
        query = text("DELETE FROM limits WHERE kind = :kind AND name = :name RETURNING kind")
        found = (await session.execute(query, {"kind": kind, "name": name})).all()
        await _release_day(db, session, kind)
        await _tell_all(db, session)
        await session.commit()
        return bool(found)


async def _tell_all(db: Database, session: AsyncSession) -> None:
    """Have whoever looks for all look at once; where one process does, it is told by itself, or looks soon."""
    if db.path is None:
        from holdfast.runtime.checkpoint.postgres.notices import ANY_PAYLOAD, CHANNEL

        await session.execute(
            text("SELECT pg_notify(:channel, :payload)"), {"channel": CHANNEL, "payload": ANY_PAYLOAD}
        )


async def _release_day(db: Database, session: AsyncSession, kind: str) -> None:
    if kind == DAY_LIMIT:
        query = "UPDATE runs SET due_at = {} WHERE state = 'paused' AND pause_reason = 'budget' AND due_at IS NOT NULL"
        await session.execute(text(query.format(clock_of(db).text)))
