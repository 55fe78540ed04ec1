"""The line of a schedule's flows: runs that are due only when no earlier one of their schedule is open.

Rule: whoever looks for what is due calls up the first of each line. All do it under one lock, and what they change says
again who is the first: of two that look at once, the second sees whom the first has called.
"""

from holdfast.runtime.checkpoint.base import JournalStore, Statement
from holdfast.runtime.clock import now
from holdfast.runtime.flow_rows import IN_LINE, OF_SCHEDULE

LINE_JOURNAL = "holdfast-line"
"""Whoever calls up appends to it: its head is the lock. It has no events."""
_FIRST = f"""
SELECT q.run_id FROM flow_runs AS q WHERE {OF_SCHEDULE.format("q.")} AND q.schedule = {{0}}.schedule
AND {IN_LINE.format("q.")} ORDER BY q.created_at, q.run_id LIMIT 1
"""  # noqa: S608 - ours
_NONE_OPEN = f"""
NOT EXISTS (SELECT 1 FROM flow_runs AS o WHERE {OF_SCHEDULE.format("o.")} AND o.schedule = {{0}}.schedule
            AND NOT ({IN_LINE.format("o.")}))
"""  # noqa: S608 - ours
# The first of each, not each that none is before: that would compare all in a line with one another.
FIRST_IN_LINE = f"""
SELECT ({_FIRST.format("s")}) AS run_id FROM (SELECT DISTINCT schedule FROM flow_runs
    WHERE {OF_SCHEDULE.format("")} AND {IN_LINE.format("")}) AS s WHERE {_NONE_OPEN.format("s")}
"""  # noqa: S608 - ours
_CALL_UP = f"""
UPDATE flow_runs SET wake_at = :now, called_up_at = :now, updated_at = :now, waits_for = NULL
WHERE run_id = :run_id AND {IN_LINE.format("")} AND run_id = ({_FIRST.format("flow_runs")})
AND {_NONE_OPEN.format("flow_runs")}
"""  # noqa: S608 - ours


def called_up(run_id: str) -> Statement:
    """Make a run due that stands in line, if it is still the first there and no other of its schedule is open."""
    return Statement(_CALL_UP, {"run_id": run_id, "now": now()}, None)


def read_first_in_line(store: JournalStore) -> list[str]:
    """Read the ids of the runs whose turn has come, the first of each schedule."""
    return [run_id for (run_id,) in store.read_rows(FIRST_IN_LINE, {})]
