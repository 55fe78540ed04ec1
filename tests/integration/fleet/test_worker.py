"""Workers on machines of their own: they share the runs of one database, and go on with those of one that dies."""

import asyncio
import os
import re
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from tests.support.api.server_world import Api
from tests.support.fleet_machines import FLOWS, machines, to_environment
from tests.support.progress_limit import until, waiting_until
from tests.support.terminal import shell

from holdfast.fleet.assembly import make_queue
from holdfast.fleet.worker import WorkerOptions
from holdfast.flows.answers import decide
from holdfast.flows.service.start import start_flow
from holdfast.persistence.db import Database
from holdfast.persistence.fleet import list_workers
from holdfast.persistence.queue_tables import has_parts
from holdfast.runtime import flow_rows


async def run_sql(db: Database, *statements: str) -> None:
    async with db.session() as session:
        for sql in statements:
            await session.execute(text(sql))
        await session.commit()


async def owner_of(db: Database, run_id: str) -> str:
    async with db.session() as session:
        owner = await session.scalar(text("SELECT owner FROM journal_runs WHERE run_id = :id"), {"id": run_id})
    return str(owner or "")


async def wait_for_workers(db: Database, count: int) -> None:
    with waiting_until(f"there are {count} workers"):
        while len([worker for worker in await list_workers(db) if worker.is_alive]) != count:
            await asyncio.sleep(0.05)


# What the server's clock says of the looks of workers, of jobs, and of claims with the lease that was there before.
WATCH = (
    "CREATE TABLE watched (at timestamptz DEFAULT clock_timestamp(), what text, who text, lease_until timestamptz)",
    "CREATE FUNCTION watch_look() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN INSERT INTO watched (what, who) VALUES ('look', NEW.name); RETURN NULL; END $$",
    "CREATE FUNCTION watch_job() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN INSERT INTO watched (what, who) VALUES ('job', NEW.queueing_lock); RETURN NULL; END $$",
    "CREATE FUNCTION watch_claim() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO watched "
    "(what, who, lease_until) VALUES ('claim', NEW.run_id, OLD.lease_until); RETURN NULL; END $$",
    "CREATE TRIGGER watch AFTER UPDATE OF seen_at ON workers FOR EACH ROW EXECUTE FUNCTION watch_look()",
    "CREATE TRIGGER watch AFTER INSERT ON procrastinate_jobs FOR EACH ROW EXECUTE FUNCTION watch_job()",
    "CREATE TRIGGER watch AFTER UPDATE OF epoch ON journal_runs FOR EACH ROW EXECUTE FUNCTION watch_claim()",
)
PROMISED_S = 10.0


async def read(db: Database, sql: str, **params: Any) -> list[tuple[Any, ...]]:
    async with db.session() as session:
        return [tuple(row) for row in await session.execute(text(sql), params)]


async def check_takeover(db: Database, run_id: str, dead: str) -> None:
    """A lease after its last renewal a run is free, and by the second look from then on its job is there.

    What the looks of a busy machine take is not measured: they begin as often as the worker is set to.
    """
    (taken_at, lease_until), *_ = await read(
        db, "SELECT at, lease_until FROM watched WHERE what = 'claim' AND who = :id ORDER BY at", id=run_id
    )
    assert taken_at >= lease_until
    # The dead one may have looked for all: another one does so when its turn is over.
    ((free_at,),) = await read(
        db,
        "SELECT greatest(:lease_until, to_timestamp(sweeps_until)) FROM workers WHERE name = :dead",
        lease_until=lease_until,
        dead=dead,
    )
    looks = await read(
        db,
        "SELECT at FROM watched WHERE what = 'look' AND at > :free_at AND at < "
        "(SELECT min(at) FROM watched WHERE what = 'job' AND who = :id AND at > :free_at)",
        free_at=free_at,
        id=run_id,
    )
    assert 1 <= len(looks) <= 2
    lease_s = db.store.lease_s
    assert lease_s is not None
    assert lease_s + 2 * WorkerOptions().poll_s <= PROMISED_S


