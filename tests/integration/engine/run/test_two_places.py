"""F1: one database, two data directories: a command in flight is not run twice, and its money is counted right."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.support.engine_world import World, artifact, new_world, phase, template
from tests.support.postgres_server import fresh_schema
from tests.support.progress_limit import until

import holdfast.engine
from holdfast.agents.build import build_agent
from holdfast.engine import WorkflowEngine
from holdfast.engine.run.foreign_commands import stop_foreign_commands
from holdfast.enums import Backend, RunStatus
from holdfast.errors import LeaseLost
from holdfast.persona import AgentPersona
from holdfast.runtime.checkpoint import process_owner
from holdfast.runtime.checkpoint.base import Claim
from holdfast.runtime.events import EventKind, create_event
from holdfast.runtime.outcomes.crashes import find_crash_loop
from holdfast.workspace import SpoolOptions, list_commands, run_spooled, stop_spooled

CONTENT = json.dumps(artifact("00000000-0000-0000-0000-000000000000", "spec"))
HAND_IN = f"mkdir -p out; echo '{CONTENT}' > out/spec.json"


@pytest.fixture
async def worlds(postgres_url: str, tmp_path: Path, plain_repo: Path) -> AsyncIterator[tuple[World, World]]:
    with fresh_schema(postgres_url) as url, new_world(url, tmp_path / "a", plain_repo) as first:
        await first.db.init_schema()
        second = World(url, tmp_path / "b")
        yield first, second
        await second.close()
        await first.close()


def engine_with(world: World, body: str, **fields: Any) -> WorkflowEngine:
    definition = {"name": "tool", "version": 1, "backend": "command", "capabilities": ["spec_write"], **fields}
    who = AgentPersona.model_validate({**definition, "argv": ["sh", "-c", body]})
    engine = world.engine(pool=(who,), backends=frozenset({Backend.COMMAND}))
    holdfast.engine.build_agent = build_agent
    return engine


@pytest.mark.parametrize("on_lost", ["ask", "rerun"])
async def test_f1_an_agent_of_another_place_is_ended_there_and_not_begun_again_unasked(
    worlds: tuple[World, World], tmp_path: Path, on_lost: str
) -> None:
    here, there = worlds
    begun = tmp_path / "shared" / "begun"
    begun.parent.mkdir()
    # The first one never ends by itself; what is begun after it hands in at once.
    body = f"echo $$ >> {begun}; if [ $(wc -l < {begun}) = 1 ]; then sleep 1000; fi; {HAND_IN}"
    fields = {"cost_per_run_usd": 2.5, "on_lost": on_lost, "sandbox": {"write": [str(tmp_path / "shared")]}}
    first = engine_with(here, body, **fields)
    driving = asyncio.create_task(first.run(template(phase("spec")), repo_path=here.repo))
    await until(lambda: driving.done() or (begun.exists() and begun.read_text().strip()))
    assert not driving.done(), driving.result()
    [before] = begun.read_text().splitlines()
    [run_id] = here.db.store.list_runs()

    taken = there.db.store.claim(run_id, force=True)
    with pytest.raises(LeaseLost):
        await driving
    assert list_commands(here.data_dir / "spool") == []
    there.db.store.release(taken)

    second = engine_with(there, body, **fields)
    result = await second.resume(run_id)
    if on_lost == "ask":
        assert (result.state, result.waiting_for) == (RunStatus.PAUSED, "outcome")
        assert begun.read_text().splitlines() == [before]
        [row] = await there.approvals(run_id)
        assert row.shown["args"]["argv"] == ["sh", "-c", body]
        assert row.shown["place"]["data"] == (here.data_dir / ".place").read_text()
        assert row.shown["place"]["at"] > 0
        await second.decide(run_id, row.id, "approve")
        result = await second.resume(run_id)

    assert result.state is RunStatus.COMPLETED
    assert len(begun.read_text().split()) == 2
    assert list_commands(there.data_dir / "spool") == []
    # Both may have been paid: the first never said what it has cost.
    assert sorted(row.state for row in await there.ledger(run_id)) == ["reserved", "settled"]
    assert result.cost_micros == 5_000_000
    starts = [event.payload["place"]["data"] for event in there.events(run_id, EventKind.TOOL_STARTED)]
    assert starts == [(world.data_dir / ".place").read_text() for world in (here, there)]


async def test_f1_a_machine_that_comes_back_ends_its_commands_of_runs_that_another_one_has(
    worlds: tuple[World, World], tmp_path: Path
) -> None:
    here, _ = worlds
    spool = here.data_dir / "spool"
    options = SpoolOptions(leave_running=True)
    waits = [
        asyncio.create_task(run_spooled(key, "sleep 1000", cwd=tmp_path, spool_dir=spool, options=options))
        for key in ("mine:s", "theirs:s")
    ]
    await until(lambda: len(list_commands(spool)) == 2)
    elsewhere = process_owner.Owner("other", "boot", "ns", os.getpid(), "1", "token").to_text()
    for run_id in ("mine", "theirs"):
        here.db.store.save_event(create_event(run_id, EventKind.AGENT_PROGRESS))
    await here.sql(
        "UPDATE journal_runs SET owner = :owner, lease_until = now() + interval '1 hour' WHERE run_id = 'theirs'",
        owner=elsewhere,
    )

    assert await stop_foreign_commands(here.db, spool) == ["theirs:s"]

    assert list_commands(spool) == ["mine:s"]
    await until(lambda: waits[1].done())
    await _end(waits[0], spool)


async def _end(wait: "asyncio.Task[Any]", spool: Path) -> None:
    await stop_spooled("mine:s", spool_dir=spool)
    await wait


# -- runs that kill their owners --------------------------------------------------------------------------------------


def test_f7_only_deaths_with_nothing_recorded_between_them_count() -> None:
    claim, takeover = Claim("r", 3, 9), Claim("r", 3, 9, is_takeover=True)
    death = create_event("r", EventKind.RUN_RESUMED, taken_over=True)
    resumed, result = create_event("r", EventKind.RUN_RESUMED), create_event("r", EventKind.TOOL_RESULT)

    assert find_crash_loop(takeover, [death, death]) is not None
    assert find_crash_loop(claim, [death, death]) is None
    assert find_crash_loop(takeover, [death]) is None
    assert find_crash_loop(takeover, [death, result, death]) is None
    assert find_crash_loop(takeover, [death, resumed]) is None


async def test_f7_a_run_whose_owners_died_three_times_waits_for_a_person(world: World) -> None:
    run_id = await world.run_and_stop(lambda _turn: None)
    for _ in range(2):
        world.db.store.save_event(create_event(run_id, EventKind.RUN_RESUMED, taken_over=True))
    await _leave_claim(world, run_id)

    paused = await world.engine().resume(run_id)
    assert (paused.state, paused.waiting_for) == (RunStatus.PAUSED, "crashing")

    assert (await world.engine().resume(run_id)).state is RunStatus.COMPLETED


async def _leave_claim(world: World, run_id: str) -> None:
    """Leave the run as an owner that was killed does."""
    if world.db.path is None:
        dead = process_owner.Owner("gone", "boot", "ns", 1, "1", "token").to_text()
        sql = "UPDATE journal_runs SET owner = :owner, lease_until = now() - interval '1 hour' WHERE run_id = :id"
        await world.sql(sql, owner=dead, id=run_id)
        await until(lambda: _is_server_settled(world))
    else:
        folder = Path(f"{os.path.realpath(world.db.path)}-locks")
        lock = world.db.store.claim(run_id)
        [path] = folder.iterdir()
        world.db.store.release(lock)
        path.touch()


def _is_server_settled(world: World) -> bool:
    """A lease that ended before the server was up for the time of one lease is believed until then."""
    sql = "SELECT clock_timestamp() - pg_postmaster_start_time() > interval '6 s'"
    with psycopg.connect(world.url) as connection:
        return connection.execute(sql.encode()).fetchone() == (True,)
