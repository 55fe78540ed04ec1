"""Commands of a workflow in flight when their machine is gone: another place knows that they are not its own."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine_world import Turn, World, hand_in, phase, template
from tests.support.progress_limit import until

from holdfast.enums import RunStatus
from holdfast.errors import LeaseLost
from holdfast.runtime.events import EventKind
from holdfast.workflow import WorkflowTemplate
from holdfast.workspace import list_commands

HANGS_ONCE = "echo $$ >> {log}; if [ $(wc -l < {log}) = 1 ]; then sleep 1000; fi"
"""The first one never ends by itself."""


async def lose(
    here: World,
    there: World,
    made: WorkflowTemplate,
    script: Any = hand_in,
    begun: Callable[[], object] | None = None,
) -> str:
    """Run it here until one of its commands is in flight, and let another place take the run."""
    here.know(made)
    there.know(made)
    spool, log = here.data_dir / "spool", here.folder.parent / "log"
    driving = asyncio.create_task(here.engine(script, carry_files=True).run(made, repo_path=here.repo))
    await until(lambda: driving.done() or bool(begun() if begun is not None else _read_lines(log)))
    assert not driving.done(), driving.result()
    [run_id] = here.db.store.list_runs()
    taken = there.db.store.claim(run_id, force=True)
    with pytest.raises(LeaseLost):
        await driving
    assert list_commands(spool) == []
    there.db.store.release(taken)
    return run_id


def _read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _unknown(world: World, run_id: str) -> list[Mapping[str, Any]]:
    return [event.payload for event in world.events(run_id, EventKind.TOOL_UNKNOWN)]


async def test_a_place_that_takes_a_run_in_the_middle_of_its_setup_does_all_of_it(
    worlds: tuple[World, World], tmp_path: Path
) -> None:
    here, there = worlds
    (here.repo / ".env").write_text("copied\n")
    (here.repo / ".git" / "info" / "exclude").write_text(".env\nmade\n")
    hang = HANGS_ONCE.format(log=tmp_path / "log")
    setup = [["sh", "-c", "echo first > made"], ["sh", "-c", f"cat .env made; {hang}"]]
    made = template("spec", setup=setup, copy=[".env"], sandbox={"setup": False})
    run_id = await lose(here, there, made)
    first = here.worktree(run_id)
    assert (first / "made").exists()

    result = await there.engine(hand_in, carry_files=True).resume(run_id)

    assert result.state is RunStatus.COMPLETED, result.error
    assert (there.worktree(run_id) / "made").read_text() == "first\n"
    assert len(_read_lines(tmp_path / "log")) == 2
    # What was in flight elsewhere is told, and so is that it is done again here.
    assert [(said["key"], said["resolution"]) for said in _unknown(there, run_id)] == [("setup/command2", "rerun")]
    places = [e.payload["place"]["data"] for e in there.events(run_id, EventKind.TOOL_STARTED)]
    ids = [(world.data_dir / ".place").read_text() for world in worlds]
    assert places == [ids[0], ids[0], ids[1], ids[1]]


@pytest.mark.parametrize("kind", ["checks", "hooks"])
async def test_a_command_that_nothing_contained_is_not_run_again_elsewhere_unasked(
    worlds: tuple[World, World], tmp_path: Path, kind: str
) -> None:
    here, there = worlds
    argv = ["sh", "-c", HANGS_ONCE.format(log=tmp_path / "log")]
    made = _with_command(kind, argv, is_contained=False)
    run_id = await lose(here, there, made, _writes)

    engine = there.engine(_writes, carry_files=True)
    result = await engine.resume(run_id)

    assert (result.state, result.waiting_for) == (RunStatus.PAUSED, "outcome")
    assert len(_read_lines(tmp_path / "log")) == 1
    [row] = await there.approvals(run_id)
    assert row.shown["argv"] == argv
    assert row.shown["place"]["data"] == (here.data_dir / ".place").read_text()
    assert row.shown["place"]["at"] > 0
    await engine.decide(run_id, row.id, "approve")
    result = await engine.resume(run_id)
    assert result.state is RunStatus.COMPLETED, result.error
    assert len(_read_lines(tmp_path / "log")) == 2


async def _writes(turn: Turn) -> None:
    await turn.use_tool("write_file", lambda: turn.write("a.txt", "a"), file_path="/a.txt", content="a")
    turn.hand_in()


def _with_command(kind: str, argv: list[str], *, is_contained: bool) -> WorkflowTemplate:
    sandbox: Any = {} if is_contained else {"sandbox": {kind: False}}
    if kind == "checks":
        return template(phase("spec", checks=[argv]), **sandbox)
    return template("spec", hooks=[{"after": ["write_file"], "run": argv}], **sandbox)


async def test_a_contained_check_runs_again_elsewhere_by_itself(worlds: tuple[World, World]) -> None:
    here, there = worlds
    # All that it can leave behind is in its worktree; it hangs in the first place only.
    argv = ["sh", "-c", f"case $PWD in {here.folder}/*) echo begun > log; sleep 1000;; esac"]
    made = _with_command("checks", argv, is_contained=True)
    run_id = await lose(here, there, made, begun=lambda: any(here.data_dir.glob("worktrees/*/log")))

    result = await there.engine(hand_in, carry_files=True).resume(run_id)

    assert result.state is RunStatus.COMPLETED, result.error
    assert [said["resolution"] for said in _unknown(there, run_id)] == ["rerun"]
    starts = [event.payload["place"] for event in there.events(run_id, EventKind.TOOL_STARTED)]
    assert [start["data"] for start in starts] == [(world.data_dir / ".place").read_text() for world in worlds]
    assert [start["is_contained"] for start in starts] == [True, True]


async def test_a_check_that_went_on_while_its_engine_was_away_is_found_again(world: World, tmp_path: Path) -> None:
    log, gate = tmp_path / "log", tmp_path / "gate"
    argv = ["sh", "-c", f"echo $$ >> {log}; until [ -e {gate} ]; do sleep 0.02; done"]
    made = _with_command("checks", argv, is_contained=False)
    world.know(made)
    driving = asyncio.create_task(world.engine().run(made, repo_path=world.repo))
    await until(lambda: driving.done() or _read_lines(log))
    assert not driving.done(), driving.result()
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)
    [run_id] = world.db.store.list_runs()
    gate.touch()

    result = await world.engine().resume(run_id)

    assert result.state is RunStatus.COMPLETED, result.error
    assert len(_read_lines(log)) == 1
    assert [said["resolution"] for said in _unknown(world, run_id)] == ["reattached"]


async def test_a_person_who_says_that_a_check_is_done_need_not_know_its_result(
    worlds: tuple[World, World], tmp_path: Path
) -> None:
    here, there = worlds
    made = _with_command("checks", ["sh", "-c", HANGS_ONCE.format(log=tmp_path / "log")], is_contained=False)
    run_id = await lose(here, there, made)
    engine = there.engine(carry_files=True)
    await engine.resume(run_id)
    [row] = await there.approvals(run_id)
    await engine.decide(run_id, row.id, "approve", result="I looked: all green")
    result = await engine.resume(run_id)
    assert result.state is RunStatus.COMPLETED, result.error
    assert len(_read_lines(tmp_path / "log")) == 1
