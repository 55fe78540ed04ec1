"""Workers and what they find due, as rows: who is there, who looks for all, who looked in vain.

Rule: all of this is Postgres, and times are the server's alone. What is due is said by the rows of runs and flows; the
queue's own tables only say that somebody should look, and may be lost at any time.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import DateTime, cast, func, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from holdfast.persistence.db import Database
from holdfast.persistence.listings import read_unowned, select_due_times
from holdfast.persistence.models import RunRow
from holdfast.persistence.statements.table import to_params
from holdfast.runtime.checkpoint import process_owner
from holdfast.runtime.flow_rows import DEFAULT_QUEUE as FLOW_QUEUE
from holdfast.runtime.flow_rows import FIRST_IN_LINE

RUN_QUEUE = "runs"
ALIVE_S = 6.0  # as long as a lease: who has been silent for longer is passed over
FORGET_S = 3600.0
MAX_BACK_OFF_S = 300.0  # of one worker for one run
MAX_NAME_BYTES = 40  # of a name in the queue: with its own prefix it is that of a channel, of which the server takes 63
_MOST_DUE = 500
NOW = "extract(epoch FROM clock_timestamp())::float8"


@dataclass(frozen=True)
class WorkerFacts:
    """What a worker says of itself when it comes."""

    name: str
    process: str
    machine: str
    version: str
    slots: int
    queues: tuple[str, ...]
    flows: tuple[str, ...]


@dataclass(frozen=True)
class ListedWorker:
    name: str
    machine: str
    version: str
    since: float
    slots: int
    driven: int
    silent_s: float
    is_draining: bool
    queues: Sequence[str]
    flows: Sequence[str]
    clock_off_s: float = 0.0
    """How far its clock is ahead of the database's."""

    @property
    def is_alive(self) -> bool:
        return self.silent_s <= ALIVE_S


@dataclass(frozen=True)
class DueJob:
    """A run that somebody should look at; `flow` is empty for a workflow's."""

    run_id: str
    queue: str
    priority: int = 0
    flow: str = ""


@dataclass(frozen=True)
class Beat:
    """What a worker hears when it gives a sign of life."""

    is_known: bool
    now: float = 0.0
    """The time in epoch seconds by the database's clock."""
    is_draining: bool = False
    is_sweeper: bool = False
    has_queue: bool = True
    overdue_at: str | None = None
    """The time, as rows hold it, if an approval's deadline has passed by then."""
    has_schedule: bool = False
    """The time of a schedule has come."""
    has_flow_in_line: bool = False
    """A flow waited for earlier runs of its schedule, and they are over."""
    due: Sequence[DueJob] = ()
    """What nobody has in hand; for the one that looks for all, or for itself where the queue is its own."""


# -- workers ----------------------------------------------------------------------------------------------------------

_REGISTER = f"""
INSERT INTO workers (name, process, machine, version, queues, flows, slots, driven, is_draining, since, seen_at)
VALUES (:name, :process, :machine, :version, :queues, :flows, :slots, 0, 0, {NOW}, {NOW})
ON CONFLICT (name) DO UPDATE SET process = excluded.process, machine = excluded.machine, version = excluded.version,
queues = excluded.queues, flows = excluded.flows, slots = excluded.slots, driven = 0, is_draining = 0,
since = excluded.since, seen_at = excluded.seen_at, sweeps_until = 0
WHERE workers.process = excluded.process OR workers.seen_at < {NOW} - :alive OR workers.process = :dead
RETURNING name
"""  # noqa: S608 - ours
# Two may think so at once, for one turn: what they write is the same, and then the first by name stays.
_IS_SWEEPER = f"""
NOT EXISTS (SELECT 1 FROM workers AS o WHERE o.name <> workers.name AND o.sweeps_until > {NOW}
            AND (o.name < workers.name OR workers.sweeps_until <= {NOW}))
"""  # noqa: S608 - ours
_BEAT = f"""
UPDATE workers SET seen_at = {NOW}, driven = :driven, clock_off_s = :clock_off_s,
sweeps_until = CASE WHEN is_draining = 0 AND {_IS_SWEEPER} THEN {NOW} + :alive ELSE 0 END
WHERE name = :name AND process = :process
RETURNING is_draining, sweeps_until > {NOW}, {NOW}, EXISTS ({FIRST_IN_LINE})
"""  # noqa: S608 - ours


