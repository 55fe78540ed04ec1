"""What a worker does about runs whose files or commands are on one machine: too big to travel, or left running."""

import asyncio
from pathlib import Path

from tests.integration.fleet.test_worker import owner_of
from tests.support.api.server_world import Api
from tests.support.fleet_machines import machines
from tests.support.progress_limit import waiting_until

from holdfast.persistence.fleet import read_looks
from holdfast.persistence.listings import list_due

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
