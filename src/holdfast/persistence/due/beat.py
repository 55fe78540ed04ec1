"""What is due: found by one worker for all, with its sign of life, and counted for whoever watches the fleet.

Rule: what is due is said by the rows of runs and flows; the queue's own tables only say that somebody should look, and
may be lost at any time. What waits or is over is not looked at, so that a look costs the same however much of it there
is: each part of the question has an index, and a journal's row is looked up, never joined. A planner that takes a third
of all flows for due would read every journal instead.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import DateTime, cast, func, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from holdfast.enums import OPEN_STATES
from holdfast.persistence.db import Database
from holdfast.persistence.due.still_runs import ALIVE_S, NOW
from holdfast.persistence.fleet import MAX_NAME_BYTES, MOST_GAP_S, TAKES_FLOW, WorkerFacts
from holdfast.persistence.listings import read_unowned, select_due_times
from holdfast.persistence.models import RunRow
from holdfast.persistence.queue_tables import CLEAR, HAS_PARTS, RING, SILENT_S
from holdfast.runtime.checkpoint import process_owner
from holdfast.runtime.flow_line import FIRST_IN_LINE

_MOST_DUE = 500
_MOST_LEFT = 100


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
    """Everything that the queue needs is there."""
    overdue_at: str | None = None
    """The time, as rows hold it, if an approval's deadline has passed by then."""
    has_schedule: bool = False
    """The time of a schedule has come."""
    has_flow_in_line: bool = False
    """A flow waited for earlier runs of its schedule, and they are over."""
    left: Sequence[str] = ()
    """Runs that others could not drive, and that this worker has not looked at since."""
    beside: Sequence[str] = ()
    """The other processes of this machine that have given a sign of life in the time of a lease."""
    due: Sequence[DueJob] = ()
    """What nobody has in hand; for the one that looks for all, or for itself where the queue is its own."""


# Two may think so at once, for one turn: what they write is the same, and then the first by name stays.
_IS_SWEEPER = f"""
NOT EXISTS (SELECT 1 FROM workers AS o WHERE o.name <> workers.name AND o.sweeps_until > {NOW}
            AND (o.name < workers.name OR workers.sweeps_until <= {NOW}))
"""  # noqa: S608 - ours
_DRAINS = "greatest(is_draining, CAST(:is_draining AS bigint))"
# Whoever cannot drive a run may get its job again and again: the one that can need not wait for the job to fall to it.
_LEFT = f"""
SELECT DISTINCT l.run_id FROM run_looks AS l CROSS JOIN workers AS w
WHERE w.name = :name AND w.is_draining = 0 AND l.worker <> w.name AND l.again_at > {NOW}
AND NOT EXISTS (SELECT 1 FROM run_looks AS o WHERE o.run_id = l.run_id AND o.worker = w.name AND o.again_at > {NOW})
AND NOT EXISTS (SELECT 1 FROM journal_runs AS j
                WHERE j.run_id = l.run_id AND j.owner IS NOT NULL AND j.lease_until > clock_timestamp())
AND (EXISTS (SELECT 1 FROM runs AS r WHERE r.id = l.run_id AND (r.ended_at IS NULL OR r.wake IS NOT NULL)
             AND jsonb_exists(w.queues::jsonb, r.queue))
     OR EXISTS (SELECT 1 FROM flow_runs AS f WHERE f.run_id = l.run_id AND {TAKES_FLOW}
                AND (f.wake_at <= {NOW} OR (f.status = 'running' AND f.wake_at IS NULL AND f.waits_for IS NULL))))
LIMIT {_MOST_LEFT}
"""  # noqa: S608 - ours
_BESIDE = f"""
SELECT o.process FROM workers AS o WHERE o.name <> :name AND o.seen_at > {NOW} - {ALIVE_S}
AND position(:machine IN o.process) > 0
"""  # noqa: S608 - ours
_BEAT = f"""
UPDATE workers SET seen_at = {NOW}, driven = :driven, clock_off_s = :clock_off_s,
steady_since = CASE WHEN seen_at > {NOW} - {MOST_GAP_S} AND steady_since > 0 THEN steady_since ELSE {NOW} END,
is_draining = {_DRAINS}, sweeps_until = CASE WHEN {_DRAINS} = 0 AND {_IS_SWEEPER} THEN {NOW} + :alive ELSE 0 END
WHERE name = :name AND process = :process
RETURNING is_draining, sweeps_until > {NOW}, {NOW}, EXISTS ({FIRST_IN_LINE}), ARRAY({_LEFT}), ARRAY({_BESIDE})
"""  # noqa: S608 - ours
_OPEN = ", ".join(f"'{state}'" for state in OPEN_STATES)
_FOR_ALL = f"""
SELECT ({HAS_PARTS}) AS has_queue, moment.now AS now,
(SELECT a.deadline_at FROM approvals AS a WHERE a.deadline_at IS NOT NULL AND a.state = 'pending'
 AND (SELECT r.state FROM runs AS r WHERE r.id = a.run_id) IN ({_OPEN}) ORDER BY a.deadline_at LIMIT 1)
    <= moment.now AS is_overdue,
EXISTS (SELECT 1 FROM schedules AS s WHERE s.is_paused = 0 AND s.next_at <= moment.now) AS has_schedule,
(SELECT coalesce(json_agg(DISTINCT queue), '[]')::text
 FROM workers AS w, json_array_elements_text(w.queues::json) AS queue
 WHERE w.is_draining = 0 AND w.seen_at > {NOW} - {ALIVE_S}) AS queues
FROM (SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24\\:MI\\:SS.MS"Z"') AS now) AS moment
"""  # noqa: S608 - ours


