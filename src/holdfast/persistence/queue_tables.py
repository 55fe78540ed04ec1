"""The queue's tables and what is written into them: that somebody should look at a run, and nothing more.

Rule: they hold nothing that the rows do not say, may be lost at any time, and refuse nothing that is written beside
them. They are whole or made anew: what is left without a table, a type or a function of theirs is of no use.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from holdfast.errors import StoreUnreadable
from holdfast.persistence.db import Database
from holdfast.persistence.due.still_runs import ALIVE_S, NOW
from holdfast.persistence.fleet import MAX_NAME_BYTES, TAKES_FLOW
from holdfast.runtime.checkpoint.base import Statement

_LOCK = 0x686F6C65  # "hole": who makes the queue's tables
TASK = "drive"
_TRIGGER = "holdfast_flow_is_due"
OWN_PARTS = ("holdfast_enqueue", "holdfast_enqueue_flow", _TRIGGER)
"""What brings runs into the queue, beside what the queue consists of."""
# Read from the catalogs by their indexes: what is kept in memory about names may be older than this statement.
HAS_PARTS = """
SELECT count(DISTINCT part.name) = cardinality(CAST(:parts AS text[])) FROM (
    SELECT c.relname AS name FROM pg_class AS c
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relname = ANY(CAST(:parts AS name[]))
    UNION ALL SELECT p.proname FROM pg_proc AS p
    WHERE p.pronamespace = current_schema()::regnamespace AND p.proname = ANY(CAST(:parts AS name[]))
    UNION ALL SELECT t.typname FROM pg_type AS t
    WHERE t.typnamespace = current_schema()::regnamespace AND t.typname = ANY(CAST(:parts AS name[]))
    UNION ALL SELECT g.tgname FROM pg_trigger AS g JOIN pg_class AS c ON c.oid = g.tgrelid
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relname IN ('procrastinate_jobs', 'flow_runs')
    AND g.tgname = ANY(CAST(:parts AS name[]))) AS part
"""
# Each table says that it is ours and of which version, so that of two versions the older one leaves it to the newer.
_MARK = "holdfast, tables of version "
_READ_MARKS = """
SELECT coalesce(obj_description(c.oid, 'pg_class'), '') FROM pg_class AS c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND starts_with(c.relname, 'procrastinate_')
"""
_WRITE_MARKS = """
DO $$ DECLARE found record; BEGIN
FOR found IN SELECT c.relname AS name FROM pg_class AS c WHERE c.relnamespace = current_schema()::regnamespace
    AND c.relkind = 'r' AND starts_with(c.relname, 'procrastinate_') LOOP
    EXECUTE format('COMMENT ON TABLE %I IS %L', found.name, '{mark}');
END LOOP; END $$
"""
_HAS_FOREIGN_JOBS = """
SELECT EXISTS (SELECT 1 FROM procrastinate_jobs AS q WHERE to_jsonb(q) ->> 'task_name' IS DISTINCT FROM :task)
"""
# A worker of the queue that is gone has left jobs that say "somebody is at it"; who is at a run, its claim says. Under
# a living one the job stays: its worker may only have been silent for too long, and ends it with the drive.
CLEAR = """
DELETE FROM procrastinate_jobs WHERE id IN (SELECT q.id FROM procrastinate_jobs AS q
    WHERE q.status <> 'todo' AND NOT EXISTS (
        SELECT 1 FROM procrastinate_workers AS w WHERE w.id = q.worker_id
        AND w.last_heartbeat > clock_timestamp() - make_interval(secs => :silent))
    AND NOT EXISTS (
        SELECT 1 FROM journal_runs AS j WHERE j.run_id = q.queueing_lock AND j.lease_until > clock_timestamp())
    FOR UPDATE OF q SKIP LOCKED)
"""
SILENT_S = 60.0
# The library forgets a notice that comes while it fetches, and would look again by itself much later.
RING = """
SELECT count(pg_notify('procrastinate_queue_v1#' || q.queue_name,
    json_build_object('type', 'job_inserted', 'job_id', q.id)::text))
