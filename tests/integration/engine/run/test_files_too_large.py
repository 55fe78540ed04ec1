"""What is too big to travel: the run waits for a person with nothing lost, and goes on where it stands."""

import asyncio
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import text
from tests.integration.engine.run.test_carried_files import CARRIED, destroy, on_sqlite, other, read_diff
from tests.integration.engine.run.test_two_places import HAND_IN, engine_with
from tests.support.engine_world import Turn, World, git, hand_in, personas, phase, template
from tests.support.progress_limit import until

import holdfast.engine
from holdfast.engine.conversation.journal import conversation_template, send_message
from holdfast.engine.run.carrier import FileCarrier
from holdfast.engine.run.load import get_run
from holdfast.engine.run.restoration import restore_files
from holdfast.engine.run.workspace import open_files
from holdfast.enums import RunStatus
from holdfast.errors import WorkspaceTooLarge
from holdfast.persistence.carried_files import list_packs
from holdfast.runtime.checkpoint.run_lock import find_held, lock_folder

SMALL = {**CARRIED, "carry_step_max_mb": 1}
BIG_BYTES = 3 * 1024**2 // 2


class Died(BaseException):
    """The process is gone."""


def write_big(turn: Turn, calls: list[str]) -> str:
    calls.append("big")
    (turn.root / "big.bin").write_bytes(os.urandom(BIG_BYTES))
    return "written"


def script(calls: list[str]) -> Any:
    """An agent that makes a small file, one that is too big, and another small one."""

    async def work(turn: Turn) -> None:
        await turn.use_tool("write_file", lambda: calls.append("first") or turn.write("first.txt", "one\n"))
        await turn.use_tool("write_file", lambda: write_big(turn, calls))
        await turn.use_tool("write_file", lambda: calls.append("last") or turn.write("last.txt", "two\n"))
        hand_in(turn)

    return work


async def is_free(world: World) -> bool:
    """Tell whether nobody has a claim on any run."""
    assert world.db.path is not None
    async with world.db.session() as session:
        claimed = list(await session.scalars(text("SELECT run_id FROM journal_runs")))
    return claimed != [] and find_held(lock_folder(str(world.db.path)), claimed) == set()


@pytest.mark.parametrize("way", ["remove", "ignore", "raise the limit"])
@on_sqlite
async def test_a_step_that_is_too_big_waits_for_a_person_and_nothing_is_repeated(world: World, way: str) -> None:
    calls: list[str] = []
    paused = await world.run(script(calls), "one", engine=SMALL)
    run_id = str(paused.run_id)
    assert (paused.state, paused.waiting_for) == (RunStatus.PAUSED, "files")
    assert paused.error is not None
    assert paused.error.code == "workspace_too_large"
    assert "big.bin (1.5 MiB)." in paused.error.message
    assert "app.py" not in paused.error.message  # that was there before
    root = world.worktree(run_id)
    assert all(words in paused.error.hint for words in (str(root), ".gitignore", "carry_step_max_mb", "resume"))
    results = [event.payload["result"] for event in world.events(run_id, "tool.result")]
    assert [("tree" in result, result.get("not_carried")) for result in results] == [(True, None), (False, ["big.bin"])]
    assert await is_free(world)

    again = await world.engine(script(calls), **SMALL).resume(run_id)
    assert (again.state, again.waiting_for) == (RunStatus.PAUSED, "files")
    assert len(world.turns) == 1  # the agent was not asked again

    settings: dict[str, Any] = SMALL
    if way == "remove":
        (root / "big.bin").unlink()
    elif way == "ignore":
        (root / ".gitignore").write_text("*.bin\n")
    else:
        settings = {**CARRIED, "carry_step_max_mb": 2}
    result = await world.engine(script(calls), **settings).resume(run_id)

    assert result.state is RunStatus.COMPLETED, result.error
    assert calls == ["first", "big", "last"]
    assert len(world.events(run_id, "workspace.carried")) == 1
    assert (root / "big.bin").exists() == (way != "remove")
    here = await read_diff(world, run_id)
    assert "+two" in here
    assert ("big.bin" in here) == (way == "raise the limit")
    destroy(world)
    there = other(world)
    assert await read_diff(there, run_id) == here
    await there.close()


