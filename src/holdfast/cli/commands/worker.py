"""The commands worker and workers: drive runs from Postgres; see who does so, and let one of them end."""

import asyncio
import contextlib
import signal
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from holdfast.errors import ConfigInvalid


def worker(
    slots: Annotated[int, typer.Option("--slots", min=1, max=1000, help="How many runs it drives at a time.")] = 8,
    queues: Annotated[
        str | None, typer.Option("--queues", metavar="A,B", help="The queues that it takes runs from.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Its name; else the machine's, and a number.")] = None,
    flows: Annotated[
        list[str] | None,
        typer.Option("--flows", metavar="MODULE", help="Drive the flows of this module, or file that ends in .py."),
    ] = None,
    grace: Annotated[
        float, typer.Option("--grace", min=0, help="Seconds that calls in flight have to end when it is stopped.")
    ] = 60.0,
    metrics_port: Annotated[
        int | None, typer.Option("--metrics-port", min=0, max=65535, help="Serve /metrics on this port.")
    ] = None,
    metrics_host: Annotated[
        str, typer.Option("--metrics-host", help="The address on which it serves /metrics, to all who reach it.")
    ] = "127.0.0.1",
) -> None:
    """Drive runs and flows from a Postgres database, beside as many other workers as you like.

    A worker that dies is noticed in seconds, and its runs go on elsewhere. SIGTERM lets calls in flight end.

    Example: holdfast worker --slots 8 --flows shop.flows
    """
    import logging

    from holdfast.cli.log_output import show_log
    from holdfast.config import load_config
    from holdfast.fleet.worker import WorkerOptions
    from holdfast.keys import hide_environment

    config = load_config(flows=flows or None)
    if config.database_path is not None:
        raise ConfigInvalid(
            "A worker needs a Postgres database, which machines can share; this one is a SQLite file.",
            hint="Use holdfast serve, or set HOLDFAST_DATABASE_URL to a postgresql:// URL.",
            key="database_url",
        )
    show_log(is_json=False, level=logging.WARNING)
    hide_environment()
    named = tuple(dict.fromkeys(part.strip() for part in (queues or "").split(",") if part.strip()))
    if queues is not None and not named:
        raise ConfigInvalid("--queues names no queue.", hint="For example: --queues runs,gpu", key="--queues")
    _check_queues(named, config)
    options = WorkerOptions(name=name or "", slots=slots, queues=named, grace_s=grace)
    if metrics_port is None and metrics_host != "127.0.0.1":
        raise ConfigInvalid(
            "--metrics-host says where, and --metrics-port is missing.",
            hint="For example: --metrics-port 9090",
            key="--metrics-host",
        )
    asyncio.run(_run(config, options, None if metrics_port is None else (metrics_host, metrics_port)))


def _check_queues(names: tuple[str, ...], config: Any) -> None:
    """Raise `QueueUnknown` for a queue that no run can name: the worker would wait there for ever."""
    from holdfast.errors import QueueUnknown, did_you_mean
    from holdfast.persistence.fleet import QUEUES

    known = tuple(dict.fromkeys((*config.queues, *QUEUES)))
    for name in names:
        if name not in known:
            raise QueueUnknown(
                f"There is no queue {name!r}.{did_you_mean(name, known)}",
                hint=f"There are {', '.join(known)}; the setting `queues` names more: HOLDFAST_QUEUES=runs,{name}",
            )


async def _run(config: Any, options: Any, metrics_address: tuple[str, int] | None) -> None:
    """Drive until a signal, or until somebody drains it."""
    from holdfast.api.server.engines import Engines
    from holdfast.api.server.fleet_metrics import DriveMetrics, serve_metrics
    from holdfast.fleet.assembly import make_worker
    from holdfast.fleet.limits import warn_of_differences
    from holdfast.persistence.db import Database
    from holdfast.runtime.stores import open_journal

    async with contextlib.AsyncExitStack() as stack:
        db = Database(config.database_url, connections=config.database_connections)
        stack.push_async_callback(db.dispose)
        await db.init_schema()
        journal = await stack.enter_async_context(open_journal(db.store))
        await warn_of_differences(db, config)
        driving, _ = make_worker(db, journal, config, Engines(db, config), options)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, driving.drain)
        if metrics_address is not None:
            metrics = DriveMetrics(journal.store.leases)
            journal.add_commit_listener(metrics.note_commit)
            url = await stack.enter_async_context(serve_metrics(db, driving, metrics, metrics_address))
            typer.echo(f"Figures for Prometheus: {url}")
        await driving.start()
        typer.echo(f"Worker {driving.facts.name} takes runs from {', '.join(driving.facts.queues)}.")
        await driving.stopped.wait()