async def beat(
    db: Database,
    facts: WorkerFacts,
    *,
    driven: int,
    queue_parts: Sequence[str],
    clock_off_s: float = 0.0,
    is_draining: bool = False,
) -> Beat:
    """Give a sign of life, and if it falls to this worker look for all what is due; one transaction.

    With `is_draining` its row says from then on that it takes nothing more, until another process has its name.
    `queue_parts` are the names in the database without which the queue does not work.
    """
    async with db.session() as session:
        params = {"name": facts.name, "process": facts.process, "driven": driven, "alive": ALIVE_S}
        params["machine"] = process_owner.machine_mark()
        params |= {"clock_off_s": clock_off_s, "is_draining": int(is_draining)}
        row = (await session.execute(text(_BEAT), params)).first()
        if row is None:
            return Beat(is_known=False)
        is_sweeper = bool(row[1])
        found = Beat(
            *(True, float(row[2]), bool(row[0]), is_sweeper), has_flow_in_line=bool(row[3]), left=row[4], beside=row[5]
        )
        if is_sweeper:
            for_all = (await session.execute(text(_FOR_ALL), {"parts": list(queue_parts)})).one()
            due = await _sweep(db, session, has_queue=for_all.has_queue, queues=json.loads(for_all.queues))
            overdue_at = for_all.now if for_all.is_overdue else None
            found = replace(
                found, has_queue=for_all.has_queue, overdue_at=overdue_at, has_schedule=for_all.has_schedule, due=due
            )
        await session.commit()
    return found


# What every living worker that takes it has looked at in vain, and does not want to look at again yet.
_HELD = f"""
EXISTS (SELECT 1 FROM run_looks AS l WHERE l.run_id = {{run_id}} AND l.again_at > {NOW})
AND NOT EXISTS (SELECT 1 FROM workers AS w WHERE w.seen_at > {NOW} - {ALIVE_S} AND w.is_draining = 0 AND {{takes}}
    AND NOT EXISTS (SELECT 1 FROM run_looks AS l
                    WHERE l.run_id = {{run_id}} AND l.worker = w.name AND l.again_at > {NOW}))
"""  # noqa: S608 - ours
_TAKES_RUN = "jsonb_exists(w.queues::jsonb, runs.queue)"
_WAITS = "EXISTS (SELECT 1 FROM procrastinate_jobs AS q WHERE q.queueing_lock = {run_id} AND q.status = 'todo')"
# Made due a moment ago with a job beside it: that job waits, or somebody who has taken it is about to begin.
_IS_FRESH = f"""
f.wake_at <= f.updated_at AND f.updated_at > {NOW} - 1.0 AND octet_length(f.queue || '/' || f.flow) <= {MAX_NAME_BYTES}
"""
_IS_DRIVEN = "f.parent_run_id IS NULL AND f.status = 'running' AND f.wake_at IS NULL AND f.waits_for IS NULL"
# The time is asked for once: compared with a function that may change from row to row, no index would be used.
_DUE_FLOWS = f"""
SELECT f.* FROM flow_runs AS f WHERE f.parent_run_id IS NULL AND f.wake_at IS NOT NULL AND f.wake_at <= (SELECT {NOW})
UNION ALL
SELECT f.* FROM flow_runs AS f LEFT JOIN LATERAL (
    SELECT j.owner, j.lease_until FROM journal_runs AS j WHERE j.run_id = f.run_id LIMIT 1) AS j ON true
WHERE {_IS_DRIVEN} AND (j.owner IS NULL OR j.lease_until <= clock_timestamp())
"""  # noqa: S608 - ours
_UNHELD_FLOWS = f"""
SELECT f.run_id, f.queue, f.priority, f.flow FROM ({_DUE_FLOWS}) AS f
WHERE NOT ({{held}}) AND NOT ({_IS_FRESH}) {{more}} ORDER BY f.priority DESC, f.wake_at, f.run_id LIMIT :most
"""  # noqa: S608 - ours
# Of processes of this machine: that one is dead is seen, and nobody need wait for the end of its lease.
_LEFT_FLOWS = f"""
SELECT f.run_id, f.queue, f.priority, f.flow, j.owner FROM flow_runs AS f CROSS JOIN LATERAL (
    SELECT j.owner FROM journal_runs AS j WHERE j.run_id = f.run_id AND j.lease_until > clock_timestamp()
    AND position(:machine IN j.owner) > 0 LIMIT 1) AS j
WHERE {_IS_DRIVEN} AND NOT ({{held}}) {{more}}
"""  # noqa: S608 - ours