async def register(db: Database, facts: WorkerFacts) -> bool:
    """Write a worker's row; false if a living one of another process has this name."""
    async with db.session() as session:
        found = await session.scalar(text("SELECT process FROM workers WHERE name = :name"), {"name": facts.name})
        dead = found if found is not None and process_owner.is_dead_text(found) else ""
        params = to_params(vars(facts)) | {"alive": ALIVE_S, "dead": dead}
        is_ours = (await session.execute(text(_REGISTER), params)).first() is not None
        await session.commit()
    return is_ours


async def unregister(db: Database, facts: WorkerFacts) -> None:
    """Delete a worker's row, with what it found out about runs."""
    async with db.session() as session:
        params = {"name": facts.name, "process": facts.process}
        gone = text("DELETE FROM workers WHERE name = :name AND process = :process RETURNING name")
        if (await session.execute(gone, params)).first() is not None:
            await session.execute(text("DELETE FROM run_looks WHERE worker = :name"), {"name": facts.name})
        await session.commit()


HAS_QUEUE = "SELECT to_regclass('procrastinate_jobs') IS NOT NULL"
_FOR_ALL = f"""
SELECT ({HAS_QUEUE}) AS has_queue, moment.now AS now,
EXISTS (SELECT 1 FROM approvals AS a WHERE a.state = 'pending' AND a.deadline_at <= moment.now) AS is_overdue,
EXISTS (SELECT 1 FROM schedules AS s WHERE s.is_paused = 0 AND s.next_at <= moment.now) AS has_schedule,
(SELECT coalesce(json_agg(DISTINCT queue), '[]')::text
 FROM workers AS w, json_array_elements_text(w.queues::json) AS queue
 WHERE w.is_draining = 0 AND w.seen_at > {NOW} - {ALIVE_S}) AS queues
FROM (SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24\\:MI\\:SS.MS"Z"') AS now) AS moment
"""  # noqa: S608 - ours


async def beat(db: Database, facts: WorkerFacts, *, driven: int, clock_off_s: float = 0.0) -> Beat:
    """Give a sign of life, and if it falls to this worker look for all what is due; one transaction."""
    async with db.session() as session:
        params = {"name": facts.name, "process": facts.process, "driven": driven, "alive": ALIVE_S}
        params["clock_off_s"] = clock_off_s
        row = (await session.execute(text(_BEAT), params)).first()
        if row is None:
            return Beat(is_known=False)
        is_draining, is_sweeper = bool(row[0]), bool(row[1])
        found = Beat(True, float(row[2]), is_draining, is_sweeper, has_flow_in_line=bool(row[3]))
        if is_sweeper:
            for_all = (await session.execute(text(_FOR_ALL))).one()
            due = await _sweep(db, session, has_queue=for_all.has_queue, queues=json.loads(for_all.queues))
            overdue_at = for_all.now if for_all.is_overdue else None
            found = replace(
                found, has_queue=for_all.has_queue, overdue_at=overdue_at, has_schedule=for_all.has_schedule, due=due
            )
        await session.commit()
    return found


_LIST = f"""
SELECT name, machine, version, since, slots, driven, {NOW} - seen_at, is_draining, queues, flows, clock_off_s
FROM workers ORDER BY name
"""  # noqa: S608 - ours


async def list_workers(db: Database) -> list[ListedWorker]:
    """List the workers that are there, or were until lately, by name; on SQLite nobody is but the server itself."""
    if db.path is not None:
        return []
    async with db.session() as session:
        return [_to_listed(row) for row in await session.execute(text(_LIST))]


