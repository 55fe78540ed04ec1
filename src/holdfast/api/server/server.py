"""What the routes of one running server share, opened when it starts and closed when it stops."""

import asyncio
import contextlib
import functools
import logging
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Request

from holdfast.agents.calls.rate_limits import RateLimits, get_rate_limits
from holdfast.api.live.feed import Feed
from holdfast.api.live.run_stream import RunStreams
from holdfast.api.options import ServerOptions
from holdfast.api.server.engines import Engines
from holdfast.api.server.fleet_metrics import DriveMetrics
from holdfast.api.server.flow_failures import FlowFailures
from holdfast.api.server.flow_questions import FlowQuestions
from holdfast.api.server.health_probe import HealthProbe
from holdfast.api.server.metrics import RunMetrics, observe_run
from holdfast.api.server.nightly_cleanup import clean_every_night
from holdfast.api.server.shared_work import SharedWork
from holdfast.concurrency import TaskTracker
from holdfast.config import Config
from holdfast.errors import HoldfastError
from holdfast.fleet.assembly import make_worker
from holdfast.fleet.drain import Drain
from holdfast.fleet.explanation import explain_run
from holdfast.fleet.limits import warn_of_differences
from holdfast.fleet.schedules import ScheduleClock
from holdfast.fleet.worker import Worker, WorkerOptions
from holdfast.flows.service.embedded_runtime import Runtime
from holdfast.flows.service.flow_registry import load_flows
from holdfast.persistence.access import find_valid_sessions, find_valid_tokens, forget_old
from holdfast.persistence.db import Database
from holdfast.persistence.models import SessionRow, TokenRow
from holdfast.persistence.statements import to_time_text
from holdfast.presentation.trace import RunTrace
from holdfast.runtime.coalescer import Coalescer
from holdfast.runtime.journal import Journal
from holdfast.runtime.run_fold.provider_wait import read_provider_waits
from holdfast.runtime.stores import open_journal

_MOST_TRACES = 32
_AT_ONCE = 500  # events folded before others get their turn: a long journal must not hold the whole server up


class TraceCache:
    """The traces of the runs that were looked at last, each read on from where it was."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: OrderedDict[str, tuple[RunTrace, asyncio.Lock]] = OrderedDict()

    async def get(self, run_id: str) -> RunTrace:
        """Return the run's trace up to its last event now; it is shared, so nobody may change it."""
        trace, lock = self._known.setdefault(run_id, (RunTrace(), asyncio.Lock()))
        self._known.move_to_end(run_id)
        while len(self._known) > _MOST_TRACES:
            self._known.popitem(last=False)
        async with lock:
            events = await self._journal.read(run_id, trace.last_seq)
            for start in range(0, len(events), _AT_ONCE):
                if start:
                    await asyncio.sleep(0)
                trace.extend(events[start : start + _AT_ONCE])
        return trace


_log = logging.getLogger("holdfast.api")


async def clean_for_ever(journal: Journal, options: ServerOptions) -> None:
    """Clean up now and every so often, until cancelled. Servers on one database may all do so."""
    while True:
        try:
            await clean(journal, options, now=datetime.now(UTC))
        except HoldfastError as error:
            _log.warning("Old sessions and keys could not be deleted; it is tried again: %s", error.message)
        except Exception:
            _log.warning("Old sessions and keys could not be deleted; it is tried again", exc_info=True)
        await asyncio.sleep(options.clean_every_s)


async def fire_for_ever(clock: ScheduleClock, options: ServerOptions) -> None:
    """Start the runs of schedules when their times come, until cancelled, where no worker does so."""
    while True:
        try:
            await clock.fire_due(patience_s=options.poll_s)
        except HoldfastError as error:
            _log.warning("Schedules could not be read; it is tried again: %s", error.message)
        except Exception:
            _log.warning("Schedules could not be read; it is tried again", exc_info=True)
        await asyncio.sleep(options.poll_s)


async def clean(journal: Journal, options: ServerOptions, *, now: datetime) -> None:
    await forget_old(
        journal,
        sessions_until=to_time_text(now),
        keys_until=to_time_text(now - timedelta(days=options.idempotency_days)),
    )


@dataclass(frozen=True)
class Server:
    """The parts of an open server."""

    config: Config
    options: ServerOptions
    db: Database
    journal: Journal
    engines: Engines
    worker: Worker | None
    """What drives runs here, unless others do."""
    flows: Runtime | None
    """What drives flows on SQLite, if the settings name modules of them; on Postgres the worker does."""
    run_streams: RunStreams
    feed: Feed
    metrics: RunMetrics
    drive_metrics: DriveMetrics
    rate_limits: RateLimits
    traces: TraceCache
    flow_questions: FlowQuestions
    flow_failures: FlowFailures
    tasks: TaskTracker
    health: HealthProbe
    availability: SharedWork[Path | None, Any]
    """Who is ready where: asks servers and keyrings, and anybody may want to know."""
    validations: SharedWork[str, Any]
    find_token: Coalescer[str, TokenRow | None]
    """Whose token it is, if it works; thousands of streams may ask at once, and share a query."""
    find_session: Coalescer[str, SessionRow | None]

    def find_reason(self, run_id: str) -> str | None:
        """Tell why a run that should go on does not, as far as this server knows."""
        drivers = (self.worker, self.flows)
        here = (driver.find_reason(run_id) for driver in drivers if driver is not None)
        return next(filter(None, here), None) or self.rate_limits.find_reason(run_id)

    async def explain(self, run_id: str) -> str | None:
        """Tell why a run that should go on does not, by what this server knows and what all workers say."""
        reason = self.find_reason(run_id) or await explain_run(self.db, run_id)
        return reason or (await self.find_waits([run_id])).get(run_id)

    async def find_waits(self, run_ids: Collection[str]) -> dict[str, str]:
        """Tell for which provider each of these runs waits that somebody drives, wherever that is."""
        return await self.journal.query(lambda store: read_provider_waits(store, run_ids)) if run_ids else {}

    def count_runs(self) -> tuple[int, int]:
        """Count the runs that are driven here, and those that wait here."""
        return (0, 0) if self.worker is None else (self.worker.count_driven(), self.worker.count_waiting())

    def wake(self) -> None:
        """See now to what is due, instead of in a moment, if runs are driven here."""
        if self.worker is not None:
            self.worker.wake()


