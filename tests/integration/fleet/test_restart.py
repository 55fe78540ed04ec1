"""A worker that dies and is started again on its machine finds what it had in hand, before another machine takes it."""

import asyncio
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.fleet.test_worker import owner_of, run_sql
from tests.support.api.server_world import Api
from tests.support.fleet_machines import HAS_AGENTS, Machine, machines
from tests.support.progress_limit import until, waiting_until

from holdfast.persistence.db import Database
from holdfast.workspace import list_commands

# However long a busy machine takes to start a process.
LONGER = "UPDATE journal_runs SET lease_until = now() + interval '100 s' WHERE owner IS NOT NULL"
AGENTS = {HAS_AGENTS: "1"}
_PERSONA = """
name: {on_lost}
version: 1
backend: command
capabilities: [spec_write]
cost_per_run_usd: 0.25
on_lost: {on_lost}
sandbox: {{write: [{folder}]}}
argv: [sh, -c, {body}]
"""
# Whoever begins takes the lock for as long as it lives, or says that another one has it.
_BODY = """
exec 9> {log}.$run.lock; flock -n 9 || echo "$run twice" >> {log}; echo "$run begins" >> {log}
until [ -e {log}.go ]; do sleep 0.05; done
echo '{{"note": "a note"}}' > first.json; echo '{{"note": "a note"}}' > second.json; echo "$run ends" >> {log}
"""
_RUN = "run=$(grep -oE '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}' | head -n 1)"


@pytest.fixture
def log(folder: Path) -> Iterator[Path]:
    """Where agents write what they do, outside of every worktree; they go on once `log.go` is there."""
    log = folder / "shared" / "log"
    log.parent.mkdir()
    (folder / "config" / "personas").mkdir()
    body = json.dumps(_RUN + _BODY.format(log=log))
    for on_lost in ("ask", "rerun"):
        text = _PERSONA.format(on_lost=on_lost, folder=log.parent, body=body)
        (folder / "config" / "personas" / f"{on_lost}.yaml").write_text(text)
    yield log
    log.with_name("log.go").touch()  # whatever a failed test has left ends


def read_log(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


async def start(office: Api, on_lost: str, **changes: object) -> str:
    body = {"simulate": False, "persona_overrides": {"author": on_lost}, **changes}
    return await office.start(**body)


async def is_of_dead(db: Database, run_id: str) -> bool:
    """Tell whether the owner of a run is a process that has ended; here all processes are on one machine."""
    owner = json.loads(await owner_of(db, run_id))
    return not Path(f"/proc/{owner['pid']}").exists()


async def test_a_worker_that_was_killed_and_is_back_goes_on_with_its_living_agents_before_anything_new(
    office: Api, folder: Path, fleet_url: str, log: Path
) -> None:
    server = await office.app.state.holder.get()
    with machines(folder, fleet_url, "alpha", arguments=("--slots", "2"), **AGENTS) as fleet:
        runs = [await start(office, on_lost) for on_lost in ("ask", "rerun")]
        await until(lambda: len(read_log(log)) == 2, "the agents have begun")
        fleet.append(Machine(folder, fleet_url, "beta", "--slots", "1", **AGENTS))
        runs.append(await start(office, "ask"))
        await until(lambda: len(read_log(log)) == 3, "the third agent has begun, on the other machine")
        waiting = await start(office, "ask")
        fleet[0].end(signal.SIGKILL)
        await run_sql(server.db, LONGER)
        fleet.append(Machine(folder, fleet_url, "alpha", "--slots", "2", **AGENTS))
        with waiting_until("the new process has the runs"):
            while len(dead := [run_id for run_id in runs if await is_of_dead(server.db, run_id)]) > 0:
                await asyncio.sleep(0.05)
        owners = [await owner_of(server.db, run_id) for run_id in (*runs, waiting)]
        log.with_name("log.go").touch()
        ended = [await office.wait_for(run_id, "completed", "failed", "paused") for run_id in (*runs, waiting)]

    assert dead == []
    assert [run["state"] for run in ended] == ["completed"] * 4
    hosts = [re.findall('"host":"(\\w+)"', owner) for owner in owners]
    assert hosts == [["alpha"], ["alpha"], ["beta"], []]
    assert [read_log(log).count(f"{run_id} begins") for run_id in runs] == [2] * 3  # once in each phase
    assert not [line for line in read_log(log) if line.endswith("twice")]
    kinds = [event.kind for run_id in runs for event in await server.journal.read(run_id)]
    assert "workspace.moved" not in kinds


async def test_a_stopped_workers_agent_that_another_machine_begins_again_is_not_alive_any_more(
    office: Api, folder: Path, fleet_url: str, log: Path
) -> None:
    with machines(folder, fleet_url, "alpha", **AGENTS) as fleet:
        run_id = await start(office, "rerun")
        asks = await start(office, "ask")
        await until(lambda: len(read_log(log)) == 2, "the agents have begun")
        spool = fleet[0].data_dir / "spool"
        fleet.append(Machine(folder, fleet_url, "beta", **AGENTS))
        fleet[0].stop()
        await until(lambda: read_log(log).count(f"{run_id} begins") == 2, "it has begun on the other machine")
        assert [key.partition(":")[0] for key in list_commands(spool)] == [asks]
        fleet[0].go_on()
        await until(lambda: not list_commands(spool), "the command of which a person is asked is ended as well")
        log.with_name("log.go").touch()
        assert (await office.wait_for(run_id, "completed", "failed", "paused"))["state"] == "completed"
        assert (await office.wait_for(asks, "completed", "failed", "paused"))["waiting_for"]

    lines = [line for line in read_log(log) if line.startswith(run_id)]
    assert lines == [f"{run_id} {what}" for what in ("begins", "begins", "ends", "begins", "ends")]


async def test_an_agent_that_ended_with_the_lease_runs_again_where_it_was_and_nobody_is_asked(
    office: Api, folder: Path, fleet_url: str, log: Path
) -> None:
    with machines(folder, fleet_url, "alpha", **AGENTS) as (alpha,):
        run_id = await start(office, "rerun")
        await until(lambda: len(read_log(log)) == 1, "the agent has begun")
        spool = alpha.data_dir / "spool"
        alpha.stop()
        await until(lambda: not list_commands(spool), "the agent is ended, though its worker stands still")
        assert not [*spool.glob("*/rc.json")]
        alpha.go_on()
        await until(lambda: len(read_log(log)) == 2, "the agent has begun again")
        log.with_name("log.go").touch()
        assert (await office.wait_for(run_id, "completed", "failed", "paused"))["state"] == "completed"
    assert f"{run_id} twice" not in read_log(log)


async def test_a_second_signal_ends_what_another_machine_may_begin_at_once(
    office: Api, folder: Path, fleet_url: str, log: Path
) -> None:
    with machines(folder, fleet_url, "alpha", **AGENTS) as (alpha,):
        runs = {on_lost: await start(office, on_lost) for on_lost in ("ask", "rerun")}
        await until(lambda: len(read_log(log)) == 2, "the agents have begun")
        os.kill(alpha.pid, signal.SIGTERM)
        while "Ctrl-C again" not in alpha.read_line():
            pass
        assert alpha.end(signal.SIGTERM) == 128 + signal.SIGTERM
        spool = alpha.data_dir / "spool"
        left = list_commands(spool)
    log.with_name("log.go").touch()
    assert [key.partition(":")[0] for key in left] == [runs["ask"]]
    await until(lambda: not list_commands(spool), "the other agent has ended")
