"""The commands worker and workers: drive runs from Postgres; see who does so, and let one of them end."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.errors import ConfigInvalid

if TYPE_CHECKING:
    from holdfast.fleet.worker import Worker

_LOOK_S = 0.5  # between two looks at a worker that ends
_CLOSE_S = 2.0  # for what still waits for a database that is away


def worker(
    slots: Annotated[int, typer.Option("--slots", min=1, max=1000, help="How many runs it drives at a time.")] = 8,
    queues: Annotated[
        str | None, typer.Option("--queues", metavar="A,B", help="The queues that it takes runs from; else all.")
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

    A worker that dies is noticed in seconds, and its runs go on elsewhere. SIGTERM and Ctrl-C let calls in flight end;
    a second one ends the worker at once.

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
    code = asyncio.run(_run(config, options, None if metrics_port is None else (metrics_host, metrics_port)))
    raise typer.Exit(code)


def _check_queues(names: tuple[str, ...], config: Any) -> None:
    """Raise `QueueUnknown` for a queue that no run can name: the worker would wait there for ever."""
    from holdfast.errors import QueueUnknown, did_you_mean
    from holdfast.fleet.assembly import list_queues

    known = list_queues(config)
    for name in names:
        if name not in known:
            raise QueueUnknown(
                f"There is no queue {name!r}.{did_you_mean(name, known)}",
                hint=f"There are {', '.join(known)}; the setting `queues` names more: HOLDFAST_QUEUES=runs,{name}",
            )


class EndSignals:
    """SIGTERM and Ctrl-C: the first one lets a worker end, the second ends it at once, and a third ends its process."""

    def __init__(self, driving: "Worker") -> None:
        self._driving = driving
        self.numbers: list[signal.Signals] = []
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._hear, number)

    @property
    def exit_code(self) -> int:
        """0 if it ended as it was to, else what a shell says of a process that the second signal has ended."""
        return 128 + self.numbers[1] if len(self.numbers) > 1 else 0

    def _hear(self, number: signal.Signals) -> None:
        self.numbers.append(number)
        if len(self.numbers) == 1:
            typer.echo(f"{self._driving.drain().describe()} Ctrl-C again ends it now.")
            return
        typer.echo("Ends now; what was in flight is given up.")
        self._driving.drain().give_up()
        for each in (signal.SIGTERM, signal.SIGINT):
            self._loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)


async def _run(config: Any, options: Any, metrics_address: tuple[str, int] | None) -> int:
    """Drive until a signal, or until somebody drains it; returns the exit code."""
    from holdfast.api.server.engines import Engines
    from holdfast.api.server.fleet_metrics import DriveMetrics, serve_metrics
    from holdfast.concurrency import exit_within
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
        driving = make_worker(db, journal, config, Engines(db, config), options)
        if metrics_address is not None:
            metrics = DriveMetrics(journal.store.leases)
            journal.add_commit_listener(metrics.note_commit)
            url = await stack.enter_async_context(serve_metrics(db, driving, metrics, metrics_address))
            typer.echo(f"Figures for Prometheus: {url}")
        await driving.start()
        signals = EndSignals(driving)
        typer.echo(f"Worker {driving.facts.name} takes runs from {', '.join(driving.facts.queues)}.")
        await driving.draining.wait()
        if not signals.numbers:
            typer.echo(f"Somebody drains it. {driving.drain().describe()}")
        await driving.stopped.wait()
        exit_within(_CLOSE_S, signals.exit_code)
    return signals.exit_code


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
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Let a worker take nothing more and end: calls in flight are recorded, the rest goes on elsewhere.

    With --wait it says how many runs are left, and returns when the worker has ended. Ctrl-C ends only the waiting.

    Example: holdfast workers drain build-2 --wait
    """
    from holdfast.cli.terminal.output import print_json
    from holdfast.config import load_config

    say = (lambda _text: None) if as_json else typer.echo
    silent_s = asyncio.run(_drain(load_config(), name, waits=wait, say=say))
    if as_json:
        has_ended = wait and silent_s is None
        print_json({"name": name, "is_draining": not has_ended} | ({"has_ended": has_ended} if wait else {}))
    elif silent_s is not None:
        typer.echo(f"Worker {name} has shown no sign of life for {silent_s:.0f} s; its runs go on elsewhere.", err=True)
    elif wait:
        typer.echo(f"Worker {name} has ended.")
    if silent_s is not None:
        raise typer.Exit(1)


async def _drain(config: Any, name: str, *, waits: bool, say: Callable[[str], None]) -> float | None:
    """Tell a worker to end, and with `waits` wait for it; returns for how long it was silent if it never said so."""
    from holdfast.persistence.db import Database
    from holdfast.persistence.fleet import drain_worker

    db = Database(config.database_url)
    try:
        await db.init_schema()
        await drain_worker(db, name)
        say(f"Worker {name} takes nothing more, and ends when its calls in flight have.")
        return await _wait_for_end(db, name, say=say) if waits else None
    finally:
        await db.dispose()


async def _wait_for_end(db: Any, name: str, *, say: Callable[[str], None]) -> float | None:
    """Wait until a worker has ended, through times without the database; returns for how long it was silent instead."""
    from holdfast.errors import StoreUnavailable
    from holdfast.persistence.fleet import list_workers

    driven = 0
    while True:
        with contextlib.suppress(StoreUnavailable):
            worker = next((worker for worker in await list_workers(db) if worker.name == name), None)
            if worker is None or not worker.is_draining:  # another process has the name by now
                return None
            if not worker.is_alive:
                return worker.silent_s
            if worker.driven != driven:
                driven = worker.driven
                say(f"It still drives {driven} {'run' if driven == 1 else 'runs'}.")
        await asyncio.sleep(_LOOK_S)


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
