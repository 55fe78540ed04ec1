"""A program that owns a run for as long as a test wants: its long step ends when a file appears."""

import asyncio
import signal
import warnings
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from tests.support.stores import open_store

from holdfast import Context, HoldfastError, run_flow
from holdfast.runtime.checkpoint import Checkpointer, PostgresCheckpointer

RUN_ID = "shared"
LONG_LEASE_S, SHORT_LEASE_S = 600.0, 0.5


@dataclass(frozen=True)
class Owner:
    """One process that drives the run; `name` tells the files of several ones apart."""

    kind: str
    target: str
    folder: Path
    name: str
    lease_s: float = LONG_LEASE_S
    has_approval: bool = False
    on_unknown: Literal["rerun", "fail"] = "rerun"

    @property
    def started(self) -> Path:
        return self.folder / f"{self.name}-started"

    @property
    def may_end(self) -> Path:
        return self.folder / f"{self.name}-may-end"

    def open(self) -> Checkpointer:
        if self.kind == "postgres":
            return PostgresCheckpointer(self.target, lease_s=self.lease_s)
        return open_store(self.kind, self.target)

    async def flow(self, ctx: Context) -> list[Any]:
        first = await ctx.step("first", lambda: "first done")
        work = [ctx.step("long", self._wait, on_unknown=self.on_unknown)]
        if self.has_approval:
            work.append(ctx.approval("gate"))
        return [first, *await ctx.gather(*work), await ctx.step("last", lambda: "last done")]

    async def _wait(self) -> str:
        self.started.touch()
        while not self.may_end.exists():
            await asyncio.sleep(0.005)
        return "long done"


def main(owner: Owner, outcome: Connection) -> None:
    """Drive the run and report its result or the code of its error; SIGTERM cancels, as a server's shutdown does."""
    warnings.simplefilter("error")
    try:
        outcome.send(asyncio.run(_drive(owner)))
    except HoldfastError as error:
        outcome.send(error.code)
    except asyncio.CancelledError:
        outcome.send("shut down")


async def _drive(owner: Owner) -> Any:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    store = owner.open()
    try:
        return await run_flow(owner.flow, run_id=RUN_ID, store=store)
    finally:
        store.close()
