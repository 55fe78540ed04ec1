"""Workers as rows: who is there, and who looked at a run in vain.

Rule: all of this is Postgres, and times are the server's alone.
"""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import text

from holdfast.errors import WorkerNotFound
from holdfast.persistence.db import Database
from holdfast.persistence.due.still_runs import (
    ALIVE_S,
    NOW,
    SELECT_LOOKS,
    SELECT_STILL,
    SELECT_WORKERS,
    ListedWorker,
    Look,
    StillRun,
    collect_still,
    to_worker,
)
from holdfast.persistence.statements.table import to_params
from holdfast.runtime.checkpoint import process_owner
from holdfast.runtime.flow_rows import DEFAULT_QUEUE as FLOW_QUEUE

RUN_QUEUE = "runs"
MOST_GAP_S = 3.0  # between two signs of life; what is away for less makes no lease run out
FORGET_S = 3600.0
MAX_BACK_OFF_S = 300.0  # of one worker for one run
MAX_NAME_BYTES = 40  # of a name in the queue: with its own prefix it is that of a channel, of which the server takes 63
TAKES_FLOW = "jsonb_exists(w.queues::jsonb, f.queue) AND jsonb_exists(w.flows::jsonb, f.flow)"


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


# -- workers ----------------------------------------------------------------------------------------------------------

_REGISTER = f"""
INSERT INTO workers (name, process, machine, version, queues, flows, slots, driven, is_draining, since, seen_at,
steady_since)
VALUES (:name, :process, :machine, :version, :queues, :flows, :slots, 0, 0, {NOW}, {NOW}, {NOW})
ON CONFLICT (name) DO UPDATE SET process = excluded.process, machine = excluded.machine, version = excluded.version,
queues = excluded.queues, flows = excluded.flows, slots = excluded.slots, driven = 0, is_draining = 0,
since = excluded.since, seen_at = excluded.seen_at, steady_since = excluded.steady_since, sweeps_until = 0
WHERE workers.process = excluded.process OR workers.seen_at < {NOW} - :alive OR workers.process = :dead
RETURNING name
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


_WAS_THERE = f"""
SELECT EXISTS (SELECT 1 FROM workers WHERE process <> :process AND seen_at > {NOW} - :gap
               AND steady_since BETWEEN 1 AND {NOW} - :lease)
"""  # noqa: S608 - ours


async def was_reachable(db: Database, process: str) -> bool:
    """Tell whether the database was there for the length of a lease until now, as another worker's signs of life say.

    Then an owner whose lease has run out is gone: it would have renewed it.
    """
    async with db.session() as session:
        params = {"process": process, "gap": MOST_GAP_S, "lease": ALIVE_S}
        return bool(await session.scalar(text(_WAS_THERE), params))


async def unregister(db: Database, facts: WorkerFacts) -> None:
    """Delete a worker's row, with what it found out about runs."""
    async with db.session() as session:
        params = {"name": facts.name, "process": facts.process}
        gone = text("DELETE FROM workers WHERE name = :name AND process = :process RETURNING name")
        if (await session.execute(gone, params)).first() is not None:
            await session.execute(text("DELETE FROM run_looks WHERE worker = :name"), {"name": facts.name})
        await session.commit()


async def list_workers(db: Database) -> list[ListedWorker]:
    """List the workers that are there, or were until lately, by name; on SQLite nobody is but the server itself."""
    if db.path is not None:
        return []
    async with db.session() as session:
        return [to_worker(*row) for row in await session.execute(text(SELECT_WORKERS))]


_DRAIN = f"""
UPDATE workers SET is_draining = CASE WHEN {NOW} - seen_at <= :alive THEN 1 ELSE is_draining END
WHERE name = :name RETURNING {NOW} - seen_at
"""  # noqa: S608 - ours


