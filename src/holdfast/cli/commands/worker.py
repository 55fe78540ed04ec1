"""The command worker: a process that drives runs and flows from Postgres, and nothing else."""

import asyncio
import contextlib
import signal
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
        int | None, typer.Option("--metrics-port", min=0, max=65535, help="Serve /metrics on this port, here only.")
    ] = None,
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
    options = WorkerOptions(name=name or "", slots=slots, queues=named, grace_s=grace)
    asyncio.run(_run(config, options, metrics_port))


async def _run(config: Any, options: Any, metrics_port: int | None) -> None:
    """Drive until a signal, or until somebody drains it."""
    from holdfast.api.server.engines import Engines
    from holdfast.api.server.fleet_metrics import serve_metrics
    from holdfast.fleet.assembly import make_worker
    from holdfast.persistence.db import Database
    from holdfast.runtime.stores import open_journal

    async with contextlib.AsyncExitStack() as stack:
        db = Database(config.database_url, connections=config.database_connections)
        stack.push_async_callback(db.dispose)
        await db.init_schema()
        journal = await stack.enter_async_context(open_journal(db.store))
        driving, _ = make_worker(db, journal, config, Engines(db, config).for_repository, options)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, driving.drain)
        await driving.start()
        if metrics_port is not None:
            port = await stack.enter_async_context(serve_metrics(db, driving, metrics_port))
            typer.echo(f"Figures for Prometheus: http://127.0.0.1:{port}/metrics")
        typer.echo(f"Worker {driving.facts.name} takes runs from {', '.join(driving.facts.queues)}.")
        await driving.stopped.wait()
