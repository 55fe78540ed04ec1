"""F1: a worker that is back before its lease is over ends what runs here of a run that another machine takes."""

import asyncio
import signal
from pathlib import Path

from tests.integration.fleet.test_worker import owner_of, read, run_sql
from tests.support.api.server_world import Api
from tests.support.fleet_machines import Machine, machines
from tests.support.progress_limit import until, waiting_until

from holdfast.workspace import SpoolOptions, list_commands, run_spooled

_LEASE = "UPDATE journal_runs SET lease_until = now() + interval '{}' WHERE owner IS NOT NULL"


async def test_f1_a_command_ends_though_its_worker_was_back_within_the_lease(
    office: Api, folder: Path, fleet_url: str
) -> None:
    db = (await office.app.state.holder.get()).db
    (office.gates / "second.closed").touch()
    with machines(folder, fleet_url, "alpha") as fleet:
        run_id = await office.start()
        await office.wait_until_reached(run_id, "second")
        (office.gates / f"{run_id}.second.reached").unlink()
        spool, key = fleet[0].data_dir / "spool", f"{run_id}:left"
        options = SpoolOptions(leave_running=True)
        running = asyncio.create_task(run_spooled(key, "sleep 1000", cwd=folder, spool_dir=spool, options=options))
        await until(lambda: key in list_commands(spool), "the command runs")
        fleet[0].end(signal.SIGKILL)
        await run_sql(db, _LEASE.format("1 hour"))

        # It may not take the run itself, of whose owner it sees at once that it is dead.
        fleet.append(Machine(folder, fleet_url, "alpha", "--queues", "gpu"))
        with waiting_until("it has begun to look at what runs here"):
            while not await read(db, "SELECT 1 FROM workers WHERE name = 'alpha' AND seen_at > since"):
                await asyncio.sleep(0.05)
        assert list_commands(spool) == [key]
        await run_sql(db, _LEASE.format("0 s"))
        fleet.append(Machine(folder, fleet_url, "beta", "--queues", "runs"))
        await office.wait_until_reached(run_id, "second")
        assert '"host":"beta"' in await owner_of(db, run_id)
        await until(running.done, "the command is ended")

        (office.gates / "second.closed").unlink()
        assert (await office.wait_for(run_id))["state"] == "completed"