FROM (SELECT DISTINCT ON (w.queue_name) w.queue_name, w.id FROM (SELECT queue_name, id FROM procrastinate_jobs
    WHERE status = 'todo' ORDER BY priority DESC, id LIMIT 100) AS w ORDER BY w.queue_name, w.id) AS q
"""
_ENQUEUE = "SELECT holdfast_enqueue(:run_id, :queue, :priority)"
_ENQUEUE_ALL = """
SELECT count(holdfast_enqueue(job.run_id, job.queue, job.priority)) FROM unnest(
    CAST(:run_ids AS text[]), CAST(:queues AS text[]), CAST(:priorities AS bigint[])) AS job(run_id, queue, priority)
"""
# A job that was taken is only said to be gone: the rows say what is due, so nobody waits for the disk here.
TAKE_WAITING = """
WITH off AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),
waiting AS MATERIALIZED (SELECT q.id FROM procrastinate_jobs AS q, off
    WHERE q.status = 'todo' AND q.queue_name = ANY(%(queues)s) AND (q.scheduled_at IS NULL OR q.scheduled_at <= now())
    ORDER BY q.priority DESC, q.id LIMIT %(most)s FOR UPDATE OF q SKIP LOCKED)
DELETE FROM procrastinate_jobs AS q USING waiting WHERE q.id = waiting.id
RETURNING q.queueing_lock AS run_id, q.queue_name AS queue, q.priority
"""
HAS_HEARTBEAT = """
SELECT 1 FROM procrastinate_workers
WHERE id = %(worker_id)s AND last_heartbeat > clock_timestamp() - make_interval(secs => %(late_s)s)
"""
_DROP_QUEUE = """
DO $$ DECLARE found record; BEGIN
FOR found IN SELECT c.relname AS name FROM pg_class AS c WHERE c.relnamespace = current_schema()::regnamespace
    AND c.relkind = 'r' AND starts_with(c.relname, 'procrastinate_') LOOP
    EXECUTE format('DROP TABLE %I CASCADE', found.name);
END LOOP;
FOR found IN SELECT p.oid::regprocedure AS name FROM pg_proc AS p WHERE p.pronamespace = current_schema()::regnamespace
    AND starts_with(p.proname, 'procrastinate_') LOOP
    EXECUTE 'DROP FUNCTION ' || found.name || ' CASCADE';
END LOOP;
FOR found IN SELECT t.typname AS name FROM pg_type AS t WHERE t.typnamespace = current_schema()::regnamespace
    AND starts_with(t.typname, 'procrastinate_') AND t.typtype IN ('e', 'c') LOOP
    EXECUTE format('DROP TYPE IF EXISTS %I CASCADE', found.name);
END LOOP; END $$
"""
# Never refuses the append that it stands beside, whatever of the queue is lost: the sweep finds the run.
_MAKE_ENQUEUE = f"""
CREATE OR REPLACE FUNCTION holdfast_enqueue(run_id text, queue text, priority bigint) RETURNS void LANGUAGE plpgsql
AS $$ BEGIN
    INSERT INTO procrastinate_jobs (queue_name, task_name, priority, queueing_lock, args)
    VALUES (queue, '{TASK}', priority::integer, run_id, jsonb_build_object('run_id', run_id))
    ON CONFLICT DO NOTHING;
EXCEPTION WHEN others THEN
    NULL;
END $$
"""  # noqa: S608 - ours
# A flow is started by programs that know of no queue, so its row says it. Left to the sweep is what nobody is there to
# take, since jobs would pile up where programs drive the flows, and what its owner has not let go of yet.
_MAKE_ENQUEUE_FLOW = f"""
CREATE OR REPLACE FUNCTION holdfast_enqueue_flow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.wake_at <= {NOW} AND octet_length(NEW.queue || '/' || NEW.flow) <= {MAX_NAME_BYTES}
        AND NOT EXISTS (SELECT 1 FROM journal_runs AS j WHERE j.run_id = NEW.run_id AND j.owner IS NOT NULL)
        AND EXISTS (SELECT 1 FROM workers AS w, (SELECT NEW.*) AS f
                    WHERE w.seen_at > {NOW} - {ALIVE_S} AND w.is_draining = 0 AND {TAKES_FLOW})
    THEN
        PERFORM holdfast_enqueue(NEW.run_id, NEW.queue || '/' || NEW.flow, NEW.priority);
    END IF;
    RETURN NULL;
