"""F7: a run that kills its worker before it says that it goes on is paused too, and harms no other."""

import asyncio
from pathlib import Path

from tests.integration.fleet.test_worker import read
from tests.support.api.server_world import Api
from tests.support.fleet_machines import DIES_IN, machines
from tests.support.progress_limit import waiting_until


async def test_f7_a_run_that_kills_its_worker_when_files_are_opened_is_paused(
    office: Api, folder: Path, fleet_url: str
) -> None:
    server = await office.app.state.holder.get()
    run_id = await office.start()
    deaths, is_open = 0, "SELECT 1 FROM runs WHERE state <> 'paused'"
    for _ in range(6):
        with machines(folder, fleet_url, "alpha", **{DIES_IN: "holdfast.engine.run_owner:open_files"}) as (alpha,):
            with waiting_until("the worker dies, or the run waits"):
                while alpha.is_running and await read(server.db, is_open):
                    await asyncio.sleep(0.05)
            if alpha.is_running:
                break
            deaths += 1

    assert await read(server.db, "SELECT state, pause_reason FROM runs") == [("paused", "crashing")]
    assert deaths == 3
    assert [event.kind for event in await server.journal.read(run_id)] == ["run.created", "run.paused"]
