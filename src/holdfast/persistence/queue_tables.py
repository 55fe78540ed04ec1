"""The queue's tables and what is written into them: that somebody should look at a run, and nothing more.

Rule: they hold nothing that the rows do not say, may be lost at any time, and never refuse what is written beside them.
"""

from collections.abc import Mapping

from sqlalchemy import text

from holdfast.persistence.db import Database
from holdfast.persistence.fleet import ALIVE_S, HAS_QUEUE, MAX_NAME_BYTES, NOW, TAKES_FLOW
from holdfast.runtime.checkpoint.base import Statement

_LOCK = 0x686F6C65  # "hole": who makes the queue's tables
_TRIGGER = "holdfast_flow_is_due"
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
_HAS_TRIGGER = "SELECT EXISTS (SELECT 1 FROM pg_trigger WHERE tgname = :name AND tgrelid = 'flow_runs'::regclass)"
# A flow is started by programs that know of no queue, so its row says it. Left to the sweep is what nobody is there to
# take, since jobs would pile up where programs drive the flows, and what its owner has not let go of yet.
_ON_DUE = (
    f"""
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
""",  # noqa: S608 - ours
    f"""
CREATE TRIGGER {_TRIGGER} AFTER INSERT OR UPDATE OF wake_at ON flow_runs FOR EACH ROW
WHEN (NEW.wake_at IS NOT NULL AND NEW.parent_run_id IS NULL) EXECUTE FUNCTION holdfast_enqueue_flow()
""",
)


def enqueue(run_id: str, queue: str, priority: int) -> Statement:
    """Put a run into the queue unless it waits there; whatever is wrong with the queue, nothing is refused."""
    return Statement(_ENQUEUE, {"run_id": run_id, "queue": queue, "priority": priority}, expect=None)


async def enqueue_all(db: Database, jobs: Mapping[str, tuple[str, int]]) -> None:
    """Put runs into the queue, each with its name there and its priority, in one statement."""
    async with db.session() as session:
        queues, priorities = zip(*jobs.values(), strict=True) if jobs else ((), ())
        await session.execute(
            text(_ENQUEUE_ALL), {"run_ids": list(jobs), "queues": list(queues), "priorities": list(priorities)}
        )
        await session.commit()


async def make_queue_tables(db: Database, schema_sql: str) -> None:
    """Make the queue's tables by this SQL unless they are there; what is left of some is removed first.

    From then on flows come into the queue with the events that make them due.
    """
    async with db.session() as session:
        await session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        if not await session.scalar(text(HAS_QUEUE)):
            connection = await session.connection()
            raw = (await connection.get_raw_connection()).driver_connection
            assert raw is not None
            for sql in (_DROP_QUEUE, schema_sql):  # several statements, and percent signs that are no parameters
                await raw.execute(sql)
        if not await session.scalar(text(_HAS_TRIGGER), {"name": _TRIGGER}):
            for sql in _ON_DUE:
                await session.execute(text(sql))
        await session.commit()
