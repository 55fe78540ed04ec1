"""The commands workers: who drives runs on this database, and an orderly end for one of them."""

import asyncio
from typing import Annotated, Any

import typer


def list_all(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """List the workers of this database: what they drive, and their last sign of life.

    Example: holdfast workers
    """
    from holdfast.cli.terminal.output import print_json, table
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
    rows = [
        [
            *(worker.name, worker.machine, worker.version, f"{worker.driven} of {worker.slots}"),
            *(", ".join(worker.queues), ", ".join(worker.flows) or "none", describe(worker)),
        ]
        for worker in workers
    ]
    typer.echo(table(rows, headings=["NAME", "MACHINE", "VERSION", "RUNS", "QUEUES", "FLOWS", "STATE"]))


def drain(name: Annotated[str, typer.Argument(help="The worker's name.")]) -> None:
    """Let a worker take nothing more and end: calls in flight are recorded, the rest goes on elsewhere.

    Example: holdfast workers drain build-2
    """
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


def describe(worker: Any) -> str:
    if not worker.is_alive:
        return f"silent for {worker.silent_s:.0f} s"
    return "draining" if worker.is_draining else "working"


def to_facts(worker: Any) -> dict[str, Any]:
    from datetime import UTC, datetime

    since = datetime.fromtimestamp(worker.since, UTC).isoformat(timespec="seconds")
    return {**vars(worker), "since": since, "silent_s": round(worker.silent_s, 1), "is_alive": worker.is_alive}