async def test_a_run_goes_on_with_its_files_on_another_machine_when_its_own_dies(
    office: Api, folder: Path, fleet_url: str
) -> None:
    server = await office.app.state.holder.get()
    without = await office.start()
    detail = (await office.viewer.get(f"/api/runs/{without}")).json()
    assert detail["waiting_for"] == "No worker is taking runs. Start one with `holdfast worker`."
    flow = await start_flow("nap", store=server.db.store)
    for still in (without, flow.run_id):
        answer = await asyncio.to_thread(shell, "runs", "show", still, env=to_environment(folder, fleet_url, "laptop"))
        assert detail["waiting_for"] in answer.stdout
    (office.gates / "second.closed").touch()

    with machines(folder, fleet_url, "alpha", "beta") as fleet:
        run_id = await office.start()
        await office.wait_until_reached(run_id, "second")
        await office.wait_until_reached(without, "second")
        listed = (await office.viewer.get("/api/workers")).json()["items"]
        owner = await owner_of(server.db, run_id)
        first = next(machine for machine in fleet if f'"host":"{machine.name}"' in owner)
        (office.gates / f"{run_id}.second.reached").unlink()
        await run_sql(server.db, *WATCH)
        first.end(signal.SIGKILL)
        await office.wait_until_reached(run_id, "second")
        await check_takeover(server.db, run_id, first.name)
        taken_over = await owner_of(server.db, run_id)
        (office.gates / "second.closed").unlink()
        ended = [await office.wait_for(each) for each in (run_id, without)]

    assert sorted(worker["name"] for worker in listed) == ["alpha", "beta"]
    assert {worker["is_alive"] for worker in listed} == {True}
    assert [run["state"] for run in ended] == ["completed", "completed"]
    assert f'"host":"{first.name}"' not in taken_over
    answers = [await office.viewer.get(f"/api/runs/{run_id}/{part}") for part in ("report", "diff", "changes")]
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert not (folder / "data" / "runs" / run_id).exists()  # the server never had the worktree
    kinds = [event.kind for event in await server.journal.read(run_id)]
    assert kinds.count("phase.completed") == 2
    assert "workspace.moved" in kinds


