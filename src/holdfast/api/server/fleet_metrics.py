"""Figures of the whole fleet for Prometheus, and the port on which a worker without a server shows them."""

import asyncio
import contextlib
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

from holdfast.api.server.metrics import Labels, gauge
from holdfast.concurrency import cancel_within
from holdfast.errors import ConfigInvalid, HoldfastError, StoreError
from holdfast.fleet.worker import Worker
from holdfast.persistence.db import Database
from holdfast.persistence.due.beat import count_due
from holdfast.persistence.fleet import list_workers
from holdfast.persistence.statements import measure_pack
from holdfast.runtime.checkpoint.base import Append, AppendResult, Leases

_MOST_BYTES = 8192
_CLOSE_S = 1.0
_DATABASE_S = 3.0  # whoever asks waits for ten
_FREE_BY_QUEUE = "The same by queue. A worker of several queues counts in each, so that these add up to more."
_MISSED = "Renewals of this process's leases that failed when they were due; one for all of its leases."
_log = logging.getLogger("holdfast.fleet")


async def list_fleet_figures(db: Database) -> list[str]:
    """List what to scale by: due runs that nobody drives, and places that are free; nothing on SQLite."""
    if db.path is not None:
        return []
    workers = [worker for worker in await list_workers(db) if worker.is_alive]
    takers = [(worker, max(0, worker.slots - worker.driven)) for worker in workers if not worker.is_draining]
    due, oldest_s = await count_due(db)
    queues = sorted({*due, *(queue for worker in workers for queue in worker.queues)})
    free = {queue: sum(slots for worker, slots in takers if queue in worker.queues) for queue in queues}
    return [
        *gauge("holdfast_fleet_due", "Runs and flows that are due and that nobody drives.", {(): sum(due.values())}),
        *gauge("holdfast_fleet_queue_due", "The same by queue.", {_of(queue): due.get(queue, 0) for queue in queues}),
        *gauge("holdfast_fleet_oldest_due_seconds", "How long the oldest run has been due.", {(): oldest_s}),
        *gauge(
            "holdfast_fleet_free_slots", "Places of the workers that are free.", {(): sum(slots for _, slots in takers)}
        ),
        *gauge("holdfast_fleet_queue_free_slots", _FREE_BY_QUEUE, {_of(queue): free[queue] for queue in queues}),
        *gauge("holdfast_fleet_workers", "Workers that are alive.", {(): len(workers)}),
    ]


def _of(queue: str) -> Labels:
    return (("queue", queue),)


class FleetProbe:
    """Reads the figures of the whole fleet, once for all who ask meanwhile; a database that is away holds nobody up."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._reading: asyncio.Task[list[str]] | None = None

    async def list_figures(self) -> list[str]:
        """List them if the database answers soon, and in any case whether it does."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read(), name="holdfast-fleet-figures")
        done, _ = await asyncio.wait([self._reading], timeout=_DATABASE_S)
        figures = self._reading.result() if done else []
        return [*figures, *gauge("holdfast_database_up", "1 if the database answers.", {(): int(bool(figures))})]

    async def _read(self) -> list[str]:
        try:
            return await list_fleet_figures(self._db)
        except StoreError as error:
            _log.info("The figures of the fleet could not be read: %s", error.message)  # the sweep warns
        except Exception:
            _log.warning("The figures of the fleet could not be read", exc_info=True)
        return []

    async def close(self) -> None:
        """Return when nothing of this uses the database any more, or soon."""
        if self._reading is not None:
            await cancel_within([self._reading], _CLOSE_S)


class DriveMetrics:
    """What happened to the runs that this process drives: taken over, refused, carried."""

    def __init__(self, leases: Leases | None) -> None:
        self._leases = leases
        self._refused: Counter[str] = Counter()
        self._packs = self._pack_bytes = 0

    def note_commit(self, batch: Sequence[Append], results: Sequence[AppendResult], _took_s: float) -> None:
        """Count what of a commit of the journal was refused, and the packs in it."""
        for append, result in zip(batch, results, strict=True):
            if isinstance(result, HoldfastError):
                self._refused[result.code] += 1
                continue
            sizes = [size for row in append.rows if (size := measure_pack(row)) is not None]
            self._packs += len(sizes)
            self._pack_bytes += sum(sizes)

    def lines(self) -> Iterable[str]:
        leases = self._leases
        takeovers, missed = (leases.takeovers, leases.missed) if leases is not None else (0, 0)
        counts: Mapping[str, tuple[str, Mapping[Labels, float]]] = {
            "takeovers": ("Runs taken over from an owner that was gone.", {(): takeovers}),
            "appends_refused": ("Appends that were refused.", _by_code(self._refused)),
            "renewals_missed": (_MISSED, {(): missed}),
            "packs_carried": ("Packs of files that went into the database.", {(): self._packs}),
            "pack_bytes_carried": ("Bytes of these packs.", {(): self._pack_bytes}),
        }
        for name, (help_text, values) in counts.items():
            yield from gauge(f"holdfast_{name}_total", help_text, values, "counter")


def _by_code(counts: Mapping[str, int]) -> dict[Labels, float]:
    return {(("code", code),): count for code, count in sorted(counts.items())}


@contextlib.asynccontextmanager
async def serve_metrics(
    db: Database, worker: Worker, metrics: DriveMetrics, address: tuple[str, int]
) -> AsyncIterator[str]:
    """Answer `GET /metrics` at this address, until left; yields the URL. Raises `ConfigInvalid` if it cannot be had."""
    fleet = FleetProbe(db)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            async with asyncio.timeout(10):
                request = await reader.readuntil(b"\r\n\r\n")
                is_right = request.startswith((b"GET /metrics ", b"GET /metrics?"))
                lines = (
                    [*await fleet.list_figures(), *_of_worker(worker), *metrics.lines()] if is_right else ["Not found."]
                )
                body = ("\n".join(lines) + "\n").encode()
                status = "200 OK" if is_right else "404 Not Found"
                kind = "text/plain; version=0.0.4; charset=utf-8"
                head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
                await writer.drain()
        writer.close()

    host, port = address
    try:
        server = await asyncio.start_server(answer, host, port, limit=_MOST_BYTES)
    except (OSError, UnicodeError) as error:  # a name that is none, or a port that another program has
        number = getattr(error, "errno", None) or 0
        cause = os.strerror(number) if number > 0 else str(error)
        raise ConfigInvalid(
            f"Nobody can listen on port {port} of {host!r}: {cause}.",
            hint="Choose another --metrics-port, or an address of this machine as --metrics-host.",
            key="--metrics-host",
        ) from error
    try:
        port = server.sockets[0].getsockname()[1]
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"
    finally:
        server.close()
        await fleet.close()


def _of_worker(worker: Worker) -> Iterable[str]:
    yield from gauge("holdfast_runs_driven", "Runs that this worker drives.", {(): worker.count_driven()})
    yield from gauge("holdfast_worker_slots", "Places of this worker.", {(): worker.facts.slots})
