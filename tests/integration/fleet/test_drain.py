"""Workers that are to end: they say so at once, record what is in flight, and can be ended sooner."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from tests.support.api.server_world import Api
from tests.support.fleet_machines import FLOWS, Machine, machines, to_environment
from tests.support.forked_command import Speaking
from tests.support.network import Wire, open_wire
from tests.support.progress_limit import until, waiting_until
from tests.support.terminal import shell

from holdfast.api.server.fleet_metrics import list_fleet_figures
from holdfast.flows.service.start import start_flow
from holdfast.persistence.db import Database
from holdfast.persistence.fleet import list_workers
from holdfast.runtime.journal import Journal

NOBODY = "No worker is taking runs. Start one with `holdfast worker`."


@pytest.fixture
def flows(folder: Path) -> tuple[str, ...]:
    """What a worker is told so that it knows the flows of the tests, and waits for their calls for long."""
    (folder / "flows.py").write_text(FLOWS)
    return ("--flows", str(folder / "flows.py"), "--grace", "3600")


@pytest.fixture
def wire(fleet_url: str) -> Iterator[Wire]:
    with open_wire(fleet_url) as wire:
        wire.has_ends = True
        yield wire


async def begin_call(office: Api, folder: Path, name: str) -> Database:
    """Start a flow and wait until its call is in flight; it ends when the gate of its name is opened."""
    server = await office.app.state.holder.get()
    (folder / f"{name}.closed").touch()
    await start_flow("held", name, run_id=name, store=server.journal.store)
    effects = folder / "effects"
    await until(lambda: effects.exists() and f"{name} begins" in effects.read_text(), "the call is in flight")
    db: Database = server.db
    return db


async def wait_for_figures(db: Database, **expected: float) -> None:
    def are_as_expected(lines: list[str]) -> bool:
        return {f"holdfast_fleet_{name} {number:g}" for name, number in expected.items()} <= set(lines)

    figures: list[str] = []
    with waiting_until(lambda: f"the figures are {expected}; they are {figures}"):
        while not are_as_expected(figures):
            figures = [line.removesuffix(".0") for line in await list_fleet_figures(db)]
            await asyncio.sleep(0.05)


async def list_kinds(journal: Journal, run_id: str) -> list[str]:
    return [event.kind for event in await journal.read(run_id)]


async def wait_for_kind(journal: Journal, run_id: str, kind: str) -> None:
    with waiting_until(f"{run_id} has {kind}"):
        while kind not in await list_kinds(journal, run_id):
            await asyncio.sleep(0.05)


async def go_on_elsewhere(office: Api, folder: Path, fleet_url: str, flows: tuple[str, ...], *run_ids: str) -> None:
    server = await office.app.state.holder.get()
    with machines(folder, fleet_url, "beta", arguments=flows):
        for run_id in run_ids:
            await wait_for_kind(server.journal, run_id, "run.completed")


async def test_a_worker_says_at_once_that_it_is_to_end_and_records_the_call_in_flight(
    office: Api, folder: Path, fleet_url: str, flows: tuple[str, ...]
) -> None:
    server = await office.app.state.holder.get()
    with machines(folder, fleet_url, "alpha", arguments=flows) as (alpha,):
        db = await begin_call(office, folder, "call")
        await wait_for_figures(db, due=0, free_slots=7, workers=1)
        os.kill(alpha.pid, signal.SIGTERM)
        line = await asyncio.to_thread(alpha.read_line)
        await start_flow("held", "later", run_id="later", store=server.journal.store)
        await wait_for_figures(db, due=1, free_slots=0, workers=1)
        (worker,) = await list_workers(db)
        page = await asyncio.to_thread(shell, "runs", "show", "later", env=to_environment(folder, fleet_url, "laptop"))
        (folder / "call.closed").unlink()
        code = await asyncio.to_thread(alpha.wait)
        gone = await list_workers(db)

    assert line == "Ends after the calls in flight of 1 run, within 3600 s. Ctrl-C again ends it now.\n"
    assert (worker.is_draining, worker.driven, code, gone) == (True, 1, 0, [])
    assert NOBODY in page.stdout
    kinds = await list_kinds(server.journal, "call")
    assert (kinds.count("step.completed"), "run.completed" in kinds) == (1, False)
    await go_on_elsewhere(office, folder, fleet_url, flows, "call", "later")
    effects = (folder / "effects").read_text().splitlines()
    assert sorted(effects) == sorted(
        f"{name} {word}" for name in ("call", "later") for word in ("after", "begins", "ends")
    )


async def test_a_worker_without_its_database_waits_for_the_call_and_then_for_the_database(
    office: Api, folder: Path, fleet_url: str, flows: tuple[str, ...], wire: Wire
) -> None:
    server, host = await office.app.state.holder.get(), wire.host
    with machines(folder, wire.url, "alpha", arguments=flows) as (alpha,):
        await begin_call(office, folder, "call")
        wire.host = ""
        wire.cut()
        tries = len(wire._pairs)
        os.kill(alpha.pid, signal.SIGTERM)
        await asyncio.to_thread(alpha.read_line)
        await until(lambda: len(wire._pairs) > tries + 20, "it has looked for the database again and again")
        (folder / "call.closed").unlink()
        await until(lambda: "call ends" in (folder / "effects").read_text(), "the call is over")
        wire.host = host
        code = await asyncio.to_thread(alpha.wait)

    kinds = await list_kinds(server.journal, "call")
    assert (code, kinds.count("step.completed"), kinds.count("run.completed")) == (0, 1, 0)
    assert "Traceback" not in (folder / "alpha.log").read_text()


@pytest.mark.parametrize("is_away", [False, True], ids=["with-database", "without-database"])
async def test_a_second_signal_ends_a_worker_at_once(
    office: Api, folder: Path, fleet_url: str, flows: tuple[str, ...], wire: Wire, is_away: bool
) -> None:
    with machines(folder, wire.url, "alpha", arguments=flows) as (alpha,):
        db = await begin_call(office, folder, "call")
        if is_away:
            wire.host = ""
            wire.cut()
        os.kill(alpha.pid, signal.SIGINT)
        lines = [await asyncio.to_thread(alpha.read_line)]
        os.kill(alpha.pid, signal.SIGTERM)
        lines.append(await asyncio.to_thread(alpha.read_line))
        code = await asyncio.to_thread(alpha.wait)
        gone = await list_workers(db)

    assert (code, lines[1]) == (128 + signal.SIGTERM, "Ends now; what was in flight is given up.\n")
    assert "Traceback" not in (folder / "alpha.log").read_text()
    if not is_away:
        assert gone == []
        (folder / "call.closed").unlink()
        await go_on_elsewhere(office, folder, fleet_url, flows, "call")


async def test_who_waits_for_a_drained_worker_can_start_another_one_of_its_name(
    office: Api, folder: Path, fleet_url: str, flows: tuple[str, ...]
) -> None:
    environment = to_environment(folder, fleet_url, "laptop")
    with machines(folder, fleet_url, "alpha", arguments=flows) as (alpha,):
        await begin_call(office, folder, "call")
        waiting = Speaking(("workers", "drain", "alpha", "--wait"), environment, folder / "drain.log")
        lines = [await asyncio.to_thread(waiting.read_line) for _ in range(2)]
        line = await asyncio.to_thread(alpha.read_line)
        (folder / "call.closed").unlink()
        lines.append(await asyncio.to_thread(waiting.read_line))
        codes = [await asyncio.to_thread(waiting.end, signal.SIGCONT), await asyncio.to_thread(alpha.wait)]
        again = Machine(folder, fleet_url, "alpha", *flows)
        drain = ("workers", "drain", "alpha", "--wait", "--json")
        done = await asyncio.to_thread(shell, *drain, env=environment)
        again.end()

    assert line == "Somebody drains it. Ends after the calls in flight of 1 run, within 3600 s.\n"
    assert lines == [
        "Worker alpha takes nothing more, and ends when its calls in flight have.\n",
        "It still drives 1 run.\n",
        "Worker alpha has ended.\n",
    ]
    assert codes == [0, 0]
    assert again.greeting.startswith("Worker alpha takes runs from")
    assert json.loads(done.stdout) == {"name": "alpha", "is_draining": False, "has_ended": True}


async def test_who_waits_for_a_worker_hears_that_it_died_and_that_a_dead_one_has_nothing_to_drain(
    office: Api, folder: Path, fleet_url: str, flows: tuple[str, ...]
) -> None:
    environment = to_environment(folder, fleet_url, "laptop")
    with machines(folder, fleet_url, "alpha", arguments=flows) as (alpha,):
        await begin_call(office, folder, "call")
        waiting = asyncio.create_task(
            asyncio.to_thread(shell, "workers", "drain", "alpha", "--wait", "--json", env=environment)
        )
        await asyncio.to_thread(alpha.read_line)
        alpha.end(signal.SIGKILL)
        died = await waiting
        dead = await asyncio.to_thread(shell, "workers", "drain", "alpha", env=environment)
        answer = await office.admin.post("/api/workers/alpha/drain")

    assert (died.returncode, '"has_ended": false' in died.stdout) == (1, True)
    assert (dead.returncode, dead.stdout) == (2, "")
    assert "worker_not_found: Worker 'alpha' has shown no sign of life for" in dead.stderr
    assert (answer.status_code, answer.json()["code"]) == (422, "worker_not_found")


async def test_a_server_that_drives_says_so_too_and_a_second_signal_ends_it(
    office: Api, folder: Path, fleet_url: str, flows: tuple[str, ...]
) -> None:
    arguments = ["serve", "--no-auth", "--no-browser", "--port", "0", *flows]
    serving = Speaking(arguments, to_environment(folder, fleet_url, "server"), folder / "server.log")
    try:
        serving.read_line()
        db = await begin_call(office, folder, "call")
        serving.process.send_signal(signal.SIGTERM)
        line = await asyncio.to_thread(serving.read_line)
        await wait_for_figures(db, free_slots=0, workers=1)
        (worker,) = await list_workers(db)
        serving.process.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(serving.process.wait)
        gone = await list_workers(db)
    finally:
        serving.end(signal.SIGKILL)

    assert line == "Ends after the calls in flight of 1 run, within 3600 s. Ctrl-C again ends it now.\n"
    assert (worker.is_draining, worker.driven) == (True, 1)
    assert (code in (-signal.SIGTERM, 128 + signal.SIGTERM), gone) == (True, [])


async def test_a_flow_that_sleeps_for_more_than_half_a_minute_gives_its_slot_back(
    office: Api, folder: Path, fleet_url: str, flows: tuple[str, ...]
) -> None:
    server = await office.app.state.holder.get()
    store = server.journal.store
    with machines(folder, fleet_url, "alpha", arguments=flows):
        for seconds in (29, 31):
            await start_flow("nap", seconds, run_id=f"nap {seconds}", store=store)
            await wait_for_kind(server.journal, f"nap {seconds}", "timer.started")
        await start_flow("count", "a", 3, run_id="count", store=store)
        await wait_for_kind(server.journal, "count", "run.completed")
        owned = {run_id: bool(await read_owner(server.db, run_id)) for run_id in ("nap 29", "nap 31")}
        is_over = "run.completed" in await list_kinds(server.journal, "nap 29")

    assert (owned["nap 29"] or is_over, owned["nap 31"]) == (True, False)


async def read_owner(db: Database, run_id: str) -> Any:
    async with db.session() as session:
        return await session.scalar(text("SELECT owner FROM journal_runs WHERE run_id = :id"), {"id": run_id})