async def test_a_worker_that_is_drained_leaves_what_is_not_over_to_the_next_one(
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


LOST = (
    *(f"TABLE procrastinate_{name}" for name in ("jobs", "events", "workers", "periodic_defers")),
    *(f"FUNCTION procrastinate_{name}" for name in ("fetch_job_v2", "notify_queue_job_inserted_v1")),
    "TYPE procrastinate_job_status",
    "FUNCTION holdfast_enqueue_flow",
)


@pytest.mark.parametrize("lost", LOST)
async def test_flows_are_driven_by_workers_that_know_them_and_through_lost_tables(
    office: Api, folder: Path, fleet_url: str, lost: str
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
        await run_sql(server.db, f"DROP {lost} CASCADE")
        await decide("asked", "go", "approve", store=server.journal.store)
        run_id = await office.start()
        assert (await office.wait_for(run_id))["state"] == "completed"
        with waiting_until("the flow ends"):
            while await status("asked") != "completed":
                await asyncio.sleep(0.05)
        parts = make_queue(server.db).describe().parts
        with waiting_until("everything that was lost is there again"):
            while not await has_parts(server.db, parts):
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


async def test_workers_that_lack_a_key_give_the_run_back_and_say_so_until_one_has_it(
    office: Api, folder: Path, fleet_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await office.app.state.holder.get()
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of the server")
    personas = {"author": "anthropic-sonnet-spec-writer"}
    with machines(folder, fleet_url, "alpha", "beta", "gamma", ANTHROPIC_API_KEY=""):
        run_id = await office.start(simulate=False, persona_overrides=personas)
        reason = ""
        with waiting_until("all three have looked"):
            while "Three" not in reason:
                detail = (await office.viewer.get(f"/api/runs/{run_id}")).json()
                reason = detail["waiting_for"] or ""
                await asyncio.sleep(0.05)
        assert reason == "Three workers looked; none has ANTHROPIC_API_KEY."
        assert (detail["state"], await owner_of(server.db, run_id)) == ("pending", "")
        with machines(folder, fleet_url, "delta", ANTHROPIC_API_KEY="of delta"):
            assert (await office.wait_for(run_id))["state"] == "completed"


async def test_a_repository_out_of_reach_backs_off_with_its_reason_and_no_claim(
    shared_work: Path, office: Api, folder: Path, fleet_url: str
) -> None:
    server = await office.app.state.holder.get()
    run_id = await office.start()
    office.repo.rename(shared_work / "away")
    with machines(folder, fleet_url, "alpha"):
        reasons: set[str] = set()
        with waiting_until("it was tried twice, later each time"):
            while len(reasons) < 2:
                detail = (await office.viewer.get(f"/api/runs/{run_id}")).json()
                assert detail["state"] == "pending"
                if "could not be driven" in (detail["waiting_for"] or ""):
                    reasons.add(detail["waiting_for"])
                await asyncio.sleep(0.05)
        assert await owner_of(server.db, run_id) == ""
        (shared_work / "away").rename(office.repo)
        assert (await office.wait_for(run_id))["state"] == "completed"
    texts = {re.sub(r"in \d+ s: The repository \S+", "in N s: The repository R", reason) for reason in reasons}
    cause = "The repository R lies under shared_roots, but this machine does not see it."
    assert texts == {f"Worker alpha: It could not be driven and is tried again in N s: {cause}"}


async def test_a_worker_shows_its_figures_on_a_port_of_its_own(office: Api, folder: Path, fleet_url: str) -> None:
    with machines(folder, fleet_url, "alpha", arguments=("--metrics-port", "0", "--metrics-host", "0.0.0.0")) as (
        alpha,
    ):
        url = alpha.greeting.split()[-1].replace("0.0.0.0", "127.0.0.2")
        await office.wait_for(await office.start())
        async with httpx.AsyncClient() as client:
            answer, wrong = await client.get(url), await client.get(url.replace("metrics", "other"))
    figures = dict(line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#"))
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert wrong.status_code == 404
    expected = {
        "holdfast_fleet_due": 0,
        "holdfast_fleet_oldest_due_seconds": 0,
        "holdfast_fleet_workers": 1,
        "holdfast_worker_slots": 8,
        "holdfast_takeovers_total": 0,
        "holdfast_renewals_missed_total": 0,
    }
    assert {name: float(figures[name]) for name in expected} == expected
    assert float(figures["holdfast_database_up"]) == 1
    assert float(figures["holdfast_packs_carried_total"]) > 0
    assert float(figures["holdfast_pack_bytes_carried_total"]) > 100
    server = await office.viewer.get("/metrics")
    assert "holdfast_packs_carried_total 0" in server.text  # it drives nothing


async def test_a_run_of_a_newer_format_is_left_alone_and_says_so(office: Api, folder: Path, fleet_url: str) -> None:
    server = await office.app.state.holder.get()
    newer = await office.start()
    async with server.db.session() as session:
        await session.execute(text("UPDATE runs SET format = 9 WHERE id = :id"), {"id": newer})
        await session.commit()
    with machines(folder, fleet_url, "alpha"):
        await office.wait_for(await office.start())
        detail = (await office.viewer.get(f"/api/runs/{newer}")).json()
        answer = await office.operator.post(f"/api/runs/{newer}/resume")
    assert detail["state"] == "pending"
    assert detail["waiting_for"].startswith("A newer holdfast has written it, in format 9;")
    assert (answer.status_code, answer.json()["code"]) == (409, "run_not_in_state")
    assert [event.kind for event in await server.journal.read(newer)] == ["run.created"]