@on_sqlite
async def test_files_that_are_in_one_place_alone_keep_the_run_there_until_they_travel(world: World) -> None:
    calls: list[str] = []
    run_id = str((await world.run(script(calls), "one", engine=SMALL)).run_id)
    there = other(world)
    before = len(world.events(run_id))
    with pytest.raises(WorkspaceTooLarge, match="only on the machine that made it") as refused:
        await there.engine(script(calls), **SMALL).resume(run_id)
    assert refused.value.facts["paths"] == ("big.bin",)
    assert len(world.events(run_id)) == before
    assert (await world.run_row(run_id)).state == "paused"
    assert await is_free(world)

    # The first machine has died just after it had carried what was left.
    (world.worktree(run_id) / "big.bin").unlink()

    def die(_turn: Turn) -> None:
        raise Died

    with pytest.raises(Died):
        await world.engine(die, **SMALL).resume(run_id)
    destroy(world)
    result = await there.engine(script(calls), **SMALL).resume(run_id)

    assert result.state is RunStatus.COMPLETED, result.error
    assert calls == ["first", "big", "last"]
    assert (there.worktree(run_id) / "first.txt").read_text() == "one\n"
    await there.close()


@pytest.mark.parametrize("way", ["lost", "half restored"])
@on_sqlite
async def test_a_run_whose_worktree_is_lost_does_not_go_on_without_files_that_were_in_it_alone(
    world: World, way: str
) -> None:
    calls: list[str] = []
    run_id = str((await world.run(script(calls), "one", engine=SMALL)).run_id)
    root, first = world.worktree(run_id), world.events(run_id, "tool.result")[0]
    if way == "lost":
        shutil.rmtree(root)
    else:
        (world.data_dir / "worktrees" / ".state" / root.name / "restoring").write_text("a tree")
    before = len(world.events(run_id))
    for _ in range(2):
        with pytest.raises(WorkspaceTooLarge, match="only in a worktree that is gone") as refused:
            await world.engine(script(calls), **SMALL).resume(run_id)
        assert refused.value.facts["paths"] == ("big.bin",)
        assert refused.value.facts["missing"].startswith("the files of its last step")
        assert f"holdfast restore {run_id[:8]}" in refused.value.hint
    assert len(world.events(run_id)) == before
    assert await is_free(world)

    engine = world.engine(hand_in, **SMALL)
    async with engine._owner.owning(run_id) as (journal, claim):
        await restore_files(engine._owner, journal, claim, before=first.seq, by="me")
    result = await engine.resume(run_id)

    assert result.state is RunStatus.COMPLETED, result.error
    assert calls == ["first", "big"]


@on_sqlite
async def test_the_phase_starts_again_elsewhere_from_stored_files_if_the_machine_is_gone(world: World) -> None:
    calls: list[str] = []
    run_id = str((await world.run(script(calls), "one", engine=SMALL)).run_id)
    destroy(world)
    there = other(world)
    first = world.events(run_id, "tool.result")[0]

    def small(turn: Turn) -> None:
        turn.write("small.txt", "made elsewhere\n")
        hand_in(turn)

    engine = there.engine(small, **SMALL)
    async with engine._owner.owning(run_id) as (journal, claim):
        await restore_files(engine._owner, journal, claim, before=first.seq, by="me")
    result = await engine.resume(run_id)

    assert result.state is RunStatus.COMPLETED, result.error
    tree = str((await get_run(there.db, run_id)).phases["one"].tree)
    listed = git(there.worktree(run_id), "ls-tree", "-r", "--name-only", tree).split()
    assert listed == ["app.py", "out/one.json", "small.txt"]
    await there.close()


MAKE_BIG = ["sh", "-c", f"echo made >> made.txt; head -c {BIG_BYTES} /dev/urandom > big.bin"]


@pytest.mark.parametrize("made_by", ["check", "set-up"])
@on_sqlite
async def test_files_of_the_workflows_own_commands_that_are_too_big_wait_too(world: World, made_by: str) -> None:
    options: dict[str, Any] = {"setup": [MAKE_BIG]} if made_by == "set-up" else {}
    one = phase("one", checks=[MAKE_BIG] if made_by == "check" else [])
    made = template(one, sandbox=False, **options)

    paused = await world.run(hand_in, template=made, engine=SMALL)

    run_id = str(paused.run_id)
    assert (paused.state, paused.waiting_for) == (RunStatus.PAUSED, "files")
    (world.worktree(run_id) / "big.bin").unlink()
    result = await world.engine(hand_in, **SMALL).resume(run_id)
    assert result.state is RunStatus.COMPLETED, result.error
    assert (world.worktree(run_id) / "made.txt").read_text() == "made\n"


