"""Workers on machines of their own: they share the runs of one database, and go on with those of one that dies."""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from sqlalchemy import text
from tests.support.api.server_world import Api
from tests.support.fleet_machines import FLOWS, machines
from tests.support.progress_limit import until, waiting_until

from holdfast.flows.answers import decide
from holdfast.flows.service.start import start_flow
from holdfast.persistence.db import Database
from holdfast.persistence.fleet import list_workers
from holdfast.runtime import flow_rows


async def owner_of(db: Database, run_id: str) -> str:
    async with db.session() as session:
        owner = await session.scalar(text("SELECT owner FROM journal_runs WHERE run_id = :id"), {"id": run_id})
    return str(owner or "")


async def wait_for_workers(db: Database, count: int) -> None:
    with waiting_until(f"there are {count} workers"):
        while len([worker for worker in await list_workers(db) if worker.is_alive]) != count:
            await asyncio.sleep(0.05)


async def test_a_run_goes_on_with_its_files_on_another_machine_when_its_own_dies(
    office: Api, folder: Path, fleet_url: str
) -> None:
    server = await office.app.state.holder.get()
    without = await office.start()
    detail = (await office.viewer.get(f"/api/runs/{without}")).json()
    assert detail["waiting_for"] == "No worker is taking runs. Start one with `holdfast worker`."
    (office.gates / "second.closed").touch()

    with machines(folder, fleet_url, "alpha", "beta") as fleet:
        run_id = await office.start()
        await office.wait_until_reached(run_id, "second")
        await office.wait_until_reached(without, "second")
        listed = (await office.viewer.get("/api/workers")).json()["items"]
        owner = await owner_of(server.db, run_id)
        first = next(machine for machine in fleet if f'"host":"{machine.name}"' in owner)
        (office.gates / f"{run_id}.second.reached").unlink()
        first.end(signal.SIGKILL)
        died_at = time.monotonic()
        await office.wait_until_reached(run_id, "second")
        took_s = time.monotonic() - died_at
        taken_over = await owner_of(server.db, run_id)
        (office.gates / "second.closed").unlink()
        ended = [await office.wait_for(each) for each in (run_id, without)]

    assert sorted(worker["name"] for worker in listed) == ["alpha", "beta"]
    assert {worker["is_alive"] for worker in listed} == {True}
    assert [run["state"] for run in ended] == ["completed", "completed"]
    assert f'"host":"{first.name}"' not in taken_over
    assert took_s > 3  # nobody sees that it is dead; its lease ends
    answers = [await office.viewer.get(f"/api/runs/{run_id}/{part}") for part in ("report", "diff", "changes")]
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert not (folder / "data" / "runs" / run_id).exists()  # the server never had the worktree
    kinds = [event.kind for event in await server.journal.read(run_id)]
    assert kinds.count("phase.completed") == 2
    assert "workspace.moved" in kinds


async def test_a_worker_that_is_told_to_end_records_what_it_has_begun_and_leaves_the_rest(
    office: Api, folder: Path, fleet_url: str
) -> None:
    server = await office.app.state.holder.get()
    (office.gates / "second.closed").touch()
    with machines(folder, fleet_url, "alpha", arguments=("--grace", "5")) as (alpha,):
        run_id = await office.start()
        await office.wait_until_reached(run_id, "second")
        answer = await office.admin.post("/api/workers/alpha/drain")
        assert answer.status_code == 202
        await until(lambda: not alpha.is_running, "the worker ends")
        assert await list_workers(server.db) == []
    assert (await office.viewer.get(f"/api/runs/{run_id}")).json()["state"] == "running"
    (office.gates / "second.closed").unlink()
    with machines(folder, fleet_url, "beta"):
        assert (await office.wait_for(run_id))["state"] == "completed"


async def test_flows_are_driven_by_workers_that_know_them_and_through_lost_tables(
    office: Api, folder: Path, fleet_url: str
) -> None:
    (folder / "counting.py").write_text(FLOWS)
    server = await office.app.state.holder.get()

    async def status(run_id: str) -> Any:
        row = await server.journal.query(lambda store: flow_rows.read_row(store, run_id))
        return row.status

    with (
        machines(folder, fleet_url, "plain"),
        machines(folder, fleet_url, "knows", arguments=("--flows", str(folder / "counting.py"))),
    ):
        await wait_for_workers(server.db, 2)
        await start_flow("count", "a", 3, run_id="first", store=server.journal.store)
        await start_flow("ask", "b", run_id="asked", store=server.journal.store)
        with waiting_until("the flows get as far as they can"):
            while (await status("first"), await status("asked")) != ("completed", "paused"):
                await asyncio.sleep(0.05)
        async with server.db.session() as session:
            await session.execute(text("DROP TABLE procrastinate_jobs CASCADE"))
            await session.commit()
        await decide("asked", "go", "approve", store=server.journal.store)
        run_id = await office.start()
        assert (await office.wait_for(run_id))["state"] == "completed"
        with waiting_until("the flow ends"):
            while await status("asked") != "completed":
                await asyncio.sleep(0.05)

    effects = (folder / "effects").read_text().splitlines()
    assert sorted(effects) == ["a 0", "a 1", "a 2", "b after", "b before"]


async def test_a_stopped_worker_that_wakes_up_late_writes_nothing(office: Api, folder: Path, fleet_url: str) -> None:
    server = await office.app.state.holder.get()
    (office.gates / "first.closed").touch()
    with machines(folder, fleet_url, "alpha") as (alpha,):
        run_id = await office.start()
        await office.wait_until_reached(run_id, "first")
        os.kill(alpha.pid, signal.SIGSTOP)
        (office.gates / f"{run_id}.first.reached").unlink()
        with machines(folder, fleet_url, "beta"):
            await office.wait_until_reached(run_id, "first")
            os.kill(alpha.pid, signal.SIGCONT)
            (office.gates / "first.closed").unlink()
            assert (await office.wait_for(run_id))["state"] == "completed"
            events = await server.journal.read(run_id)
    kinds = [event.kind for event in events]
    assert (kinds.count("phase.completed"), kinds.count("run.completed")) == (2, 1)
