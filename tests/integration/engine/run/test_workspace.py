"""The run's own files, and the user's, which nothing touches."""

import asyncio
import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine_processes import Zygote
from tests.support.engine_world import Turn, World, hand_in, phase, template

from holdfast.enums import RunStatus
from holdfast.errors import BaseBranchMissing, HoldfastError
from holdfast.persistence.listings import RunFilter, list_page


def users_state(repo: Path, git: Any) -> dict[str, str]:
    refs = git("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags", folder=repo)
    return {
        "head": (repo / ".git/HEAD").read_text(),
        "refs": "\n".join(line for line in refs.splitlines() if "heads/holdfast/" not in line),
        "index": str((repo / ".git/index").read_bytes()),
        "status": git("status", "--porcelain", folder=repo),
        "app": (repo / "app.py").read_text(),
    }


def changes_app(turn: Turn) -> None:
    turn.write("app.py", "print('changed by the run')\n")
    turn.write("new.txt", "new\n")
    turn.hand_in()


async def test_a_dirty_checkout_and_its_branch_are_never_touched(world: World) -> None:
    (world.repo / "app.py").write_text("print('not committed')\n")
    (world.repo / "notes.txt").write_text("mine\n")
    world.git("add", "notes.txt")
    before = users_state(world.repo, world.git)

    result = await world.run(changes_app)

    assert result.state is RunStatus.COMPLETED
    assert users_state(world.repo, world.git) == before
    assert not (world.repo / "new.txt").exists()
    assert (world.turns[0].root / "new.txt").exists()


async def test_each_attempt_leaves_its_files_under_a_ref(world: World) -> None:
    result = await world.run(changes_app, "spec", "plan")

    refs = world.git("for-each-ref", "--format=%(refname:lstrip=3)", f"refs/holdfast/{result.run_id}")
    assert {"spec/1", "plan/1"} <= set(refs.splitlines())
    assert world.git("show", f"refs/holdfast/{result.run_id}/spec/1:app.py") == "print('changed by the run')"


async def test_a_deleted_worktree_is_made_again_with_the_recorded_files(world: World) -> None:
    paused = await world.run(changes_app, phase("spec", risk="high"), "plan")
    [approval] = await world.approvals(paused.run_id)
    await world.engine().decide(paused.run_id, approval.id, "approve")
    shutil.rmtree(world.worktree(paused.run_id))
    seen: list[str] = []

    def script(turn: Turn) -> None:
        seen.append((turn.root / "app.py").read_text() + (turn.root / "new.txt").read_text())
        hand_in(turn)

    result = await world.engine(script).resume(paused.run_id)

    assert result.state is RunStatus.COMPLETED
    assert seen == ["print('changed by the run')\nnew\n"]
    assert world.phases_done() == ["spec", "plan"]


