"""A worker put together for a process: the queue that its database calls for, and what it can drive."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from holdfast.config import Config
from holdfast.fleet.in_process import InProcessQueue
from holdfast.fleet.port import Queue
from holdfast.fleet.run_drive import RunDrives
from holdfast.fleet.schedules import EngineSource, ScheduleClock
from holdfast.fleet.worker import Worker, WorkerOptions, default_name
from holdfast.flows.service.flow_registry import FlowDefinition, load_flows, to_definitions
from holdfast.flows.service.flow_times import FlowTimes
from holdfast.persistence.db import Database
from holdfast.persistence.fleet import QUEUES
from holdfast.runtime.journal import Journal


def make_queue(db: Database, options: WorkerOptions | None = None) -> Queue:
    """Make the queue for a database; whoever only writes to it needs no options."""
    if db.path is not None:
        return InProcessQueue()
    from holdfast.fleet.procrastinate_queue import ProcrastinateQueue

    options = options or WorkerOptions()
    return ProcrastinateQueue(db, queues=options.queues or QUEUES, flows=options.flows)


def list_queues(config: Config) -> tuple[str, ...]:
    """List the queues that runs and flows may name."""
    return tuple(dict.fromkeys((*config.queues, *QUEUES)))


def make_worker(
    db: Database,
    journal: Journal,
    config: Config,
    engines: EngineSource,
    options: WorkerOptions,
    *,
    on_end: Callable[[str], Awaitable[None]] | None = None,
) -> Worker:
    """Make a worker; without queues of its own it takes from all.

    Raises `ConfigInvalid` if a module of flows cannot be imported.
    """
    flows: dict[str, FlowDefinition] = {}
    if config.flows and db.path is None:
        load_flows(config.flows)
        flows = to_definitions(None)
    name = options.name or default_name()
    options = replace(options, name=name, queues=options.queues or list_queues(config), flows=tuple(sorted(flows)))
    queue = make_queue(db, options)
    # On one machine there is nobody to leave a run to: it fails, and says what is missing.
    is_shared = queue.describe().is_shared
    queues = options.queues if is_shared else None
    drives = RunDrives(db, journal, config, engines.for_repository, flows=flows, is_choosy=is_shared, queues=queues)
    times = FlowTimes(db.store, flows.values(), poll_s=options.poll_s)
    clock = ScheduleClock(db, engines, worker=name if is_shared else "")
    return Worker(db, journal, queue, drives, clock, options, flow_times=times, on_end=on_end)