@on_sqlite
async def test_files_of_a_hook_that_are_too_big_wait_and_the_hook_is_not_run_again(world: World) -> None:
    calls: list[str] = []

    async def write(turn: Turn) -> None:
        await turn.use_tool("write_file", lambda: calls.append("written") or turn.write("a.txt", "a\n"))
        calls.append("went on")
        hand_in(turn)

    made = template("one", hooks=[{"after": ["write_file"], "run": MAKE_BIG}], sandbox=False)
    paused = await world.run(write, template=made, engine=SMALL)
    run_id = str(paused.run_id)
    assert (paused.waiting_for, calls) == ("files", ["written"])
    (world.worktree(run_id) / "big.bin").unlink()

    result = await world.engine(write, **SMALL).resume(run_id)

    assert result.state is RunStatus.COMPLETED, result.error
    assert calls == ["written", "went on"]
    assert (world.worktree(run_id) / "made.txt").read_text() == "made\n"


@pytest.mark.parametrize("first", ["write_file", "execute"])
@on_sqlite
async def test_a_call_that_waits_for_one_whose_files_are_too_big_is_not_begun(world: World, first: str) -> None:
    calls: list[str] = []
    second = {"write_file": "execute", "execute": "write_file"}[first]

    async def work(turn: Turn) -> None:
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def make_big() -> str:
            begun.set()
            await may_end.wait()
            turn.write("beside.txt", "by the first call\n")
            return write_big(turn, calls)

        await turn.use_tool("write_file", lambda: calls.append("small") or turn.write("small.txt", "s\n"))
        one = asyncio.create_task(turn.use_tool(first, make_big, command="true"))
        await begun.wait()
        two = asyncio.create_task(turn.use_tool(second, lambda: calls.append("second") or "done", command="true"))
        await until(lambda: turn.middleware[0]._tools._workspace._queue)
        may_end.set()
        await asyncio.gather(one, two)

    async def work_alone(turn: Turn) -> None:
        await turn.use_tool("write_file", lambda: calls.append("small") or turn.write("small.txt", "s\n"))
        await turn.use_tool(first, lambda: write_big(turn, calls), command="true")
        await turn.use_tool(second, lambda: calls.append("second") or "done", command="true")
        hand_in(turn)

    paused = await world.run(work, "one", engine=SMALL)

    run_id = str(paused.run_id)
    assert (paused.state, paused.waiting_for, calls) == (RunStatus.PAUSED, "files", ["small", "big"])
    assert {event.payload["tool"] for event in world.events(run_id, "tool.started")} <= {first}
    (world.worktree(run_id) / "big.bin").unlink()
    result = await world.engine(work_alone, **SMALL).resume(run_id)

    assert result.state is RunStatus.COMPLETED, result.error
    assert calls == ["small", "big", "second"]
    commands = [event.payload for event in world.events(run_id, "tool.started") if event.payload["tool"] == "execute"]
    [before] = [command["tree_before"] for command in commands]
    listed = git(world.worktree(run_id), "ls-tree", "-r", "--name-only", before).split()
    assert ("beside.txt" in listed) == (second == "execute")


@pytest.mark.parametrize("made_by", ["a tool", "nobody's call"])
@on_sqlite
async def test_a_conversation_whose_files_are_too_big_goes_on_when_they_are_gone(world: World, made_by: str) -> None:
    calls: list[str] = []
    engine = world.engine(**SMALL)

    def build(_persona: Any, _config: Any, *, root_dir: Path, middleware: list[Any], **_: Any) -> Any:
        turn = Turn("", "", root_dir, middleware, [], personas()[0], "")

        async def ainvoke(_state: Any, **_: Any) -> dict[str, Any]:
            if made_by == "a tool":
                await turn.use_tool("write_file", lambda: write_big(turn, calls))
            else:
                write_big(turn, calls)
            return {"messages": []}

        return SimpleNamespace(ainvoke=ainvoke)

    holdfast.engine.build_agent = build
    run_id = str((await engine.run(conversation_template(), repo_path=world.repo)).run_id)
    await send_message(world.db, run_id, "Make it.")
    paused = await engine.resume(run_id)
    assert (paused.state, paused.waiting_for) == (RunStatus.PAUSED, "files")
    assert (await engine.resume(run_id)).waiting_for == "files"

    (world.worktree(run_id) / "big.bin").unlink()
    result = await engine.resume(run_id)

    assert (result.state, result.waiting_for) == (RunStatus.PAUSED, "message")
    assert calls == ["big"]
    assert len(world.events(run_id, "phase.completed")) == 1


