"""For which providers runs wait, read from their journals: the same on every server and for every command.

Rule: nothing is written for it. A run that stands still writes no events, so its last few ones say why; of a run that
nobody drives they say nothing.
"""

import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.persistence.raw_sql import query
from holdfast.runtime.clock import now
from holdfast.runtime.run_fold.provider_wait import WAIT_KINDS, find_wait

if TYPE_CHECKING:
    from holdfast.runtime.checkpoint.base import JournalStore

_LAST_EVENTS = 20  # of one run; other lanes, and people, may write while one of its lanes waits
_SQL = f"""
SELECT e.run_id, e.type, e.body FROM journal_runs AS j JOIN events AS e ON e.run_id = j.run_id
WHERE j.run_id IN ({{names}}) AND e.seq >= (SELECT min(w.seq) FROM events AS w
    WHERE w.run_id = j.run_id AND w.seq > j.head - {_LAST_EVENTS} AND w.type IN {WAIT_KINDS})
ORDER BY e.run_id, e.seq
"""  # noqa: S608 - ours


def read_provider_waits(store: "JournalStore", run_ids: Collection[str]) -> dict[str, str]:
    """Say of each of these runs that a living process drives, and that waits for a provider, for which and why."""
    found = _describe(store.read_rows(*_select(run_ids))) if run_ids else {}
    owned = store.find_owned(list(found)) if found else set()
    return {run_id: text for run_id, text in found.items() if run_id in owned}


def find_provider_waits(driven: Collection[str]) -> dict[str, str]:
    """Say the same of runs of the configured database that are known to be driven."""
    rows = query(*_select(driven)) if driven else []
    return _describe([(row["run_id"], row["type"], row["body"]) for row in rows])


def _select(run_ids: Collection[str]) -> tuple[str, dict[str, str]]:
    params = {f"run_{number}": run_id for number, run_id in enumerate(run_ids)}
    return _SQL.format(names=", ".join(f":{name}" for name in params) or "NULL"), params


def _describe(rows: Sequence[Sequence[Any]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for run_id, events in itertools.groupby(rows, key=lambda row: str(row[0])):
        wait = find_wait(((str(kind), _read_body(body)) for _, kind, body in events), now())
        if wait is not None:
            found[run_id] = wait.describe()
    return found


def _read_body(body: str) -> Mapping[str, Any]:
    found = json.loads(body)
    return found if isinstance(found, dict) else {}
