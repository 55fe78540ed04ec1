"""Who drives runs on this database."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter
from fastapi import Path as PathParam
from pydantic import BaseModel, Field

from holdfast.api.http.auth import Admin, Viewer
from holdfast.api.http.openapi import READ, WRITE_ONE
from holdfast.api.schemas import ShortText
from holdfast.api.server.server import Server, ServerDep
from holdfast.persistence.due.still_runs import ALIVE_S, ListedWorker
from holdfast.persistence.fleet import drain_worker, list_workers
from holdfast.presentation.status import Note
from holdfast.runtime.clock import describe_off

router = APIRouter(tags=["catalog"])


class WorkerItem(BaseModel):
    name: str = Field(examples=["build-2"])
    machine: str
    version: str
    since: str
    slots: int = Field(description="How many runs it drives at a time.")
    driven: int = Field(description="How many it drives now.")
    silent_s: float = Field(description="Seconds since its last sign of life.")
    is_alive: bool = Field(description=f"False after {ALIVE_S:g} s of silence: its runs go on elsewhere.")
    is_draining: bool = Field(description="It takes nothing more, and ends.")
    queues: list[str]
    flows: list[str]
    clock_off_s: float = Field(description="How far its clock is ahead of the database's; timers go by the latter.")
    status: Note = Field(description="How it is, in words, with a warning if something is wrong.")


class WorkerList(BaseModel):
    items: list[WorkerItem]
    is_shared: bool = Field(description="Others than this server can drive runs here: the database is Postgres.")


@router.get("/api/workers", responses=READ, summary="Who drives runs")
async def show_workers(server: ServerDep, _identity: Viewer) -> WorkerList:
    """List the workers of this database; on SQLite the server itself, if it drives runs."""
    items = [_to_item(worker) for worker in await _list(server)]
    return WorkerList(items=items, is_shared=server.db.path is None)


@router.post("/api/workers/{name}/drain", status_code=202, responses=WRITE_ONE, summary="Let a worker end")
async def end_worker(name: Annotated[ShortText, PathParam()], server: ServerDep, _identity: Admin) -> WorkerList:
    """Let a worker take nothing more and end: calls in flight are recorded, the rest goes on elsewhere."""
    await drain_worker(server.db, name)
    return await show_workers(server, _identity)


async def _list(server: Server) -> list[ListedWorker]:
    if server.worker is not None and server.db.path is not None:
        return [server.worker.describe()]
    return await list_workers(server.db)


def describe_worker(worker: ListedWorker) -> Note:
    """Say how a worker is, and what is wrong with it."""
    if not worker.is_alive:
        return Note("bad", f"Silent for {worker.silent_s:.0f} s: its runs go on elsewhere.")
    if worker.clock_off_s:
        return Note("waiting", f"Its clock is {describe_off(worker.clock_off_s)}; timers go by the latter.")
    return Note("waiting", "Takes nothing more, and ends.") if worker.is_draining else Note("good", "Takes runs.")


def _to_item(worker: ListedWorker) -> WorkerItem:
    return WorkerItem(
        name=worker.name,
        machine=worker.machine,
        version=worker.version,
        since=datetime.fromtimestamp(worker.since, UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        slots=worker.slots,
        driven=worker.driven,
        silent_s=round(worker.silent_s, 1),
        is_alive=worker.is_alive,
        is_draining=worker.is_draining,
        queues=list(worker.queues),
        flows=list(worker.flows),
        clock_off_s=worker.clock_off_s,
        status=describe_worker(worker),
    )