EXCEPTION WHEN others THEN
    RETURN NULL;
END $$
"""  # noqa: S608 - ours
_ON_DUE = f"""
CREATE TRIGGER {_TRIGGER} AFTER INSERT OR UPDATE OF wake_at ON flow_runs FOR EACH ROW
WHEN (NEW.wake_at IS NOT NULL AND NEW.parent_run_id IS NULL) EXECUTE FUNCTION holdfast_enqueue_flow()
"""


def enqueue(run_id: str, queue: str, priority: int) -> Statement:
    """Put a run into the queue unless it waits there; whatever is wrong with its tables, nothing is refused."""
    return Statement(_ENQUEUE, {"run_id": run_id, "queue": queue, "priority": priority}, expect=None)


async def enqueue_all(db: Database, jobs: Mapping[str, tuple[str, int]]) -> None:
    """Put runs into the queue, each with its name there and its priority, in one statement; none needs no database."""
    if not jobs:
        return
    async with db.session() as session:
        queues, priorities = zip(*jobs.values(), strict=True)
        await session.execute(
            text(_ENQUEUE_ALL), {"run_ids": list(jobs), "queues": list(queues), "priorities": list(priorities)}
        )
        await session.commit()


async def has_parts(db: Database, parts: Sequence[str]) -> bool:
    """Tell whether everything of these names is there: tables, types, indexes, functions, triggers."""
    async with db.session() as session:
        return await _has_parts(session, parts)


async def _has_parts(session: AsyncSession, parts: Sequence[str]) -> bool:
    return bool(await session.scalar(text(HAS_PARTS), {"parts": list(parts)}))


@dataclass(frozen=True)
class QueueSchema:
    """What the queue's tables are made by."""

    version: str
    """Versions compare as texts."""
    sql: str
    parts: Sequence[str]
    """The names of all that has to be there, our own functions and trigger included."""


async def make_queue_tables(db: Database, schema: QueueSchema) -> None:
    """Make the queue's tables unless all of their parts are there; what is left of some is removed first.

    From then on flows come into the queue with the events that make them due. Many processes may do so at once: all of
    it is one transaction, and one such transaction is made at a time. Raises `StoreUnreadable` if something of another
    program would be removed, or tables that a newer version has made.
    """
    async with db.session() as session:
        # crash: until the commit the queue is as it was; the lock goes with the transaction.
        await session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        if await _has_parts(session, schema.parts):
            return
        await _check_own(session, schema.version)
        connection = await session.connection()
        raw = (await connection.get_raw_connection()).driver_connection
        assert raw is not None
        # Several statements each, and percent signs that are no parameters.
        for sql in (_DROP_QUEUE, schema.sql, _WRITE_MARKS.replace("{mark}", _MARK + schema.version)):
            await raw.execute(sql)
        for sql in (_MAKE_ENQUEUE, _MAKE_ENQUEUE_FLOW):
            await session.execute(text(sql))
        if not await _has_parts(session, [_TRIGGER]):
            await session.execute(text(_ON_DUE))
        await session.commit()


async def _check_own(session: AsyncSession, version: str) -> None:
    marks = list(await session.scalars(text(_READ_MARKS)))
    ours = [mark.removeprefix(_MARK) for mark in marks if mark.startswith(_MARK)]
    if max(ours, default="") > version:
        raise StoreUnreadable(
            "The tables of the queue were made by a newer version of holdfast.",
            hint="Upgrade this process too; until then it takes no runs from the queue.",
        )
    # Ours have the trigger beside them, also those that were made before tables had marks.
    is_foreign = bool(marks) and not ours and not await _has_parts(session, [_TRIGGER])
    if not is_foreign and await _has_parts(session, ["procrastinate_jobs"]):
        is_foreign = bool(await session.scalar(text(_HAS_FOREIGN_JOBS), {"task": TASK}))
    if is_foreign:
        raise StoreUnreadable(
            "The tables of the queue belong to another program, or hold jobs of one, and lack what this version needs.",
            hint="Give holdfast a database or a schema of its own.",
        )