async def test_a_paid_command_that_made_too_much_is_paid_and_run_once(
    worlds: tuple[World, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = worlds
    monkeypatch.setenv("HOLDFAST_CARRY_FILES", "true")
    monkeypatch.setenv("HOLDFAST_CARRY_STEP_MAX_MB", "1")
    body = f"echo begun >> begun.txt; head -c {BIG_BYTES} /dev/urandom > big.bin; {HAND_IN}"
    fields = {"cost_per_run_usd": 2.5, "permissions": {"network": "deny"}}
    paused = await engine_with(here, body, **fields).run(template(phase("spec")), repo_path=here.repo)
    run_id = str(paused.run_id)
    assert (paused.state, paused.waiting_for) == (RunStatus.PAUSED, "files")

    for _ in range(2):
        with pytest.raises(WorkspaceTooLarge):
            await engine_with(there, body, **fields).resume(run_id)
    assert (await engine_with(here, body, **fields).resume(run_id)).waiting_for == "files"
    assert [row.state for row in await here.ledger(run_id)] == ["settled"]

    (here.worktree(run_id) / "big.bin").unlink()
    result = await engine_with(here, body, **fields).resume(run_id)

    assert result.state is RunStatus.COMPLETED, result.error
    assert [row.state for row in await here.ledger(run_id)] == ["settled"]
    assert (here.worktree(run_id) / "begun.txt").read_text() == "begun\n"


@on_sqlite
async def test_a_base_that_is_too_big_leaves_nothing_half_written(world: World) -> None:
    (world.repo / "big.bin").write_bytes(os.urandom(BIG_BYTES))
    git(world.repo, "add", ".")
    git(world.repo, "commit", "-qm", "big")
    settings = {**CARRIED, "carry_max_mb": 1}
    with pytest.raises(WorkspaceTooLarge, match=r"big\.bin") as refused:
        await world.run(hand_in, "one", engine=settings)
    assert "carry_max_mb" in refused.value.hint
    async with world.db.session() as session:
        for table in ("runs", "run_bases", "base_packs", "run_phases", "events"):
            found = (await session.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one()
            assert (table, found) == (table, 0)
    assert world.db.store.list_runs() == []
    assert not [*world.data_dir.glob("worktrees/*")]
    assert await is_free(world)


@pytest.mark.parametrize("way", ["remove", "raise the limit"])
@on_sqlite
async def test_a_folder_without_git_that_is_too_big_waits_and_is_copied_anew(world: World, way: str) -> None:
    shutil.rmtree(world.repo / ".git")
    big = world.repo / "big.bin"
    big.write_bytes(os.urandom(BIG_BYTES))
    settings = {**CARRIED, "carry_max_mb": 1}
    made = world.know(template("one"))
    with pytest.raises(WorkspaceTooLarge, match=r"big\.bin"):
        await world.engine(hand_in, **settings).create(made, repo_path=world.repo)
    assert not world.db.store.list_runs()
    assert list((world.data_dir / "repositories").iterdir()) == []

    run_id = await world.engine(hand_in).create(made, repo_path=world.repo)  # where nothing is to travel yet
    paused = await world.engine(hand_in, **settings).resume(run_id)

    assert (paused.state, paused.waiting_for) == (RunStatus.PAUSED, "files")
    assert paused.error is not None
    assert "big.bin" in paused.error.message
    assert not world.worktree(run_id).exists()
    assert (await world.engine(hand_in, **settings).resume(run_id)).waiting_for == "files"
    if way == "remove":
        big.unlink()
    else:
        settings["carry_max_mb"] = 2
    result = await world.engine(hand_in, **settings).resume(run_id)
    assert result.state is RunStatus.COMPLETED, result.error
    assert (world.worktree(run_id) / "big.bin").exists() == (way != "remove")
    assert [pack.kind for pack in await list_packs(world.db, run_id)] == ["phase"]


@on_sqlite
async def test_files_whose_event_was_refused_travel_with_the_next_one(world: World, tmp_path: Path) -> None:
    run_id = await world.run_and_stop(lambda turn: turn.write("new.txt", "new\n"), "one", engine=CARRIED)
    engine = world.engine(**CARRIED)
    async with engine._owner.owning(run_id) as (journal, claim):
        loaded = await engine._owner.load(run_id)
        scope = engine._owner.scope(journal, claim, loaded, await journal.read(run_id))
        await open_files(scope)
        carrier = FileCarrier(scope, await list_packs(world.db, run_id))
        tree = (await scope.record_files())["tree"]
        event = scope.log.event("tool.result", result={"tree": tree})
        refused = await carrier.make_rows([event])
        again = await carrier.make_rows([event])
    assert [len(rows) for rows in (refused, again)] == [1, 1]