class ServerHolder:
    """Holds the one open server of an app; made on first use where nobody runs the app's lifespan."""

    def __init__(self, config: Config, options: ServerOptions) -> None:
        self.config = config
        self.options = options
        self._server: Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._closing = contextlib.AsyncExitStack()

    async def get(self) -> Server:
        loop = asyncio.get_running_loop()
        if self._server is not None and self._loop is loop:
            return self._server
        if self._loop is not loop:
            self._loop, self._server, self._opening = loop, None, asyncio.Lock()
            self._closing = contextlib.AsyncExitStack()
        async with self._opening:
            if self._server is None:
                self._server = await self._open()
            return self._server

    def end_streams(self) -> None:
        if self._server is not None:
            self._server.run_streams.close()
            self._server.feed.close()

    def drain(self) -> Drain | None:
        """Let what is driven here end, before the server does; returns what that waits for."""
        worker = None if self._server is None else self._server.worker
        return None if worker is None else worker.drain()

    async def close(self) -> None:
        """Give up what is driven here, then close the database; the holder can be used again."""
        self.end_streams()
        self._server = None
        await self._closing.aclose()

    async def _open(self) -> Server:
        config, options = self.config, self.options
        async with contextlib.AsyncExitStack() as stack:
            db = Database(config.database_url, connections=config.database_connections)
            stack.push_async_callback(db.dispose)
            await db.init_schema()
            await warn_of_differences(db, config)
            metrics = RunMetrics()
            journal = await stack.enter_async_context(open_journal(db.store))
            feed = Feed(db, journal, max_queued=options.max_queued_events)
            stack.push_async_callback(feed.wait_closed)
            journal.add_commit_listener(metrics.note_commit)
            drive_metrics = DriveMetrics(journal.store.leases)
            journal.add_commit_listener(drive_metrics.note_commit)
            journal.add_commit_listener(feed.note_commit)
            cleaning = asyncio.create_task(clean_for_ever(journal, options), name="holdfast-cleaning")
            stack.push_async_callback(_end, cleaning)
            at_night = asyncio.create_task(clean_every_night(db, config), name="holdfast-night")
            stack.push_async_callback(_end, at_night)
            health = HealthProbe(db, journal, config.data_dir)
            stack.push_async_callback(health.wait_closed)
            engines = Engines(db, config)
            tasks = TaskTracker()
            stack.push_async_callback(tasks.drain)
            worker = _make_worker(db, journal, engines, metrics, config=config, options=options)
            if worker is not None:
                await worker.start()
                stack.push_async_callback(worker.stop)
            flows = _make_runtime(db, config=config, options=options)
            if flows is not None:
                await stack.enter_async_context(flows)
            if worker is None:
                # It may have repositories that no worker has; what a worker fires too is one run all the same.
                clock = ScheduleClock(db, engines)
                stack.push_async_callback(clock.close)
                firing = asyncio.create_task(fire_for_ever(clock, options))
                stack.push_async_callback(_end, firing)
            run_streams = RunStreams(db, journal, max_queued=options.max_queued_events)
            stack.push_async_callback(run_streams.wait_closed)
            self._closing = stack.pop_all()
            return Server(
                config=config,
                options=options,
                db=db,
                journal=journal,
                engines=engines,
                worker=worker,
                flows=flows,
                run_streams=run_streams,
                feed=feed,
                metrics=metrics,
                drive_metrics=drive_metrics,
                rate_limits=get_rate_limits(config),
                traces=TraceCache(journal),
                flow_questions=FlowQuestions(journal),
                flow_failures=FlowFailures(journal),
                tasks=tasks,
                health=health,
                availability=SharedWork(at_once=2),
                validations=SharedWork(at_once=1),
                find_token=Coalescer(functools.partial(find_valid_tokens, db)),
                find_session=Coalescer(functools.partial(find_valid_sessions, db)),
            )


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait((task,))


def _make_worker(
    db: Database, journal: Journal, engines: Engines, metrics: RunMetrics, *, config: Config, options: ServerOptions
) -> Worker | None:
    if not options.drives_runs:
        return None
    how = WorkerOptions(
        slots=config.max_parallel_runs,
        poll_s=options.poll_s,
        grace_s=max(options.grace_s, options.flow_grace_s),
        workflow_grace_s=options.grace_s,
    )

    async def observe(run_id: str) -> None:
        await observe_run(db, journal, run_id, metrics)

    return make_worker(db, journal, config, engines, how, on_end=observe)


def _make_runtime(db: Database, *, config: Config, options: ServerOptions) -> Runtime | None:
    if not options.drives_runs or not config.flows or db.path is None:
        return None
    load_flows(config.flows)
    return Runtime(db.store, grace_s=max(options.grace_s, options.flow_grace_s), poll_s=options.poll_s)


async def get_server(request: Request) -> Server:
    holder: ServerHolder = request.app.state.holder
    return await holder.get()


ServerDep = Annotated[Server, Depends(get_server)]
