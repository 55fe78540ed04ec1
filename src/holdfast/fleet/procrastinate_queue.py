"""The queue of a fleet: Procrastinate's jobs in the database of the runs, as delivery and nothing more.

Rule: a job is `drive(run_id)` with the run's id as its queueing lock and no lock, and is never tried again by the
queue. The first one that comes rings: all others that have a place are taken in one statement. The library's loop is
ended whenever the database was away, and begun anew; what is driven is no task of it and goes on.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

from holdfast.extras import name_missing_extra
from holdfast.fleet.job_rows import JobRows, to_queue_name
from holdfast.fleet.port import QueueDescription, RunTaker
from holdfast.persistence.db import Database, limit_connection
from holdfast.persistence.due.beat import DueJob
from holdfast.persistence.queue_tables import (
    HAS_HEARTBEAT,
    OWN_PARTS,
    TAKE_WAITING,
    TASK,
    QueueSchema,
    enqueue_all,
    make_queue_tables,
)

with name_missing_extra(__name__):
    import procrastinate
    from procrastinate.worker import Worker as JobLoop

_AGAIN_S = 1.0
_POLL_S = 20.0  # a notice that was lost is made good by the sweep, which is sooner
_HEARTBEAT_S = 20.0
_SILENT_S = 3 * _HEARTBEAT_S  # until the row of a loop is removed by the next one that begins, whosever it is
_ABORT_S = 300.0  # nobody aborts a job: what ends a run is written in its journal
_SCHEMA_SQL = procrastinate.schema.SchemaManager.get_schema()
_PART = re.compile(r"^CREATE (?:UNIQUE )?(?:TABLE|TYPE|INDEX|FUNCTION|TRIGGER) (\w+)", re.MULTILINE)
_SCHEMA = QueueSchema(
    version=max(path.name for path in Path(procrastinate.schema.SchemaManager.get_migrations_path()).glob("*.sql")),
    sql=_SCHEMA_SQL,
    parts=(*OWN_PARTS, *sorted(set(_PART.findall(_SCHEMA_SQL)))),
)
_log = logging.getLogger("holdfast.fleet")
# The library tells of a listener that ends with a page of traceback. The loop is begun anew then, and the sweep says
# that the database is away.
logging.getLogger("procrastinate.utils").addFilter(lambda record: getattr(record, "action", "") != "listener_error")


class _Connection(Protocol):
    autocommit: bool


class _LoopWatch:
    """Ends the library's loop when its listener or its heartbeat has ended: by itself it would go on without them.

    Without the first it hears of no job; without the second its row is removed, and the next job it fetches is refused.
    """

    def __init__(self) -> None:
        self._listener: asyncio.Task[Any] | None = None
        self._is_deaf = asyncio.Event()

    async def note_listener(self, connection: _Connection) -> None:
        """Watch the task that has opened this connection if it is the one that listens; only that commits by itself."""
        if connection.autocommit and (task := asyncio.current_task()) is not self._listener:
            assert task is not None
            self._listener = task
            task.add_done_callback(lambda _task: self._is_deaf.set())

    async def end(self, loop: JobLoop, connector: procrastinate.PsycopgConnector) -> None:
        """End the loop as soon as one of them is gone."""
        while not self._is_deaf.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_HEARTBEAT_S):
                    await self._is_deaf.wait()
            if self._listener is None or not await self._has_row(loop, connector):
                break
        _log.info("The queue was out of reach for a while; its loop is begun anew")
        loop.stop()  # type: ignore[no-untyped-call]  # the library says no types here

    async def _has_row(self, loop: JobLoop, connector: procrastinate.PsycopgConnector) -> bool:
        try:
            late_s = 2 * _HEARTBEAT_S
            return bool(await connector.execute_query_all_async(HAS_HEARTBEAT, worker_id=loop.worker_id, late_s=late_s))
        except procrastinate.exceptions.ConnectorException:
            return False


class ProcrastinateQueue(JobRows):
    """Takes jobs of these queues, and of these flows in them."""

    def __init__(self, db: Database, *, queues: Collection[str], flows: Collection[str] = ()) -> None:
        self._db = db
        self._names = [to_queue_name(queue, flow) for queue in queues for flow in ("", *flows)]
        self._is_stopped = False
        self._serving: asyncio.Task[None] | None = None
        self._taking: asyncio.Task[int] | None = None
        self._in_hand: dict[str, tuple[str, int]] = {}
        """Of the runs that the taker has: under which name, and how urgently, they were waiting."""

    async def enqueue(self, jobs: Sequence[DueJob]) -> None:
        named = {job.run_id: (to_queue_name(job.queue, job.flow), job.priority) for job in jobs}
        await enqueue_all(self._db, named)

    async def repair(self) -> None:
        await make_queue_tables(self._db, _SCHEMA)

    async def serve(self, taker: RunTaker) -> None:
        while not self._is_stopped:
            try:
                await self.repair()
                self._serving = asyncio.create_task(self._serve(taker), name="holdfast-queue")
                await asyncio.wait([self._serving])
                if not self._is_stopped:
                    self._serving.result()
            except Exception as error:
                _log.info("The queue is out of reach and is tried again: %s", error)
            await asyncio.sleep(0 if self._is_stopped else _AGAIN_S)

    async def _serve(self, taker: RunTaker) -> None:
        watch = _LoopWatch()

        async def configure(connection: Any) -> None:
            await watch.note_listener(connection)
            await limit_connection(connection)

        connector = procrastinate.PsycopgConnector(
            conninfo=self._db.conninfo, min_size=1, max_size=1, timeout=5.0, configure=configure
        )
        app = procrastinate.App(connector=connector)

        @app.task(name=TASK, pass_context=True)
        async def drive(context: procrastinate.JobContext, run_id: str) -> None:
            self._hand_over(taker, run_id, context.job.queue, context.job.priority)
            # A doorbell: what else waits is taken at once, as long as there are places. The job lasts until there is
            # one, so that the library brings nothing that has none.
            is_more = True
            while is_more and not self._is_stopped:
                places = await taker.wait_for_place()
                self._taking = asyncio.create_task(self._take_waiting(connector, taker, places))
                is_more = await asyncio.shield(self._taking) == places

        loop = JobLoop(
            app,
            queues=self._names,
            concurrency=1,
            install_signal_handlers=False,
            delete_jobs="always",
            fetch_job_polling_interval=_POLL_S,
            abort_job_polling_interval=_ABORT_S,
            update_heartbeat_interval=_HEARTBEAT_S,
            stalled_worker_timeout=_SILENT_S,
            shutdown_graceful_timeout=0.0,
        )
        async with app.open_async():
            watching = asyncio.create_task(watch.end(loop, connector), name="holdfast-queue-watch")
            try:
                await loop.run()  # type: ignore[no-untyped-call]  # nor here
            finally:
                watching.cancel()
                await asyncio.wait([watching])

    async def _take_waiting(self, connector: procrastinate.PsycopgConnector, taker: RunTaker, most: int) -> int:
        """Hand over so many of the runs that wait, in one statement; returns how many there were."""
        try:
            found = await connector.execute_query_all_async(TAKE_WAITING, queues=self._names, most=most)
        except procrastinate.exceptions.ConnectorException:
            return 0  # the loop sees for itself that the database is away
        # crash: nobody is told of these any more; the sweep finds them.
        if self._is_stopped:
            await enqueue_all(self._db, {job["run_id"]: (job["queue"], job["priority"]) for job in found})
        else:
            for job in found:
                self._hand_over(taker, job["run_id"], job["queue"], job["priority"])
        return len(found)

    def _hand_over(self, taker: RunTaker, run_id: str, queue: str, priority: int) -> None:
        task = taker.take(run_id)
        if task is not None:
            self._in_hand[run_id] = queue, priority
            task.add_done_callback(lambda _task: self._in_hand.pop(run_id, None))

    async def put_back(self, run_ids: Sequence[str]) -> None:
        await enqueue_all(self._db, {run_id: self._in_hand[run_id] for run_id in run_ids if run_id in self._in_hand})

    async def stop(self) -> None:
        self._is_stopped = True
        if self._taking is not None:
            await asyncio.wait([self._taking], timeout=_AGAIN_S)
        if self._serving is not None:
            self._serving.cancel()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await asyncio.wait([self._serving], timeout=10.0)

    def describe(self) -> QueueDescription:
        return QueueDescription("procrastinate", is_shared=True, parts=_SCHEMA.parts)
