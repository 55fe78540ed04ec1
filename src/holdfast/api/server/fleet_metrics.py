"""Figures of the whole fleet for Prometheus, and the port on which a worker without a server shows them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable

from holdfast.api.server.metrics import gauge
from holdfast.fleet.worker import Worker
from holdfast.persistence.db import Database
from holdfast.persistence.fleet import count_due, list_workers

_MOST_BYTES = 8192


async def list_fleet_figures(db: Database) -> list[str]:
    """List what to scale by: due runs that nobody drives, and places that are free; nothing on SQLite."""
    if db.path is not None:
        return []
    workers = [worker for worker in await list_workers(db) if worker.is_alive]
    free = sum(max(0, worker.slots - worker.driven) for worker in workers if not worker.is_draining)
    due, oldest_s = await count_due(db)
    return [
        *gauge("holdfast_fleet_due", "Runs and flows that are due and that nobody drives.", {(): due}),
        *gauge("holdfast_fleet_oldest_due_seconds", "How long the oldest run has been due.", {(): oldest_s}),
        *gauge("holdfast_fleet_free_slots", "Places of the workers that are free.", {(): free}),
        *gauge("holdfast_fleet_workers", "Workers that are alive.", {(): len(workers)}),
    ]


@contextlib.asynccontextmanager
async def serve_metrics(db: Database, worker: Worker, port: int) -> AsyncIterator[int]:
    """Answer `GET /metrics` on this machine alone, until left; yields the port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            async with asyncio.timeout(10):
                request = await reader.readuntil(b"\r\n\r\n")
                is_right = request.startswith((b"GET /metrics ", b"GET /metrics?"))
                lines = [*await list_fleet_figures(db), *_of_worker(worker)] if is_right else ["Not found."]
                body = ("\n".join(lines) + "\n").encode()
                status = "200 OK" if is_right else "404 Not Found"
                kind = "text/plain; version=0.0.4; charset=utf-8"
                head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port, limit=_MOST_BYTES)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def _of_worker(worker: Worker) -> Iterable[str]:
    yield from gauge("holdfast_runs_driven", "Runs that this worker drives.", {(): worker.count_driven()})
    yield from gauge("holdfast_worker_slots", "Places of this worker.", {(): worker.facts.slots})
