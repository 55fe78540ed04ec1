"""What there is to know of runs that nobody drives: the workers, and who of them looked in vain.

Rule: a list asks this for all its runs at once, and a command without an ORM asks it too. So here are the queries and
what their rows mean, and whoever asks brings the connection. All of it is Postgres, and times are the server's alone.
"""

import itertools
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.config import Config, load_config

ALIVE_S = 6.0  # as long as a lease: who has been silent for longer is passed over
NOW = "extract(epoch FROM clock_timestamp())::float8"
RUN_FORMAT = 1
"""The newest format of runs that this version can drive; it leaves runs of a newer one alone."""


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
class Look:
    worker: str
    missing: str
    reason: str


@dataclass(frozen=True)
class StillRun:
    """A run of a workflow that is not over and not paused, and that no living process drives."""

    run_id: str
    queue: str
    format: int
    looks: Sequence[Look]


def describe_newer(run_format: int) -> str:
    """Say that this version leaves a run of a format alone, which is newer than those that it can drive."""
    return (
        f"A newer holdfast has written it, in format {run_format}; this one drives formats up to {RUN_FORMAT}, and "
        "leaves it alone."
    )


def is_newer(run_format: int) -> bool:
    """Tell whether a run's format is too new for this version."""
    return run_format > RUN_FORMAT


SELECT_WORKERS = f"""
SELECT name, machine, version, since, slots, driven, {NOW} - seen_at AS silent_s, is_draining, queues, flows,
clock_off_s FROM workers ORDER BY name
"""  # noqa: S608 - ours
_IS_ALIVE = f"w.name = l.worker AND w.seen_at > {NOW} - {ALIVE_S}"
SELECT_LOOKS = f"""
SELECT l.run_id, l.worker, l.missing, l.reason FROM run_looks AS l JOIN workers AS w ON {_IS_ALIVE}
WHERE l.run_id = ANY(:run_ids) ORDER BY l.run_id, l.worker
"""  # noqa: S608 - ours
SELECT_STILL = f"""
SELECT r.id, r.queue, r.format, j.owner, l.worker, l.missing, l.reason FROM runs AS r
LEFT JOIN journal_runs AS j ON j.run_id = r.id AND j.owner IS NOT NULL AND j.lease_until > clock_timestamp()
LEFT JOIN (run_looks AS l JOIN workers AS w ON {_IS_ALIVE}) ON l.run_id = r.id
WHERE r.id = ANY(:run_ids) AND r.state IN ('pending', 'running') ORDER BY r.id, l.worker
"""  # noqa: S608 - ours


def to_worker(*values: Any) -> ListedWorker:
    """Return a row of `SELECT_WORKERS` as a worker."""
    name, machine, version, since, slots, driven, silent_s, is_draining, queues, flows, off_s = values
    return ListedWorker(
        *(name, machine, version, float(since), slots, driven, max(0.0, float(silent_s)), bool(is_draining)),
        *(json.loads(queues), json.loads(flows), float(off_s)),
    )


def collect_still(rows: Iterable[Sequence[Any]]) -> list[StillRun]:
    """Return what the rows of `SELECT_STILL` say; those are left out whose owner lives, as far as is seen here."""
    from holdfast.runtime.checkpoint import process_owner  # a list without such runs does not need it

    found = []
    for (run_id, queue, run_format, owner), group in itertools.groupby(rows, key=lambda row: tuple(row[:4])):
        looks = [Look(*row[4:]) for row in group if row[4] is not None]
        if owner is None or process_owner.is_dead_text(owner):
            found.append(StillRun(run_id, queue, run_format, looks))
    return found


def query_still(run_ids: Collection[str], *, config: Config | None = None) -> tuple[list[ListedWorker], list[StillRun]]:
    """Read the workers, and those of these runs that nobody drives, with plain SQL; on SQLite there are none."""
    from holdfast.persistence.raw_sql import query

    config = config or load_config()
    if config.database_path is not None or not run_ids:
        return [], []
    rows = query(SELECT_STILL, {"run_ids": list(run_ids)}, config=config)
    still = collect_still(tuple(row.values()) for row in rows)
    workers = query(SELECT_WORKERS, config=config) if still else []
    return [to_worker(*row.values()) for row in workers], still