def _to_listed(row: Any) -> ListedWorker:
    name, machine, version, since, slots, driven, silent_s, is_draining, queues, flows, off_s = row
    return ListedWorker(
        *(name, machine, version, float(since), slots, driven, max(0.0, float(silent_s)), bool(is_draining)),
        *(json.loads(queues), json.loads(flows), float(off_s)),
    )


async def drain_worker(db: Database, name: str) -> bool:
    """Tell a worker to take nothing more and to end; false if there is none of this name."""
    async with db.session() as session:
        sql = "UPDATE workers SET is_draining = 1 WHERE name = :name RETURNING name"
        is_there = (await session.execute(text(sql), {"name": name})).first() is not None
        await session.commit()
    return is_there


# -- what is due ------------------------------------------------------------------------------------------------------

# What every living worker that takes it has looked at in vain, and does not want to look at again yet.
_HELD = f"""
EXISTS (SELECT 1 FROM run_looks AS l WHERE l.run_id = {{run_id}} AND l.again_at > {NOW})
AND NOT EXISTS (SELECT 1 FROM workers AS w WHERE w.seen_at > {NOW} - {ALIVE_S} AND w.is_draining = 0 AND {{takes}}
    AND NOT EXISTS (SELECT 1 FROM run_looks AS l
                    WHERE l.run_id = {{run_id}} AND l.worker = w.name AND l.again_at > {NOW}))
"""  # noqa: S608 - ours
_TAKES_RUN = "jsonb_exists(w.queues::jsonb, runs.queue)"
TAKES_FLOW = "jsonb_exists(w.queues::jsonb, f.queue) AND jsonb_exists(w.flows::jsonb, f.flow)"
_WAITS = "EXISTS (SELECT 1 FROM procrastinate_jobs AS q WHERE q.queueing_lock = {run_id} AND q.status = 'todo')"
# Made due a moment ago with a job beside it: that job waits, or somebody who has taken it is about to begin.
_IS_FRESH = f"""
f.wake_at <= f.updated_at AND f.updated_at > {NOW} - 1.0 AND octet_length(f.queue || '/' || f.flow) <= {MAX_NAME_BYTES}
"""
_IS_DUE_FLOW = f"""
f.parent_run_id IS NULL AND (f.wake_at <= {NOW} OR (f.status = 'running' AND f.wake_at IS NULL
AND f.waits_for IS NULL AND (j.owner IS NULL OR j.lease_until <= clock_timestamp())))
"""
_DUE_FLOWS = f"""
SELECT f.run_id, f.queue, f.priority, f.flow FROM flow_runs AS f LEFT JOIN journal_runs AS j ON j.run_id = f.run_id
WHERE {_IS_DUE_FLOW} AND NOT ({{held}}) AND NOT ({_IS_FRESH}) {{more}}
ORDER BY f.priority DESC, f.wake_at, f.run_id LIMIT :most
"""  # noqa: S608 - ours
# Of processes of this machine: that one is dead is seen, and nobody need wait for the end of its lease.
_LEFT_FLOWS = """
SELECT f.run_id, f.queue, f.priority, f.flow, j.owner FROM flow_runs AS f JOIN journal_runs AS j ON j.run_id = f.run_id
WHERE f.parent_run_id IS NULL AND f.status = 'running' AND f.wake_at IS NULL AND f.waits_for IS NULL
AND j.lease_until > clock_timestamp() AND position(:machine IN j.owner) > 0 AND NOT ({held}) {more}
"""
_FORGET = (
    f"DELETE FROM workers WHERE seen_at < {NOW} - :forget",  # noqa: S608 - ours
    f"DELETE FROM run_looks WHERE again_at < {NOW} - :forget",  # noqa: S608 - ours
)
# A worker of the queue that is gone has left jobs that say "somebody is at it"; who is at a run, its claim says. Under
# a living one the job stays: its worker may only have been silent for too long, and ends it with the drive.
_CLEAR = """
DELETE FROM procrastinate_jobs WHERE id IN (SELECT q.id FROM procrastinate_jobs AS q
    WHERE q.status <> 'todo' AND NOT EXISTS (
        SELECT 1 FROM procrastinate_workers AS w WHERE w.id = q.worker_id
        AND w.last_heartbeat > clock_timestamp() - make_interval(secs => :silent))
    AND NOT EXISTS (
        SELECT 1 FROM journal_runs AS j WHERE j.run_id = q.queueing_lock AND j.lease_until > clock_timestamp())
    FOR UPDATE OF q SKIP LOCKED)
"""
_SILENT_S = 60.0
# The library forgets a notice that comes while it fetches, and would look again by itself much later.
_RING = """
SELECT count(pg_notify('procrastinate_queue_v1#' || q.queue_name,
    json_build_object('type', 'job_inserted', 'job_id', q.id)::text))
FROM (SELECT DISTINCT ON (w.queue_name) w.queue_name, w.id FROM (SELECT queue_name, id FROM procrastinate_jobs
    WHERE status = 'todo' ORDER BY priority DESC, id LIMIT 100) AS w ORDER BY w.queue_name, w.id) AS q
"""


