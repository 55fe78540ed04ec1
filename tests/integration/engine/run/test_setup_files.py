"""What `setup` and `copy` bring is no part of a run's result, whatever happens to the run."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine_world import Turn, World, phase, template

from holdfast.config import load_config
from holdfast.engine.merge import merge_run
from holdfast.engine.patch import RecordedFiles, describe_left_out, find_left_out, order_trees, read_patch
from holdfast.engine.run import workspace
from holdfast.enums import RunStatus
from holdfast.persistence.models import RunPhaseRow

VENV = (
    "mkdir -p .venv/lib gen; echo home > .venv/pyvenv.cfg; echo x > .venv/lib/a.py; echo 1 > gen/one; echo 2 > gen/two"
)
SETUP = [["sh", "-c", f"{VENV}; echo locked > uv.lock; echo set up >> app.py"]]


def made(*phases: Any) -> Any:
    return template(*(phases or ("first", "second")), setup=SETUP, copy=[".env"])


def work(turn: Turn) -> None:
    turn.write(".venv/lib/a.pyc", "compiled")
    turn.write(f"{turn.phase_key}.txt", "done\n")
    turn.hand_in()


async def patch_of(world: World, run_id: Any, phase_key: str | None = None) -> str:
    rows = await world.select(RunPhaseRow, run_id)
    trees = order_trees((row.phase_key, row.tree, row.ended_at) for row in rows)
    definition = {"phases": [{"expected_artifact": {"path": f"out/{row.phase_key}.json"}} for row in rows]}
    return read_patch(world.data_dir, RecordedFiles(str(run_id), trees, definition), phase_key)


async def files_of(world: World, run_id: Any, phase_key: str | None = None) -> list[str]:
    patch = await patch_of(world, run_id, phase_key)
    return [line.split(" b/")[1] for line in patch.splitlines() if line.startswith("diff --git")]


def reported(result: Any) -> list[str]:
    report = json.loads(Path(result.final_report_path).read_text())
    return [file["path"] for file in report["files"]]


async def merge(world: World, run_id: Any) -> dict[str, Any]:
    return await merge_run(world.db, load_config(data_dir=world.data_dir), str(run_id))


@pytest.fixture(autouse=True)
def _with_secret(world: World) -> None:
    (world.repo / ".git" / "info" / "exclude").write_text(".env\n")
    (world.repo / ".env").write_text("KEY=1\n")


async def check(world: World, result: Any, *expected: str) -> None:
    assert result.state is RunStatus.COMPLETED
    assert await files_of(world, result.run_id) == list(expected)
    assert reported(result) == list(expected)
    merged = await merge(world, result.run_id)
    assert sorted(file["path"] for file in merged["files"]) == list(expected)
    assert world.git("status", "--porcelain") == ""
    groups = {group["path"]: group["files"] for group in merged["left_out"]}
    assert groups.items() >= {".venv/": 2, "gen/": 2, ".env": 1}.items()


async def test_the_result_of_a_run_is_what_its_phases_changed(world: World) -> None:
    result = await world.run(work, template=made())

    assert await files_of(world, result.run_id, "first") == ["first.txt"]
    await check(world, result, "first.txt", "second.txt")
    assert world.git("log", "--format=%s").count("\n") == 2
    trees = {"second": (await world.select(RunPhaseRow, result.run_id))[1].tree}
    assert describe_left_out(find_left_out(world.data_dir, str(result.run_id), trees)) == [
        "Left out, made by setup: .venv/ (2 files), app.py, gen/ (2 files), uv.lock",
        "Left out, copied in: .env",
    ]


async def test_what_a_phase_changes_of_it_belongs_to_the_result(world: World) -> None:
    def changes(turn: Turn) -> None:
        if turn.phase_key == "second":
            turn.write("gen/one", "changed\n")
        turn.hand_in()

    result = await world.run(changes, template=made())

    assert await files_of(world, result.run_id, "first") == []
    assert await files_of(world, result.run_id, "second") == ["gen/one"]
    merged = await merge(world, result.run_id)
    assert [file["path"] for file in merged["files"]] == ["gen/one"]


async def test_it_holds_after_a_shutdown_a_lost_worktree_and_a_resume(world: World) -> None:
    run_id = await world.run_and_stop(work, template=made())
    shutil.rmtree(world.worktree(run_id))

    result = await world.engine(work).resume(run_id)

    assert (world.worktree(run_id) / ".venv" / "pyvenv.cfg").is_file()
    await check(world, result, "first.txt", "second.txt")


async def test_it_holds_for_a_retry(world: World) -> None:
    def fails_once(turn: Turn) -> None:
        turn.write("gen/one", "spoilt by what failed\n")
        raise RuntimeError("no")

    failed = await world.run(fails_once, template=made())
    result = await world.engine(work).retry(failed.run_id)

    await check(world, result, "first.txt", "second.txt")


async def test_it_holds_for_a_fork_and_for_a_fork_of_it(world: World) -> None:
    original = await world.run(work, template=made())
    fork = await world.engine(work).fork(original.run_id, "second")
    result = await world.engine(work).fork(fork.run_id, "second")

    await check(world, result, "first.txt", "second.txt")


async def test_an_approval_shows_what_the_phase_changed(world: World) -> None:
    result = await world.run(work, template=made(phase("first", approval="always")))

    [approval] = await world.approvals(result.run_id)
    assert "first.txt" in approval.shown["files"]
    assert not {"gen/one", "uv.lock", "app.py"} & set(approval.shown["files"])


async def test_a_run_whose_setup_nobody_recorded_goes_on_as_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def as_before(*_: Any) -> None:
        """An earlier version wrote no such step."""

    monkeypatch.setattr(workspace, "_record_setup", as_before)
    run_id = await world.run_and_stop(work, template=made())
    monkeypatch.undo()

    result = await world.engine(work).resume(run_id)

    assert result.state is RunStatus.COMPLETED
    assert world.git("for-each-ref", f"refs/holdfast/{run_id}/@setup") == ""
    assert {"first.txt", "second.txt", "uv.lock"} <= set(await files_of(world, run_id))
