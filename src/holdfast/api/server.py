"""What the routes of one running server share, opened when it starts and closed when it stops."""

import asyncio
import contextlib
from dataclasses import dataclass

from fastapi import Request

from holdfast.agents.calls.rate_limits import Traffic, get_traffic
from holdfast.api.chronicles import Chronicles
from holdfast.api.cleaning import clean_for_ever
from holdfast.api.dispatch import Dispatcher, InProcessDispatcher, NoDispatcher
from holdfast.api.engines import Engines
from holdfast.api.feed import Feed
from holdfast.api.metrics import RunMetrics
from holdfast.api.nightly import clean_every_night
from holdfast.api.observing import observe_commits
from holdfast.api.options import ServerOptions
from holdfast.api.tails import Tails
from holdfast.concurrency import Undertakings
from holdfast.config import Config
from holdfast.persistence.db import Database
from holdfast.runtime.journal import Journal
from holdfast.runtime.stores import open_journal


@dataclass(frozen=True)
class Server:
    config: Config
    options: ServerOptions
    db: Database
    journal: Journal
    engines: Engines
    dispatcher: Dispatcher
    tails: Tails
    feed: Feed
    metrics: RunMetrics
    traffic: Traffic
    chronicles: Chronicles
    undertakings: Undertakings

    def find_reason(self, run_id: str) -> str | None:
        """Why a run that should go on does not, as far as this server knows."""
        return self.dispatcher.find_reason(run_id) or self.traffic.find_reason(run_id)


class ServerPlace:
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
            self._server.tails.close()
            self._server.feed.close()

    async def close(self) -> None:
        """Give up what is driven here, then close the database; the place can be used again."""
        self.end_streams()
        self._server = None
        await self._closing.aclose()

    async def _open(self) -> Server:
        config, options = self.config, self.options
        async with contextlib.AsyncExitStack() as stack:
            db = Database(config.database_url, connections=config.database_connections)
            stack.push_async_callback(db.dispose)
            await db.init_schema()
            metrics = RunMetrics()
            journal = await stack.enter_async_context(open_journal(db.store))
            feed = Feed(db, journal, max_queued=options.max_queued_events)
            stack.push_async_callback(feed.wait_closed)
            observe_commits(journal, metrics, feed.note_commit)
            cleaning = asyncio.create_task(clean_for_ever(journal, options), name="holdfast-cleaning")
            stack.push_async_callback(_end, cleaning)
            at_night = asyncio.create_task(clean_every_night(db, config), name="holdfast-night")
            stack.push_async_callback(_end, at_night)
            engines = Engines(db, config)
            undertakings = Undertakings()
            stack.push_async_callback(undertakings.drain)
            dispatcher = _make_dispatcher(db, journal, engines, metrics, config=config, options=options)
            await dispatcher.start()
            stack.push_async_callback(dispatcher.stop)
            tails = Tails(db, journal, max_queued=options.max_queued_events)
            self._closing = stack.pop_all()
            return Server(
                config=config,
                options=options,
                db=db,
                journal=journal,
                engines=engines,
                dispatcher=dispatcher,
                tails=tails,
                feed=feed,
                metrics=metrics,
                traffic=get_traffic(config),
                chronicles=Chronicles(journal),
                undertakings=undertakings,
            )


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait((task,))


def _make_dispatcher(
    db: Database, journal: Journal, engines: Engines, metrics: RunMetrics, *, config: Config, options: ServerOptions
) -> Dispatcher:
    if not options.has_dispatcher:
        return NoDispatcher()
    return InProcessDispatcher(
        db,
        journal,
        engines,
        metrics,
        max_parallel=config.max_parallel_runs,
        poll_s=options.poll_s,
        grace_s=options.grace_s,
    )


async def get_server(request: Request) -> Server:
    place: ServerPlace = request.app.state.place
    return await place.get()