async def _sweep(db: Database, session: AsyncSession, *, has_queue: bool, queues: Sequence[str]) -> list[DueJob]:
    """Read what is due, in nobody's hand, and not waiting in the queue; of workflows' runs those that somebody takes.

    A run that nobody takes has no place of those that a limit has, however long it waits.
    """
    conditions = [text(f"NOT ({_HELD.format(run_id='runs.id', takes=_TAKES_RUN)})"), RunRow.queue.in_(queues)]
    more = ""
    if has_queue:
        conditions.append(text(f"NOT {_WAITS.format(run_id='runs.id')}"))
        more = f"AND NOT {_WAITS.format(run_id='f.run_id')}"
        await session.execute(text(_CLEAR), {"silent": _SILENT_S})
        await session.execute(text(_RING))
    found = await read_unowned(db, session, *conditions, limit=_MOST_DUE)
    runs = [DueJob(run.run_id, run.queue, run.priority) for run in found]
    terms = {"held": _HELD.format(run_id="f.run_id", takes=TAKES_FLOW), "more": more}
    flows = list(await session.execute(text(_DUE_FLOWS.format(**terms)), {"most": _MOST_DUE}))
    here = await session.execute(text(_LEFT_FLOWS.format(**terms)), {"machine": process_owner.machine_mark()})
    flows += [row for row in here if process_owner.is_dead_text(row.owner)]
    return runs + [DueJob(row.run_id, row.queue, row.priority, row.flow) for row in flows]


_COUNT_FLOWS = f"""
SELECT count(*), {NOW} - min(coalesce(f.wake_at, f.updated_at)) FROM flow_runs AS f
LEFT JOIN journal_runs AS j ON j.run_id = f.run_id WHERE {_IS_DUE_FLOW}
"""  # noqa: S608 - ours


async def count_due(db: Database) -> tuple[int, float]:
    """Count what is due and not driven, and return for how many seconds the oldest of it has been so.

    A run whose time has not come, or that waits for a place of a limit, is not due: another worker would not help it.
    """
    times = select_due_times(db).subquery()
    oldest = func.extract("epoch", func.clock_timestamp() - cast(func.min(times.c.due_since), DateTime(timezone=True)))
    async with db.session() as session:
        runs, runs_s = (await session.execute(select(func.count(), oldest).select_from(times))).one()
        flows, flows_s = (await session.execute(text(_COUNT_FLOWS))).one()
    return runs + flows, max(0.0, float(runs_s or 0), float(flows_s or 0))


