"""The job of a run: what brings it to a worker, written in the transaction that makes it due.

Rule: it only says that somebody should look. Without it the run is found by the next look for what is due.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from holdfast.engine.run.create import DEFAULT_QUEUE, RunOrder
from holdfast.persistence.models import RunRow
from holdfast.runtime.checkpoint.base import Statement


class JobWriter(Protocol):
    """Knows how a run is brought to those who drive runs."""

    def beside(
        self, run_id: str, *, queue: str, priority: int = 0, flow: str = "", at: datetime | None = None
    ) -> Sequence[Statement]:
        """Return what is written with the events that make a run due, so that whoever takes runs hears of it at once.

        It never refuses them. A run that is due later is found by the sweep.
        """
        ...


def job_of_new(writer: JobWriter | None, run_id: str, order: RunOrder) -> Sequence[Statement]:
    """Return the job of a run that is made for others to drive; nothing if nobody is to be told."""
    if writer is None:
        return ()
    at = None if order.due_at is None else datetime.fromisoformat(order.due_at)
    return writer.beside(run_id, queue=order.queue or DEFAULT_QUEUE, priority=order.priority, at=at)


def job_of_run(writer: JobWriter | None, run: RunRow) -> Sequence[Statement]:
    """Return the job of a run that goes on now."""
    return job_of_new(writer, run.id, RunOrder(run.queue, run.priority))