async def test_files_are_restored_even_if_the_process_that_began_to_died(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.engine.run import workspace

    paused = await world.run(changes_app, phase("spec", risk="high"))
    shutil.rmtree(world.worktree(paused.run_id))

    def dies(*_args: Any, **_options: Any) -> None:
        raise RuntimeError("killed")  # the worktree is there, its files are not

    scope = await scope_of(world, paused.run_id)
    with monkeypatch.context() as patch:
        patch.setattr(workspace, "restore", dies)
        with pytest.raises(RuntimeError, match="killed"):
            await asyncio.to_thread(workspace._open, scope)
    again = await world.engine().resume(paused.run_id)

    assert again.state is RunStatus.PAUSED
    assert (world.worktree(paused.run_id) / "new.txt").read_text() == "new\n"
    assert len(await world.approvals(paused.run_id, "")) == 1


async def scope_of(world: World, run_id: Any) -> Any:
    from types import SimpleNamespace

    from holdfast.config import load_config
    from holdfast.engine.history import History

    return SimpleNamespace(
        config=load_config(data_dir=world.data_dir),
        history=History.of(world.events(run_id)),
        run=await world.run_row(run_id),
        run_id=str(run_id),
    )


async def test_a_vanished_repository_is_a_typed_error_and_the_run_goes_on_once_it_is_back(world: World) -> None:
    paused = await world.run(hand_in, phase("spec", risk="high"), "plan")
    [approval] = await world.approvals(paused.run_id)
    events = len(world.events(paused.run_id))
    world.repo.rename(world.folder / "away")

    with pytest.raises(HoldfastError) as error:
        await world.engine().resume(paused.run_id)

    assert error.value.code == "repository_missing"
    assert error.value.hint
    assert (await world.run_row(paused.run_id)).state == "paused"
    assert len(world.events(paused.run_id)) == events
    (world.folder / "away").rename(world.repo)
    await world.engine().decide(paused.run_id, approval.id, "approve")
    assert (await world.engine().resume(paused.run_id)).state is RunStatus.COMPLETED


async def test_a_base_branch_that_moved_does_not_move_the_run(world: World) -> None:
    paused = await world.run(changes_app, phase("spec", risk="high"), "plan")
    [approval] = await world.approvals(paused.run_id)
    base = (await world.run_row(paused.run_id)).base_commit
    (world.repo / "app.py").write_text("print('moved on')\n")
    world.git("commit", "-q", "-am", "moved on")
    shutil.rmtree(world.worktree(paused.run_id))

    again = await world.engine().resume(paused.run_id)
    await world.engine().decide(paused.run_id, approval.id, "approve")
    result = await world.engine(hand_in).resume(paused.run_id)

    assert (again.state, result.state) == (RunStatus.PAUSED, RunStatus.COMPLETED)
    assert (await world.run_row(paused.run_id)).base_commit == base
    assert (world.turns[1].root / "app.py").read_text() == "print('changed by the run')\n"


async def test_a_branch_that_is_not_there_is_refused_before_a_run_is_made(world: World) -> None:
    with pytest.raises(BaseBranchMissing, match="no-such-branch") as refused:
        await world.run(base_branch="no-such-branch")

    assert "main" in refused.value.hint
    assert await list_page(world.db, RunFilter(), limit=5) == []


async def test_without_a_branch_a_run_starts_from_the_one_that_is_checked_out(world: World) -> None:
    world.git("switch", "-q", "-c", "feature")
    (world.repo / "app.py").write_text("print('feature')\n")
    world.git("commit", "-q", "-am", "on the feature branch")

    result = await world.run(base_branch=None)

    row = await world.run_row(result.run_id)
    assert (row.base_branch, row.base_commit) == ("feature", world.git("rev-parse", "feature"))
    assert (world.turns[0].root / "app.py").read_text() == "print('feature')\n"


async def test_a_run_starts_from_the_commit_its_maker_saw_wherever_the_branch_goes_meanwhile(world: World) -> None:
    seen = world.git("rev-parse", "main")
    run_id = await world.engine().create(world.know(template("spec")), repo_path=world.repo)
    (world.repo / "app.py").write_text("print('later')\n")
    world.git("commit", "-q", "-am", "later")

    await world.engine().resume(run_id)

    assert (await world.run_row(run_id)).base_commit == seen
    assert (world.turns[0].root / "app.py").read_text() != "print('later')\n"


async def test_two_runs_on_one_repository_do_not_touch_each_other(world: World) -> None:
    meeting = asyncio.Barrier(2)

    async def script(turn: Turn) -> None:
        await meeting.wait()
        turn.write("app.py", turn.run_id)
        turn.hand_in()
        await meeting.wait()
        assert (turn.root / "app.py").read_text() == turn.run_id

    results = await asyncio.gather(world.run(script), world.run(script))

    assert [result.state for result in results] == [RunStatus.COMPLETED] * 2
    assert world.turns[0].root != world.turns[1].root
    for result in results:
        assert world.git("show", f"refs/holdfast/{result.run_id}/spec/1:app.py") == str(result.run_id)


async def test_a_plain_folder_is_copied_without_data_directory_and_databases(world: World) -> None:
    plain = world.folder  # the data directory lies in it
    (plain / "readme.txt").write_text("hello\n")
    (plain / "app.db").write_text("a database\n")
    shutil.rmtree(world.repo)

    def script(turn: Turn) -> None:
        turn.write("readme.txt", "changed\n")
        turn.hand_in()

    result = await world.run(script, repo_path=plain)

    root = world.turns[0].root
    assert result.state is RunStatus.COMPLETED
    assert sorted(path.name for path in root.iterdir() if path.name != ".git") == ["out", "readme.txt"]
    assert (plain / "readme.txt").read_text() == "hello\n"
    assert not (plain / ".git").exists()


async def test_a_repository_without_commits_works(world: World) -> None:
    empty = world.folder / "empty"
    empty.mkdir()
    world.git("init", "-q", "-b", "main", folder=empty)

    result = await world.run(changes_app, repo_path=empty)

    assert result.state is RunStatus.COMPLETED
    assert world.git("status", "--porcelain", folder=empty) == ""


async def test_set_up_copies_and_checks_run_in_order_and_their_output_is_kept(world: World) -> None:
    (world.repo / ".gitignore").write_text(".env\nlibrary\n")
    world.git("add", ".")
    world.git("commit", "-q", "-m", "ignore")
    (world.repo / ".env").write_text("KEY=secret\n")
    made = template(
        phase("spec", checks=[["sh", "-c", "cat library .env out/spec.json"], ["true"]]),
        copy=[".env"],
        setup=[["sh", "-c", "cat .env > library; echo installed"]],
    )

    result = await world.run(template=made)

    assert result.state is RunStatus.COMPLETED
    outputs = [
        event.payload["result"]["output"]
        for event in world.events(result.run_id, "tool.result")
        if "exit_code" in event.payload["result"]
    ]
    assert outputs[0] == "installed\n"
    assert outputs[1].startswith("KEY=secret\nKEY=secret\n{")
    tree = world.git("ls-tree", "-r", "--name-only", f"refs/holdfast/{result.run_id}/spec/1")
    assert ".env" not in tree.splitlines()


async def test_copies_and_set_up_are_made_again_only_with_the_worktree(world: World) -> None:
    (world.repo / ".gitignore").write_text(".env\nlibrary\n")
    world.git("add", ".")
    world.git("commit", "-q", "-m", "ignore")
    (world.repo / ".env").write_text("old\n")
    counter = world.folder / "set-ups"
    made = template(
        phase("spec", risk="high"),
        "plan",
        copy=[".env"],
        setup=[["sh", "-c", f"echo x >> {counter}; touch library"]],
        sandbox=False,
    )
    paused = await world.run(template=made)
    (world.repo / ".env").write_text("new\n")
    copied = world.worktree(paused.run_id) / ".env"

    await world.engine().resume(paused.run_id)
    before = (copied.read_text(), counter.read_text())
    shutil.rmtree(world.worktree(paused.run_id))
    await world.engine().resume(paused.run_id)

    assert before == ("old\n", "x\n")
    assert (copied.read_text(), counter.read_text()) == ("new\n", "x\nx\n")
    assert (world.worktree(paused.run_id) / "library").exists()
    [approval] = await world.approvals(paused.run_id)
    await world.engine().decide(paused.run_id, approval.id, "approve")
    assert (await world.engine().resume(paused.run_id)).state is RunStatus.COMPLETED


async def test_a_failing_check_fails_the_phase_with_its_exit_code(world: World) -> None:
    result = await world.run(hand_in, phase("spec", checks=[["sh", "-c", "echo broken; exit 7"], ["false"]]))

    assert result.state is RunStatus.FAILED
    assert result.error is not None
    assert result.error.code == "checks_failed"
    assert result.error.message.endswith("ended with exit code 7: broken")
    assert f"holdfast runs logs {str(result.run_id)[:8]}" in result.error.hint
    [check] = world.events(result.run_id, "tool.result")
    assert check.payload["result"]["output"] == "broken\n"


async def test_a_check_runs_once_even_if_its_engine_is_killed_meanwhile(world: World, zygote: Zygote) -> None:
    counter, gate, started = world.folder / "checks", world.folder / "gate", world.folder / "check-started"
    line = f"echo x >> {counter}; touch {started}; while [ ! -e {gate} ]; do sleep 0.05; done"
    made = template(phase("spec", checks=[["sh", "-c", line]]), sandbox=False)
    run_id = await world.engine().create(world.know(made), repo_path=world.repo)
    owner = zygote.start(world, "verb", "resume", made.model_dump(by_alias=True), run_id)
    owner.wait_for(started)
    owner.kill()
    gate.touch()

    result = await world.engine().resume(run_id)

    assert result.state is RunStatus.COMPLETED
    assert counter.read_text() == "x\n"
    assert world.turns == []  # the agent's turn was recorded before


async def test_a_disk_that_refuses_is_an_error_of_its_own_and_the_attempt_goes_on_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.engine.phase import commands

    def full(*_args: Any, **_options: Any) -> None:
        raise OSError(28, "No space left on device", "objects/ab")

    run_id = uuid.uuid4()
    with monkeypatch.context() as patch:
        patch.setattr(commands, "snapshot", full)
        with pytest.raises(HoldfastError) as error:
            await world.run(changes_app, pre_allocated_run_id=run_id)

    assert error.value.code == "workspace_error"
    assert "No space left" in error.value.message
    assert (await world.run_row(run_id)).state == "running"
    result = await world.engine(changes_app).resume(run_id)
    assert result.state is RunStatus.COMPLETED
    assert (len(world.turns), result.phases[0].attempts) == (1, 1)


async def test_a_schema_that_breaks_meanwhile_changes_nothing_for_a_run_that_has_it(
    world: World, tmp_path: Path
) -> None:
    schema = tmp_path / "schemas/own/note@1.json"
    schema.parent.mkdir(parents=True)
    schema.write_text(json.dumps({"type": "object"}))
    made = template(phase("spec", expected_artifact={"path": "out/note.json", "schema": "own/note@1"}))

    def script(turn: Turn) -> None:
        schema.write_text("no JSON")
        turn.hand_in({"fine": True})

    result = await world.engine(script, schemas=tmp_path / "schemas").run(world.know(made), repo_path=world.repo)

    assert result.state is RunStatus.COMPLETED
    assert len(world.turns) == 1