async def was_left(db: Database, run_id: str) -> bool:
    """Tell whether a run has an owner that did not give it up; of a run that is due, one that is gone."""
    async with db.session() as session:
        query = text("SELECT owner IS NOT NULL FROM journal_runs WHERE run_id = :run_id")
        return bool(await session.scalar(query, {"run_id": run_id}))


async def forget_gone(db: Database) -> None:
    """Delete the rows of workers that have been silent for an hour."""
    async with db.session() as session:
        for sql in _FORGET:
            await session.execute(text(sql), {"forget": FORGET_S})
        await session.commit()


# A row that is locked is being written by its owner, which sets its lease anew.
_BOUND_LEASES = """
UPDATE journal_runs SET lease_until = clock_timestamp() + make_interval(secs => :alive) WHERE run_id IN (
    SELECT run_id FROM journal_runs WHERE lease_until > clock_timestamp() + make_interval(secs => 2 * :alive)
    ORDER BY run_id FOR UPDATE SKIP LOCKED)
"""
_BOUND_WORKERS = f"""
UPDATE workers SET seen_at = least(seen_at, {NOW}), sweeps_until = least(sweeps_until, {NOW} + :alive)
WHERE seen_at > {NOW} OR sweeps_until > {NOW} + :alive
"""  # noqa: S608 - ours
_BOUND_LOOKS = f"UPDATE run_looks SET again_at = {NOW} WHERE again_at > {NOW} + :longest"  # noqa: S608 - ours


async def bound_times(db: Database) -> None:
    """Let what lasts for seconds last no longer from now on, though the database's clock has gone back: leases, signs
    of life, and when a worker looks at a run again. Their owners have a lease's time to renew them.
    """
    async with db.session() as session:
        for sql in (_BOUND_LEASES, _BOUND_WORKERS, _BOUND_LOOKS):
            await session.execute(text(sql), {"alive": ALIVE_S, "longest": MAX_BACK_OFF_S})
        await session.commit()


# -- looks ------------------------------------------------------------------------------------------------------------

_LOOK = f"""
INSERT INTO run_looks (run_id, worker, missing, reason, again_at)
VALUES (:run_id, :worker, :missing, :reason, {NOW} + :wait_s)
ON CONFLICT (run_id, worker) DO UPDATE SET missing = excluded.missing, reason = excluded.reason,
again_at = excluded.again_at
"""  # noqa: S608 - ours


@dataclass(frozen=True)
class Look:
    worker: str
    missing: str
    reason: str


async def note_look(db: Database, run_id: str, look: Look, *, wait_s: float) -> None:
    """Record that a worker could not drive a run, why, and that it tries again so much later."""
    async with db.session() as session:
        await session.execute(text(_LOOK), {"run_id": run_id, **vars(look), "wait_s": wait_s})
        await session.commit()


async def drop_look(db: Database, run_id: str, worker: str) -> None:
    """Forget that a worker looked at a run in vain: it has driven it."""
    async with db.session() as session:
        sql = "DELETE FROM run_looks WHERE run_id = :run_id AND worker = :worker"
        await session.execute(text(sql), {"run_id": run_id, "worker": worker})
        await session.commit()


_LOOKS = f"""
SELECT l.worker, l.missing, l.reason FROM run_looks AS l JOIN workers AS w ON w.name = l.worker
WHERE l.run_id = :run_id AND w.seen_at > {NOW} - {ALIVE_S} ORDER BY l.worker
"""  # noqa: S608 - ours


async def read_looks(db: Database, run_id: str) -> list[Look]:
    """Read who of the workers that are alive looked at a run in vain."""
    async with db.session() as session:
        return [
            Look(row.worker, row.missing, row.reason) for row in await session.execute(text(_LOOKS), {"run_id": run_id})
        ]


QUEUES = (RUN_QUEUE, FLOW_QUEUE)
"""The queues that a worker takes if nobody says which."""
