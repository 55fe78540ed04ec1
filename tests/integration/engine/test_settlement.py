"""Money that was perhaps paid is settled by what the provider tells later, or by a person."""

import asyncio
import json
import os
import signal
import threading
from decimal import Decimal
from pathlib import Path

import pytest
from tests.support.crash.dying_command import run_dying
from tests.support.engine_world import World, artifact
from tests.support.model_server import Hangs, ModelServer, Reply, Says, asks
from tests.support.progress_limit import until
from tests.support.served_engine import RUN_ID, ServedEngine
from tests.support.terminal import shell

from holdfast.cli.commands.budget import budget, read_day, read_run_budget
from holdfast.cli.commands.runs.list import list_runs
from holdfast.cli.commands.runs.show import read_run
from holdfast.engine.settlement import settle_by_person
from holdfast.enums import Backend, RunStatus
from holdfast.errors import ConfigInvalid, RunBusy, RunNotInState
from holdfast.persistence.models import RunRow
from holdfast.persistence.raw_sql import RunQuery, read_runs

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
WRITES = asks(("write_file", {"file_path": "/out/spec.json", "content": json.dumps(artifact(RUN_ID, "spec"))}))


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "a-key-for-tests-of-money")


def open_engine(world: World, server: ModelServer) -> ServedEngine:
    return ServedEngine(world, server, backend=Backend.OPENROUTER, model="deepseek-v4-pro")


def serve(first: Reply) -> ModelServer:
    return ModelServer({"": [[first, WRITES], Says("Written.")]})


async def cut_off(world: World, server: ModelServer, *, is_begun: bool = True) -> ServedEngine:
    """Start a run and give it up in the middle of its first answer."""
    engine = open_engine(world, server)
    task = engine.start("spec")

    def is_under_way() -> bool:
        events = world.events(RUN_ID, "agent.progress") if server.received else []
        return any(event.payload.get("response_id") for event in events) or (not is_begun and bool(server.received))

    await until(is_under_way, "the answer has begun")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return engine


def begins() -> Says:
    return Says("It begins. ", holds=threading.Event())


async def test_a_call_that_was_cut_off_is_settled_by_what_its_provider_tells(world: World) -> None:
    with serve(begins()) as server:
        engine = await cut_off(world, server)
        [open_entry] = [row for row in await world.ledger(RUN_ID) if row.state == "reserved"]
        server.costs["answer"] = 0.0123
        result = await engine.open().resume(RUN_ID)

    assert result.state is RunStatus.COMPLETED
    rows = {row.id: row for row in await world.ledger(RUN_ID)}
    settled = rows[open_entry.id]
    assert (settled.state, settled.amount_micros, settled.input_tokens) == ("settled", 12_300, 90)
    assert {row.state for row in rows.values()} == {"settled"}
    [event] = [e for e in world.events(RUN_ID, "budget.settled") if "response_id" in e.payload]
    assert event.payload["entry"] == open_entry.id
    assert server.looked_at == ["/v1/generation?id=answer"]


async def test_what_the_provider_does_not_know_stays_counted(world: World) -> None:
    with serve(begins()) as server:
        engine = await cut_off(world, server)
        result = await engine.open().resume(RUN_ID)

    assert result.state is RunStatus.COMPLETED
    assert [row.state for row in await world.ledger(RUN_ID)].count("reserved") == 1


async def test_nobody_is_asked_about_an_answer_that_never_began(world: World) -> None:
    with serve(Hangs()) as server:
        engine = await cut_off(world, server, is_begun=False)
        await engine.open().resume(RUN_ID)

    assert server.looked_at == []


async def test_a_person_settles_a_call_once(world: World) -> None:
    with serve(Hangs()) as server:
        engine = await cut_off(world, server, is_begun=False)
        [entry] = await world.ledger(RUN_ID)

        step = await settle_by_person(world.db, RUN_ID, entry.id[:8], Decimal("0.02"), by="ann")

        assert step == entry.step_key
        [row] = await world.ledger(RUN_ID)
        assert (row.state, row.amount_micros) == ("settled", 20_000)
        [event] = world.events(RUN_ID, "budget.settled")
        assert event.payload["by"] == "ann"
        with pytest.raises(RunNotInState):
            await settle_by_person(world.db, RUN_ID, entry.id[:8], Decimal("0.03"))
        assert (await engine.open().resume(RUN_ID)).state is RunStatus.COMPLETED


@pytest.mark.parametrize(
    ("call", "cost", "error"),
    [("nothing", "1", RunNotInState), ("", "1", RunNotInState), ("spec/1/turn1/m0", "-1", ConfigInvalid)],
)
async def test_what_cannot_be_settled_changes_nothing(
    world: World, call: str, cost: str, error: type[Exception]
) -> None:
    with serve(Hangs()) as server:
        await cut_off(world, server, is_begun=False)
        with pytest.raises(error):
            await settle_by_person(world.db, RUN_ID, call, Decimal(cost))

    assert [row.state for row in await world.ledger(RUN_ID)] == ["reserved"]


