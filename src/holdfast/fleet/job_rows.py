"""Jobs as rows of the runs' database. Whoever makes runs due and takes none needs no library of the queue for it."""

import hashlib
from collections.abc import Sequence
from datetime import datetime

from holdfast.engine.run.job import JobWriter
from holdfast.fleet.in_process import InProcessQueue
from holdfast.persistence.db import Database
from holdfast.persistence.fleet import MAX_NAME_BYTES
from holdfast.persistence.queue_tables import enqueue
from holdfast.runtime.checkpoint.base import Statement


def to_queue_name(queue: str, flow: str = "") -> str:
    """Return the name under which runs of a queue, and of a flow, wait: who does not know the flow does not listen."""
    name = f"{queue}/{flow}" if flow else queue
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    return hashlib.blake2b(name.encode(), digest_size=16).hexdigest()


class JobRows:
    """Writes a job beside the events that make its run due."""

    def beside(
        self, run_id: str, *, queue: str, priority: int = 0, flow: str = "", at: datetime | None = None
    ) -> Sequence[Statement]:
        # A job for later would keep its run from being enqueued sooner: the sweep knows the time.
        return () if at is not None else (enqueue(run_id, to_queue_name(queue, flow), priority),)


def make_job_writer(db: Database) -> JobWriter:
    """Make what writes jobs on a database; where one process drives all, it finds what is due by itself."""
    return InProcessQueue() if db.path is not None else JobRows()
