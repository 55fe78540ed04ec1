"""F1: one database, two data directories: a command in flight is not run twice, and its money is counted right."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine_world import World, artifact, phase, template
from tests.support.network import open_wire
from tests.support.progress_limit import until

import holdfast.engine
from holdfast.agents.build import build_agent
from holdfast.engine import WorkflowEngine
from holdfast.engine.phase import commands
from holdfast.engine.run import foreign_commands
from holdfast.engine.run.foreign_commands import stop_foreign_commands
from holdfast.enums import Backend, RunStatus
from holdfast.errors import LeaseLost, StoreUnavailable
from holdfast.persistence.listings import list_due
from holdfast.persona import AgentPersona
from holdfast.runtime.checkpoint import process_owner
from holdfast.runtime.events import EventKind, create_event
from holdfast.workspace import SpoolOptions, list_commands, remove_spooled, run_spooled, stop_spooled


class Died(BaseException):
    """The process is gone."""


CONTENT = json.dumps(artifact("00000000-0000-0000-0000-000000000000", "spec"))
HAND_IN = f"mkdir -p out; echo '{CONTENT}' > out/spec.json"


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
        # Whoever looks for what is due finds it, though nobody asked to resume it; it is served once.
        assert [due.run_id for due in await list_due(there.db)] == [run_id]
        result = await second.resume(run_id)
        assert (await there.run_row(run_id)).wake is None

    assert result.state is RunStatus.COMPLETED
    assert len(begun.read_text().split()) == 2
    assert list_commands(there.data_dir / "spool") == []
    # Both may have been paid: the first never said what it has cost.
    assert sorted(row.state for row in await there.ledger(run_id)) == ["reserved", "settled"]
    assert result.cost_micros == 5_000_000
    starts = [event.payload["place"]["data"] for event in there.events(run_id, EventKind.TOOL_STARTED)]
    assert starts == [(world.data_dir / ".place").read_text() for world in (here, there)]


async def test_f1_an_agent_that_could_change_only_a_worktree_that_is_gone_runs_again_unasked(
    worlds: tuple[World, World],
) -> None:
    here, there = worlds
    # The first one never ends by itself; the data directory of the place says which it is.
    body = f"case $PWD in {here.data_dir}*) sleep 1000;; esac; {HAND_IN}"
    fields = {"cost_per_run_usd": 2.5, "permissions": {"network": "deny"}}
    driving = asyncio.create_task(engine_with(here, body, **fields).run(template(phase("spec")), repo_path=here.repo))
    await until(lambda: driving.done() or list_commands(here.data_dir / "spool"))
    assert not driving.done(), driving.result()
    [run_id] = here.db.store.list_runs()

    taken = there.db.store.claim(run_id, force=True)
    with pytest.raises(LeaseLost):
        await driving
    there.db.store.release(taken)
    result = await engine_with(there, body, **fields).resume(run_id)

    assert result.state is RunStatus.COMPLETED
    assert sorted(row.state for row in await there.ledger(run_id)) == ["reserved", "settled"]
    starts = [event.payload["place"] for event in there.events(run_id, EventKind.TOOL_STARTED)]
    assert [start["is_contained"] for start in starts] == [True, True]


@pytest.mark.parametrize(
    ("is_unsandboxed", "fields"),
    [
        (True, {"permissions": {"network": "deny"}}),
        (False, {"permissions": {"network": "deny"}, "sandbox": False}),
        (False, {"permissions": {"network": "deny"}, "sandbox": {"read": ["/opt"]}}),
        (False, {"permissions": {"network": "deny", "readable": ["/opt"]}}),
        (False, {}),
    ],
    ids=["run-unsandboxed", "persona-unsandboxed", "reads-more", "commands-read-more", "network"],
)
async def test_only_an_agent_that_runs_in_a_sandbox_and_reaches_nobody_is_recorded_as_contained(
    world: World, is_unsandboxed: bool, fields: dict[str, Any]
) -> None:
    engine = engine_with(world, HAND_IN, **fields)

    result = await engine.run(template(phase("spec")), repo_path=world.repo, is_unsandboxed=is_unsandboxed)

    if result.state is RunStatus.PAUSED:  # a person is asked, since the persona goes without a sandbox
        [row] = await world.approvals(str(result.run_id))
        await engine.decide(result.run_id, row.id, "approve")
        result = await engine.resume(result.run_id)
    assert result.state is RunStatus.COMPLETED, result.error
    [start] = world.events(str(result.run_id), EventKind.TOOL_STARTED)
    assert start.payload["place"]["is_contained"] is False


@pytest.mark.parametrize("on_lost", ["ask", "rerun"])
async def test_f1_what_was_left_of_a_command_here_is_not_taken_for_its_next_start_when_the_run_comes_back(
    worlds: tuple[World, World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_lost: str
) -> None:
    here, there = worlds
    begun = tmp_path / "shared" / "begun"
    begun.parent.mkdir()
    # Each one that is to be left waits for a file of its own number, and then hands in where nobody looks any more.
    left = 1 if on_lost == "ask" else 2
    wait = f"while [ ! -e {begun}.$n ]; do sleep 0.05; done"
    body = f"echo $$ >> {begun}; n=$(wc -l < {begun}); if [ $n -le {left} ]; then {wait}; fi; {HAND_IN}"
    fields = {"cost_per_run_usd": 2.5, "on_lost": on_lost, "sandbox": {"write": [str(tmp_path / "shared")]}}
    driving = asyncio.create_task(engine_with(here, body, **fields).run(template(phase("spec")), repo_path=here.repo))
    await _leave(driving, begun, 1)
    [run_id] = here.db.store.list_runs()
    Path(f"{begun}.1").touch()
    await until(lambda: not list_commands(here.data_dir / "spool"))

    elsewhere = engine_with(there, body, **fields)
    if on_lost == "ask":
        assert (await elsewhere.resume(run_id)).waiting_for == "outcome"
        [row] = await there.approvals(run_id)
        await elsewhere.decide(run_id, row.id, "approve")
    else:
        await _leave(asyncio.create_task(elsewhere.resume(run_id)), begun, 2)

    remove, died = commands.remove_spooled, []

    def remove_and_die(key: str, *, spool_dir: Path) -> None:
        if on_lost == "ask":  # else it dies before
            remove(key, spool_dir=spool_dir)
        died.append(key)
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(commands, "remove_spooled", remove_and_die)
        with pytest.raises(Died):
            await engine_with(here, body, **fields).resume(run_id)
    assert died

    result = await engine_with(here, body, **fields).resume(run_id)
    Path(f"{begun}.2").touch()

    assert result.state is RunStatus.COMPLETED, result.error
    keys = [event.payload["key"] for event in here.events(run_id, EventKind.TOOL_STARTED)]
    assert (len(begun.read_text().split()), keys) == (left + 1, [keys[0]] * (left + 1))
    states = sorted(row.state for row in await here.ledger(run_id))
    assert states == [*["reserved"] * left, "settled"]
    await until(lambda: not list_commands(there.data_dir / "spool"))


async def _leave(driving: "asyncio.Task[Any]", begun: Path, count: int) -> None:
    """Stop driving as soon as so many commands have begun; the last one goes on without us."""
    await until(lambda: driving.done() or (begun.exists() and len(begun.read_text().split()) == count))
    assert not driving.done(), driving.result()
    driving.cancel()
    await asyncio.wait([driving])


async def test_a_command_that_another_place_would_run_again_ends_with_the_lease(
    worlds: tuple[World, World], tmp_path: Path
) -> None:
    here, there = worlds
    begun = tmp_path / "begun"
    body = f"echo $$ >> {begun}; if [ $(wc -l < {begun}) = 1 ]; then sleep 1000; fi; {HAND_IN}"
    asks = f"touch {begun}.asks; sleep 1000"
    with open_wire(here.url) as wire:
        cut_off = World(wire.url, here.folder)
        options = {"repo_path": here.repo, "is_unsandboxed": True}
        rerun = engine_with(cut_off, body, on_lost="rerun")
        driving = [asyncio.create_task(rerun.run(template(phase("spec")), **options))]
        await until(lambda: driving[0].done() or (begun.exists() and begun.read_text().strip()))
        [run_id] = here.db.store.list_runs()
        driving.append(asyncio.create_task(engine_with(cut_off, asks).run(template(phase("spec")), **options)))
        await until(lambda: driving[1].done() or Path(f"{begun}.asks").exists())
        assert not any(task.done() for task in driving)
        spool = here.data_dir / "spool"
        assert len(list_commands(spool)) == 2

        wire.is_flowing.clear()  # nobody is told
        await until(lambda: len(list_commands(spool)) == 1, "the command has ended that another would run again")
        [left] = list_commands(spool)
        assert not left.startswith(run_id)
        wire.is_flowing.set()
        with pytest.raises(StoreUnavailable):
            await driving[0]
        driving[1].cancel()
        await asyncio.gather(driving[1], return_exceptions=True)
        await stop_spooled(left, spool_dir=spool)
        await cut_off.close()

    result = await engine_with(there, body, on_lost="rerun").resume(run_id)
    assert result.state is RunStatus.COMPLETED, result.error
    assert len(begun.read_text().split()) == 2
    assert [e.payload["resolution"] for e in there.events(run_id, "tool.unknown") if "x0" in e.payload["key"]] == [
        "rerun"
    ]


async def test_f1_a_machine_that_comes_back_ends_its_commands_of_runs_that_have_left_it(
    worlds: tuple[World, World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = worlds
    # One moves to another place and waits there for a person, with nobody as its owner; one is over.
    made = template(phase("one"), phase("two", risk="high"))
    moved = await here.run_and_stop(lambda _turn: None, template=made, engine={"carry_files": True})
    there.know(made)
    assert (await there.engine(carry_files=True).resume(moved)).state is RunStatus.PAUSED
    over = str((await here.run(engine={"carry_files": True})).run_id)
    spool = here.data_dir / "spool"
    options = SpoolOptions(leave_running=True)
    waits = [
        asyncio.create_task(run_spooled(key, "sleep 1000", cwd=tmp_path, spool_dir=spool, options=options))
        for key in ("mine:s", "theirs:s", f"{moved}:s", f"{over}:s")
    ]
    await until(lambda: len(list_commands(spool)) == 4)
    elsewhere = process_owner.Owner("other", "boot", "ns", os.getpid(), "1", "token").to_text()
    for run_id in ("mine", "theirs"):
        here.db.store.save_event(create_event(run_id, EventKind.AGENT_PROGRESS))
    await here.sql(
        "UPDATE journal_runs SET owner = :owner, lease_until = now() + interval '1 hour' WHERE run_id = 'theirs'",
        owner=elsewhere,
    )

    look = await stop_foreign_commands(here.db, spool, driven={over})
    assert look == (sorted(["theirs:s", f"{moved}:s"]), False)
    # Its own process may still have a lease, so it is looked at again.
    assert await stop_foreign_commands(here.db, spool) == ([f"{over}:s"], False)
    assert await stop_foreign_commands(here.db, spool, driven={"mine"}) == ([], False)

    assert list_commands(spool) == ["mine:s"]
    await until(lambda: all(wait.done() for wait in waits[1:]))

    async def list_and_begin_again(*_: object) -> set[str]:
        """Take the run back here in between: the command that is begun again has the same key."""
        await _end(waits[0], spool)
        remove_spooled("mine:s", spool_dir=spool)
        waits[0] = asyncio.create_task(
            run_spooled("mine:s", "sleep 1000", cwd=tmp_path, spool_dir=spool, options=options)
        )
        await until(lambda: list_commands(spool) == ["mine:s"])
        return {"mine"}

    monkeypatch.setattr(foreign_commands, "list_elsewhere", list_and_begin_again)
    await stop_foreign_commands(here.db, spool)

    assert list_commands(spool) == ["mine:s"]
    await _end(waits[0], spool)


async def _end(wait: "asyncio.Task[Any]", spool: Path) -> None:
    await stop_spooled("mine:s", spool_dir=spool)
    await wait