@pytest.mark.parametrize("is_settled", [False, True])
async def test_a_settlement_that_is_killed_is_there_once_or_not_at_all(
    world: World, tmp_path: Path, is_settled: bool
) -> None:
    with serve(Hangs()) as server:
        await cut_off(world, server, is_begun=False)
    [entry] = [row for row in await world.ledger(RUN_ID) if row.state == "reserved"]
    # Event and row are written, and not committed; or committed, and nobody was told.
    place = "runtime.checkpoint.sqlite.transaction:SQLiteTx.run_rows", "runtime.journal:Journal._settle"
    point = f"after holdfast.{place[is_settled]}"
    env = {**os.environ, "HOLDFAST_DATA_DIR": str(world.data_dir)}

    code = run_dying(["budget", RUN_ID, "--settle", f"{entry.id[:8]}=0.02"], point, env, tmp_path / "log")

    assert code == -signal.SIGKILL, (tmp_path / "log").read_text()
    events = world.events(RUN_ID, "budget.settled")
    [row] = [row for row in await world.ledger(RUN_ID) if row.id == entry.id]
    assert (len(events), row.state) == ((1, "settled") if is_settled else (0, "reserved"))
    if is_settled:
        with pytest.raises(RunNotInState):
            await settle_by_person(world.db, RUN_ID, entry.id[:8], Decimal("0.02"))
    else:
        await settle_by_person(world.db, RUN_ID, entry.id[:8], Decimal("0.02"))
    assert len(world.events(RUN_ID, "budget.settled")) == 1


async def test_a_call_under_way_is_not_settled(world: World) -> None:
    with serve(Hangs()) as server:
        task = open_engine(world, server).start("spec")
        await until(lambda: bool(server.received), "the call")
        try:
            with pytest.raises(RunBusy):
                await settle_by_person(world.db, RUN_ID, "spec/1/turn1/m0", Decimal(1))
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_the_command_lists_the_calls_and_settles_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_DATA_DIR", str(world.data_dir))
    with serve(Hangs()) as server:
        engine = await cut_off(world, server, is_begun=False)
        await engine.open().abort(RUN_ID)
    [entry] = await world.ledger(RUN_ID)

    command, env = ("budget", RUN_ID), dict(os.environ)
    before = shell(*command, "--json", env=env)
    text = shell(*command, env=env).stdout
    after = shell(*command, "--settle", f"{entry.id[:8]}=0.01", env=env)
    wrong = shell(*command, "--settle", "x=-1", env=env)

    assert [one["call"] for one in json.loads(before.stdout)["perhaps_paid"]] == [entry.id]
    assert f"--settle {entry.id[:8]}=USD" in text
    assert "$0.0100" in after.stdout
    assert "perhaps paid" not in after.stdout
    assert (before.returncode, after.returncode, wrong.returncode) == (0, 0, 2)


async def test_every_listing_shows_apart_what_was_perhaps_paid(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_DATA_DIR", str(world.data_dir))
    with serve(Hangs()) as server:
        task = open_engine(world, server).start("spec")
        await until(lambda: bool(server.received), "the call")
        under_way = read_run_budget(RUN_ID)
        task.cancel()  # as a kill does: the run's row still says that it runs
        await asyncio.gather(task, return_exceptions=True)
    [entry] = await world.ledger(RUN_ID)
    usd = entry.amount_micros / 1_000_000
    async with world.db.session() as session, session.begin():
        (await session.get_one(RunRow, RUN_ID)).state = RunStatus.RUNNING.value

    killed, day = read_run_budget(RUN_ID), read_day()
    [listed] = read_runs(RunQuery(), limit=5)
    facts = read_run(RUN_ID)
    list_runs(limit=5)
    table = capsys.readouterr().out
    budget()
    of_day = capsys.readouterr().out

    assert (under_way["reserved_usd"], under_way["perhaps_paid_usd"], under_way["perhaps_paid"]) == (usd, 0, [])
    assert (killed["perhaps_paid_usd"], [one["call"] for one in killed["perhaps_paid"]]) == (usd, [entry.id])
    assert {listed["perhaps_paid_usd"], facts["perhaps_paid_usd"], day["perhaps_paid_usd"]} == {usd}
    assert f"$0.0000 + ${usd:.4f}?" in table
    assert "? perhaps paid" in table
    assert f"of it ${usd:.4f} perhaps paid" in of_day
    assert f"$0.0000 spent, ${usd:.4f} perhaps paid" in of_day