async def drain_worker(db: Database, name: str) -> None:
    """Tell a worker to take nothing more and to end. Raises `WorkerNotFound` if there is none, or it is silent."""
    if db.path is not None:
        raise WorkerNotFound(f"There is no worker {name!r}.")
    async with db.session() as session:
        silent_s = await session.scalar(text(_DRAIN), {"name": name, "alive": ALIVE_S})
        await session.commit()
    if silent_s is None:
        raise WorkerNotFound(f"There is no worker {name!r}.")
    if silent_s > ALIVE_S:
        raise WorkerNotFound(
            f"Worker {name!r} has shown no sign of life for {silent_s:.0f} s: there is nothing to drain.",
            hint="Its runs go on elsewhere.",
            silent_s=round(silent_s, 1),
        )


_FORGET = (
    f"DELETE FROM workers WHERE seen_at < {NOW} - :forget",  # noqa: S608 - ours
    f"DELETE FROM run_looks WHERE again_at < {NOW} - :forget",  # noqa: S608 - ours
)


async def forget_gone(db: Database) -> None:
    """Delete the rows of workers that have been silent for an hour."""
    async with db.session() as session:
        for sql in _FORGET:
            await session.execute(text(sql), {"forget": FORGET_S})
        await session.commit()


# A row that is locked is left out: its owner writes it, and sets its lease anew. If it was somebody else, the next
# sweep bounds it. What a flow was due for when it was written is due still; a time that somebody chose stays.
_BOUNDS = tuple(
    f"UPDATE {table} SET {change} WHERE ({key}) IN "  # noqa: S608 - ours
    f"(SELECT {key} FROM {table} WHERE {condition} ORDER BY {key} FOR UPDATE SKIP LOCKED)"
    for table, key, change, condition in (
        (
            "journal_runs",
            "run_id",
            "lease_until = clock_timestamp() + make_interval(secs => :alive)",
            "lease_until > clock_timestamp() + make_interval(secs => :longest_lease)",
        ),
        (
            "workers",
            "name",
            f"seen_at = least(seen_at, {NOW}), sweeps_until = least(sweeps_until, {NOW} + :alive)",
            f"seen_at > {NOW} OR sweeps_until > {NOW} + :alive",
        ),
        ("run_looks", "run_id, worker", f"again_at = {NOW}", f"again_at > {NOW} + :longest_look"),
        (
            "flow_runs",
            "run_id",
            f"wake_at = {NOW}, updated_at = {NOW}",
            f"wake_at > {NOW} AND wake_at <= updated_at",
        ),
    )
)


async def bound_times(db: Database, *, longest_lease_s: float = 2 * ALIVE_S) -> None:
    """Let what lasts for seconds last no longer from now on, though the database's clock has gone back: leases, signs
    of life, when a worker looks at a run again, and flows that were due. Owners have a lease's time to renew theirs.
    """
    terms = {"alive": ALIVE_S, "longest_lease": longest_lease_s, "longest_look": MAX_BACK_OFF_S}
    async with db.session() as session:
        for sql in _BOUNDS:
            await session.execute(text(sql), terms)
        await session.commit()


# -- looks ------------------------------------------------------------------------------------------------------------

_LOOK = f"""
INSERT INTO run_looks (run_id, worker, missing, reason, again_at)
VALUES (:run_id, :worker, :missing, :reason, {NOW} + :wait_s)
ON CONFLICT (run_id, worker) DO UPDATE SET missing = excluded.missing, reason = excluded.reason,
again_at = excluded.again_at
"""  # noqa: S608 - ours


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


async def read_looks(db: Database, run_id: str) -> list[Look]:
    """Read who of the workers that are alive looked at a run in vain."""
    async with db.session() as session:
        return [Look(*row[1:]) for row in await session.execute(text(SELECT_LOOKS), {"run_ids": [run_id]})]


async def read_still(db: Database, run_ids: Collection[str]) -> list[StillRun]:
    """Read those of these runs that nobody drives, with who looked at them in vain; on SQLite there are none."""
    if db.path is not None or not run_ids:
        return []
    async with db.session() as session:
        rows = await session.execute(text(SELECT_STILL), {"run_ids": list(run_ids)})
        return collect_still(tuple(row) for row in rows)


QUEUES = (RUN_QUEUE, FLOW_QUEUE)
"""The queues that a worker takes if nobody says which."""
