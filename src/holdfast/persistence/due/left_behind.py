"""What a process has left behind by dying: runs and flows that it still holds by its lease, for its own machine to see.

Rule: whoever is on the same machine knows at once that the owner is dead, and has what it left: the worktree, and
commands that go on without it. All others wait for the end of the lease.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from sqlalchemy import text

from holdfast.persistence.db import Database
from holdfast.persistence.due.indexes import due_conditions
from holdfast.persistence.due.still_runs import RUN_FORMAT
from holdfast.runtime.checkpoint import process_owner

_MOST_LEFT = 1000
_PROLONGED = "+"
"""Behind the token of an owner whose lease was prolonged after its death: that is done once."""
_DUE = due_conditions(is_sqlite=False)
_HELD = """
CROSS JOIN LATERAL (SELECT j.owner FROM journal_runs AS j WHERE j.run_id = {run_id}
    AND j.lease_until > clock_timestamp() AND position(:machine IN j.owner) > 0 LIMIT 1) AS j
"""
_LEFT = f"""
SELECT runs.id AS run_id, j.owner FROM runs {_HELD.format(run_id="runs.id")}
WHERE (({_DUE["runs_open"]}) OR ({_DUE["runs_later"]})) AND runs.format <= :format AND runs.queue = ANY(:queues)
AND NOT EXISTS (SELECT 1 FROM run_bases AS b WHERE b.run_id = runs.id AND b.place NOT IN ('', :place))
UNION ALL
SELECT f.run_id, j.owner FROM flow_runs AS f {_HELD.format(run_id="f.run_id")}
WHERE f.parent_run_id IS NULL AND f.status = 'running' AND f.wake_at IS NULL AND f.waits_for IS NULL
AND f.queue = ANY(:queues) AND f.flow = ANY(:flows)
LIMIT {_MOST_LEFT}
"""  # noqa: S608 - ours
_PROLONG = """
UPDATE journal_runs AS r SET owner = c.marked,
    lease_until = greatest(r.lease_until, clock_timestamp() + make_interval(secs => :lease_s))
FROM unnest(CAST(:run_ids AS text[]), CAST(:owners AS text[]), CAST(:marked AS text[])) AS c (run_id, owner, marked)
WHERE r.run_id = c.run_id AND r.owner = c.owner AND r.lease_until > clock_timestamp()
RETURNING r.run_id
"""


async def keep_left(
    db: Database, *, place: str, queues: Collection[str], flows: Collection[str], most: int
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the runs and flows that a dead process of this machine still holds, and whose files are in this place; and
    those of them that nobody else takes for another lease, so that they can be claimed in peace.

    A lease is prolonged once: if whoever wants the run dies as well, the next machine has its turn.
    """
    params = {
        "machine": process_owner.machine_mark(),
        "format": RUN_FORMAT,
        "queues": list(queues),
        "flows": list(flows),
        "place": place,
    }
    async with db.session() as session:
        rows = await session.execute(text(_LEFT), params)
        dead = [(row.run_id, row.owner) for row in rows if process_owner.is_dead_text(row.owner)][:most]
        new = [(run_id, owner, marked) for run_id, owner in dead if (marked := _mark(owner)) != owner]
        safe: list[str] = []
        if new:
            run_ids, owners, marks = (list(column) for column in zip(*sorted(new), strict=True))
            columns = {"run_ids": run_ids, "owners": owners, "marked": marks, "lease_s": db.store.lease_s}
            safe = list(await session.scalars(text(_PROLONG), columns))
        await session.commit()
    return [run_id for run_id, _ in dead], safe


def _mark(text_of_owner: str) -> str:
    owner = process_owner.from_text(text_of_owner)
    if owner is None or owner.token.endswith(_PROLONGED):
        return text_of_owner
    return replace(owner, token=owner.token + _PROLONGED).to_text()