def list_all(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """List the workers of this database: what they drive, and their last sign of life.

    Example: holdfast workers
    """
    from holdfast.cli.terminal.output import print_json
    from holdfast.config import load_config

    config = load_config()
    workers = asyncio.run(_read(config))
    if as_json:
        print_json([to_facts(worker) for worker in workers])
        return
    if not workers:
        is_file = config.database_path is not None
        typer.echo(
            "On SQLite holdfast serve drives runs itself; there are no other workers."
            if is_file
            else "No worker is taking runs. Start one with `holdfast worker`."
        )
        return
    typer.echo(to_table(workers))


def drain(
    name: Annotated[str, typer.Argument(help="The worker's name.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Let a worker take nothing more and end: calls in flight are recorded, the rest goes on elsewhere.

    Example: holdfast workers drain build-2
    """
    from holdfast.cli.terminal.output import print_json
    from holdfast.config import load_config
    from holdfast.errors import WorkerNotFound
    from holdfast.persistence.db import Database
    from holdfast.persistence.fleet import drain_worker

    async def mark() -> bool:
        db = Database(load_config().database_url)
        try:
            await db.init_schema()
            return await drain_worker(db, name)
        finally:
            await db.dispose()

    if not asyncio.run(mark()):
        raise WorkerNotFound(f"There is no worker {name!r}.")
    if as_json:
        print_json({"name": name, "is_draining": True})
    else:
        typer.echo(f"Worker {name} takes nothing more, and ends when its calls in flight have.")


async def _read(config: Any) -> list[Any]:
    from holdfast.persistence.db import Database
    from holdfast.persistence.fleet import list_workers

    db = Database(config.database_url)
    try:
        await db.init_schema()
        return list(await list_workers(db))
    finally:
        await db.dispose()


def to_table(workers: Sequence[Any]) -> str:
    """Lay workers out in columns; where there is no room, names of flows and machines are cut first."""
    from holdfast.cli.terminal.output import table

    rows = [
        [
            *(worker.name, worker.machine, worker.version, describe_slots(worker)),
            *(", ".join(worker.queues), ", ".join(worker.flows) or "none"),
            *(_describe_since(worker), f"{worker.silent_s:.0f} s ago", describe(worker)),
        ]
        for worker in workers
    ]
    headings = ["NAME", "MACHINE", "VERSION", "RUNS", "QUEUES", "FLOWS", "SINCE (UTC)", "SEEN", "STATE"]
    return table(rows, headings=headings, elastic=(5, 1))


def _describe_since(worker: Any) -> str:
    from datetime import UTC, datetime

    return f"{datetime.fromtimestamp(worker.since, UTC):%m-%d %H:%M}"


def describe_slots(worker: Any) -> str:
    """Say how many runs it drives; those of a worker that is silent go on elsewhere."""
    return f"{worker.driven} of {worker.slots}" if worker.is_alive else "–"


def describe(worker: Any) -> str:
    from holdfast.runtime.clock import describe_off

    if not worker.is_alive:
        return "silent"
    state = "draining" if worker.is_draining else "working"
    return f"{state}; its clock is {describe_off(worker.clock_off_s)}" if worker.clock_off_s else state


def to_facts(worker: Any) -> dict[str, Any]:
    from datetime import UTC, datetime

    since = datetime.fromtimestamp(worker.since, UTC).isoformat(timespec="seconds")
    return {**vars(worker), "since": since, "silent_s": round(worker.silent_s, 1), "is_alive": worker.is_alive}
