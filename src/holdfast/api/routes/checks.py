"""How the machine behind the server is: the checks of `holdfast doctor`, and what the server is busy with."""

import asyncio
import platform
import time
from collections.abc import Sequence
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from holdfast import __version__
from holdfast.api.http.auth import Operator
from holdfast.api.http.openapi import READ
from holdfast.api.server.server import Server, ServerDep
from holdfast.config import Config
from holdfast.doctor import Check, check_all
from holdfast.persistence.listings import count_by_state
from holdfast.persistence.statements import now_text
from holdfast.presentation.format import plural
from holdfast.presentation.status import Note

router = APIRouter(tags=["catalog"])
_KEEP_S = 20.0  # the checks try the network and read the database's pages; a page left open must not repeat them


class CheckItem(BaseModel):
    name: str = Field(examples=["python"])
    state: Literal["good", "warning", "bad"]
    found: str = Field(examples=["3.12.4"])
    remedy: str


class ServerInfo(BaseModel):
    version: str
    python: str
    started_at: str
    database: Literal["sqlite", "postgresql"]
    data_dir: str
    workspace_root: str
    drives_runs: bool = Field(description="Whether this server drives runs itself.")
    max_parallel_runs: int
    runs_driven: int
    runs_waiting: int = Field(description="Runs that wait for a free place here.")
    event_streams: int
    runs_by_state: dict[str, int]
    facts: list[tuple[str, str]] = Field(description="The same in words.", examples=[[["Database", "SQLite"]]])


class CheckReport(BaseModel):
    is_well: bool
    verdict: Note = Field(description="The whole of it in one sentence.")
    checked_at: str
    checks: list[CheckItem] = Field(description="What stands in the way first.")
    server: ServerInfo


class _RecentChecks:
    """The last look at the machine, shared by all who ask within its time."""

    def __init__(self) -> None:
        self.started_at = now_text()
        self._looking: tuple[Config, float, asyncio.Task[tuple[str, list[Check]]]] | None = None

    async def look(self, config: Config) -> tuple[str, list[Check]]:
        last = self._looking
        loop = asyncio.get_running_loop()
        is_fresh = (
            last is not None
            and last[0] is config
            and time.monotonic() - last[1] < _KEEP_S
            and last[2].get_loop() is loop
            and not (last[2].done() and (last[2].cancelled() or last[2].exception()))
        )
        if last is None or not is_fresh:
            last = (config, time.monotonic(), loop.create_task(_look(config)))
            self._looking = last
        return await asyncio.shield(last[2])  # one who gives up must not take it from the others


async def _look(config: Config) -> tuple[str, list[Check]]:
    return now_text(), await asyncio.to_thread(lambda: list(check_all(config)))


_recent = _RecentChecks()


@router.get("/api/checks", responses=READ, summary="The checks of `holdfast doctor`, and what the server does")
async def show_checks(server: ServerDep, _identity: Operator) -> CheckReport:
    checked_at, checks = await _recent.look(server.config)
    return CheckReport(
        is_well=all(check.state != "bad" for check in checks),
        checked_at=checked_at,
        verdict=_judge(checks),
        checks=[CheckItem.model_validate(check._asdict()) for check in sorted(checks, key=_rank)],
        server=await _describe(server),
    )


def _rank(check: Check) -> int:
    return ("bad", "warning", "good").index(check.state)


def _judge(checks: Sequence[Check]) -> Note:
    bad = [check.name for check in checks if check.state == "bad"]
    if bad:
        return Note("bad", f"This stands in the way: {', '.join(bad)}.")
    less = sum(check.state == "warning" and not check.name.startswith("model: ") for check in checks)
    better = f" {plural(less, 'thing')} could be better." if less else ""
    return Note("good", f"The server works.{better}")


async def _describe(server: Server) -> ServerInfo:
    config = server.config
    driven, waiting = server.count_runs()
    queued = f", {plural(waiting, 'run')} waiting for a place" if waiting else ""
    drives = f"{driven} of {config.max_parallel_runs} at once{queued}"
    database: Literal["sqlite", "postgresql"] = "postgresql" if config.database_path is None else "sqlite"
    return ServerInfo(
        version=__version__,
        python=platform.python_version(),
        started_at=_recent.started_at,
        database=database,
        data_dir=str(config.data_dir),
        workspace_root=str(config.workspace_root),
        drives_runs=server.options.drives_runs,
        max_parallel_runs=config.max_parallel_runs,
        runs_driven=driven,
        runs_waiting=waiting,
        event_streams=server.run_streams.count_clients(),
        runs_by_state=await count_by_state(server.db),
        facts=[
            ("Version", f"holdfast {__version__}, Python {platform.python_version()}"),
            ("Drives runs", drives if server.options.drives_runs else "none itself; holdfast worker does"),
            ("Open pages", f"{server.run_streams.count_clients():,}"),
            ("Database", "SQLite" if database == "sqlite" else "PostgreSQL"),
            ("Data", str(config.data_dir)),
            ("Repositories", f"under {config.workspace_root}"),
        ],
    )
