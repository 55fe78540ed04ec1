"""What a worker does about runs whose files or commands are on one machine: too big to travel, or left running."""

import asyncio
from pathlib import Path

from tests.integration.fleet.test_worker import owner_of
from tests.support.api.server_world import Api
from tests.support.fleet_machines import machines
from tests.support.progress_limit import until, waiting_until

from holdfast.persistence.fleet import read_looks
from holdfast.persistence.listings import list_due
from holdfast.workspace import SpoolOptions, list_commands, run_spooled, stop_spooled

SMALL = {"HOLDFAST_CARRY_STEP_MAX_MB": "1"}


async def test_a_step_that_is_too_big_to_travel_pauses_on_a_worker_and_goes_on_where_its_files_are(
    office: Api, folder: Path, fleet_url: str
) -> None:
    server = await office.app.state.holder.get()
    (office.gates / "first.big").write_text(str(2 * 1024**2))
    with machines(folder, fleet_url, "alpha", **SMALL) as (alpha,):
        run_id = await office.start()
        paused = await office.wait_for(run_id, "paused")
        big = alpha.data_dir / "worktrees" / run_id / "big.bin"
        assert big.exists()
        with waiting_until("no claim is left"):
            while await owner_of(server.db, run_id):
                await asyncio.sleep(0.05)
    assert (paused["pause_reason"], paused["error"]["code"]) == ("files", "workspace_too_large")
    assert "big.bin (2.0 MiB)" in paused["error"]["message"]
    assert await list_due(server.db) == []  # nobody tries it again by itself

    with machines(folder, fleet_url, "beta", **SMALL):
        assert (await office.operator.post(f"/api/runs/{run_id}/resume")).status_code == 202
        with waiting_until("the other worker has looked"):
            while not (looks := await read_looks(server.db, run_id)):
                await asyncio.sleep(0.05)
        assert (looks[0].worker, looks[0].missing) == (
            "beta",
            "the files of its last step, which were too big to be stored",
        )
        assert await owner_of(server.db, run_id) == ""
        assert not (folder / "data-beta" / "worktrees" / run_id).exists()

        big.unlink()
        with machines(folder, fleet_url, "alpha", **SMALL):
            assert (await office.wait_for(run_id))["state"] == "completed"
    assert (office.gates / "first.made").read_text() == "made\n"
    kinds = [event.kind for event in await server.journal.read(run_id)]
    assert (kinds.count("workspace.carried"), kinds.count("workspace.moved")) == (1, 0)


async def test_a_worker_that_starts_ends_the_commands_that_its_machine_still_runs_for_runs_that_have_left_it(
    office: Api, folder: Path, fleet_url: str
) -> None:
    (office.gates / "second.closed").touch()
    with machines(folder, fleet_url, "alpha") as (alpha,):
        stays = await office.start(workflow="asking-notes")
        await office.wait_for(stays, "paused")
        moves = await office.start()
        await office.wait_until_reached(moves, "second")
    (office.gates / f"{moves}.second.reached").unlink()
    spool, options = alpha.data_dir / "spool", SpoolOptions(leave_running=True)
    keys = [f"{moves}:left", f"{stays}:left"]
    waits = [
        asyncio.create_task(run_spooled(key, "sleep 1000", cwd=folder, spool_dir=spool, options=options))
        for key in keys
    ]
    await until(lambda: len(list_commands(spool)) == 2, "the commands run")
    with machines(folder, fleet_url, "beta"):
        await office.wait_until_reached(moves, "second")
        with machines(folder, fleet_url, "alpha"):
            await until(lambda: list_commands(spool) == keys[1:], "the command of the run that has moved is ended")
            await waits[0]
            (office.gates / "second.closed").unlink()
            assert (await office.wait_for(moves))["state"] == "completed"
        assert list_commands(spool) == keys[1:]
    await stop_spooled(keys[1], spool_dir=spool)
    await waits[1]