async def _sweep(db: Database, session: AsyncSession, *, has_queue: bool, queues: Sequence[str]) -> list[DueJob]:
    """Read what is due, in nobody's hand, and not waiting in the queue; of workflows' runs those that somebody takes.

    A run that nobody takes has no place of those that a limit has, however long it waits.
    """
    conditions = [text(f"NOT ({_HELD.format(run_id='runs.id', takes=_TAKES_RUN)})"), RunRow.queue.in_(queues)]
    more = ""
    if has_queue:
        conditions.append(text(f"NOT {_WAITS.format(run_id='runs.id')}"))
        more = f"AND NOT {_WAITS.format(run_id='f.run_id')}"
        await session.execute(text(CLEAR), {"silent": SILENT_S})
        await session.execute(text(RING))
    found = await read_unowned(db, session, *conditions, limit=_MOST_DUE)
    runs = [DueJob(run.run_id, run.queue, run.priority) for run in found]
    terms = {"held": _HELD.format(run_id="f.run_id", takes=TAKES_FLOW), "more": more}
    flows = list(await session.execute(text(_UNHELD_FLOWS.format(**terms)), {"most": _MOST_DUE}))
    here = await session.execute(text(_LEFT_FLOWS.format(**terms)), {"machine": process_owner.machine_mark()})
    flows += [row for row in here if process_owner.is_dead_text(row.owner)]
    return runs + [DueJob(row.run_id, row.queue, row.priority, row.flow) for row in flows]


_COUNT_FLOWS = f"""
SELECT f.queue, count(*), {NOW} - min(coalesce(f.wake_at, f.updated_at)) FROM ({_DUE_FLOWS}) AS f GROUP BY f.queue
"""  # noqa: S608 - ours


async def count_due(db: Database) -> tuple[dict[str, int], float]:
    """Count by queue what is due and not driven, and return for how many seconds the oldest of it has been so.

    A run whose time has not come, or that waits for a place of a limit, is not due: another worker would not help it.
    """
    times = select_due_times(db).subquery()
    oldest = func.extract("epoch", func.clock_timestamp() - cast(func.min(times.c.due_since), DateTime(timezone=True)))
    async with db.session() as session:
        runs = await session.execute(select(times.c.queue, func.count(), oldest).group_by(times.c.queue))
        found = [*runs, *await session.execute(text(_COUNT_FLOWS))]
    counts: Counter[str] = Counter()
    for queue, count, _ in found:
        counts[queue] += count
    return dict(counts), max(0.0, *(float(seconds or 0) for *_, seconds in found), 0.0)


async def find_takeovers(db: Database, run_id: str) -> tuple[int, tuple[int, ...]]:
    """Return where the journal of a run ends whose owner did not give it up, and where it ended at each of the last
    takeovers; none if it has no such owner. Of a run that is due it is one that is gone."""
    async with db.session() as session:
        query = text("SELECT head, takeovers FROM journal_runs WHERE run_id = :run_id AND owner IS NOT NULL")
        row = (await session.execute(query, {"run_id": run_id})).first()
    return (0, ()) if row is None else (int(row[0]), tuple(row[1] or ()))
