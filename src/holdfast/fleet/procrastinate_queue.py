"""The queue of a fleet: Procrastinate's jobs in the database of the runs, as delivery and nothing more.

Rule: a job is `drive(run_id)` with the run's id as its queueing lock and no lock, and is never tried again by the
queue. Its loop ends whenever the database is away; what is driven is no task of it and goes on, and it is begun anew.
"""

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Collection, Sequence
from datetime import datetime

from holdfast.extras import name_missing_extra
from holdfast.fleet.port import QueueDescription, RunTaker
from holdfast.persistence.db import Database
from holdfast.persistence.fleet import DueJob
from holdfast.persistence.queue_tables import MAX_NAME_BYTES, enqueue, enqueue_all, make_queue_tables
from holdfast.runtime.checkpoint.base import Statement

with name_missing_extra(__name__):
    import procrastinate

_AGAIN_S = 1.0
_POLL_S = 20.0  # a notice that was lost is made good by the sweep, which is sooner
_HEARTBEAT_S = 20.0
_ABORT_S = 300.0  # nobody aborts a job: what ends a run is written in its journal
_IDLE_S = 10.0
_NETWORK = "connect_timeout=5 keepalives_idle=5 keepalives_interval=2 keepalives_count=3 tcp_user_timeout=10000"
_log = logging.getLogger("holdfast.fleet")


def to_queue_name(queue: str, flow: str = "") -> str:
    """Return the name under which runs of a queue, and of a flow, wait: who does not know the flow does not listen."""
    name = f"{queue}/{flow}" if flow else queue
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    return hashlib.blake2b(name.encode(), digest_size=16).hexdigest()


class ProcrastinateQueue:
    """Takes jobs of these queues, and of these flows in them."""

    def __init__(self, db: Database, *, queues: Collection[str], flows: Collection[str] = ()) -> None:
        self._db = db
        self._names = [to_queue_name(queue, flow) for queue in queues for flow in ("", *flows)]
        self._is_stopped = False
        self._serving: asyncio.Task[None] | None = None

    def beside(
        self, run_id: str, *, queue: str, priority: int = 0, flow: str = "", at: datetime | None = None
    ) -> Sequence[Statement]:
        # A job for later would keep its run from being enqueued sooner: the sweep knows the time.
        return () if at is not None else (enqueue(run_id, to_queue_name(queue, flow), priority),)

    async def enqueue(self, jobs: Sequence[DueJob]) -> None:
        named = {job.run_id: (to_queue_name(job.queue, job.flow), job.priority) for job in jobs}
        await enqueue_all(self._db, named)

    async def repair(self) -> None:
        await make_queue_tables(self._db, procrastinate.schema.SchemaManager.get_schema())

    async def serve(self, taker: RunTaker, slots: int) -> None:
        while not self._is_stopped:
            try:
                await self.repair()
                self._serving = asyncio.create_task(self._serve(taker, slots), name="holdfast-queue")
                await asyncio.wait([self._serving])
                if not self._is_stopped:
                    self._serving.result()
            except Exception as error:
                _log.info("The queue is out of reach and is tried again: %s", error)
            await asyncio.sleep(0 if self._is_stopped else _AGAIN_S)

    async def _serve(self, taker: RunTaker, slots: int) -> None:
        conninfo = f"{self._db.address}{'&' if '?' in self._db.address else '?'}{_NETWORK.replace(' ', '&')}"
        connector = procrastinate.PsycopgConnector(
            conninfo=conninfo, min_size=1, max_size=2, max_idle=_IDLE_S, timeout=5.0
        )
        app = procrastinate.App(connector=connector)

        @app.task(name="drive")
        async def drive(run_id: str) -> None:
            if (task := taker.take(run_id)) is not None:
                await asyncio.wait([task])  # not awaited: the end of this job is not the end of the drive

        async with app.open_async():
            await app.run_worker_async(
                queues=self._names,
                concurrency=slots,
                install_signal_handlers=False,
                delete_jobs="always",
                fetch_job_polling_interval=_POLL_S,
                abort_job_polling_interval=_ABORT_S,
                update_heartbeat_interval=_HEARTBEAT_S,
                stalled_worker_timeout=_HEARTBEAT_S * 3,
                shutdown_graceful_timeout=0.0,
            )

    async def stop(self) -> None:
        self._is_stopped = True
        if self._serving is not None:
            self._serving.cancel()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await asyncio.wait([self._serving], timeout=10.0)

    def describe(self) -> QueueDescription:
        return QueueDescription("procrastinate", is_shared=True)
