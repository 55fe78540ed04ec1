"""Retry, abort and fork."""

import asyncio
import contextlib
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine_processes import Zygote
from tests.support.engine_world import Turn, World, hand_in, phase, template
from tests.support.progress_limit import wait_until

from holdfast.enums import RunStatus
from holdfast.errors import HoldfastError


async def code_of(verb: Any) -> str:
    with pytest.raises(HoldfastError) as error:
        await verb
    return error.value.code


# -- retry ------------------------------------------------------------------------------------------------------------


async def test_a_retry_opens_the_failed_phase_again_with_the_files_it_began_with(world: World) -> None:
    seen: list[bool] = []

    async def script(turn: Turn) -> None:
        if turn.phase_key == "plan":
            seen.append((turn.root / "rubbish.txt").exists())
            turn.write("rubbish.txt", "left behind\n")
            if len(seen) == 1:
                raise RuntimeError("no luck")
        turn.write(f"{turn.phase_key}.txt", "done\n")
        turn.hand_in()

    failed = await world.run(script, "spec", "plan")
    result = await world.engine(script).retry(failed.run_id)

    assert failed.state is RunStatus.FAILED
    assert result.state is RunStatus.COMPLETED
    assert result.error is None
    assert [item.attempts for item in result.phases] == [1, 2]
    assert world.phases_done() == ["spec", "plan", "plan"]
    assert seen == [False, False]
    rescued = world.git("for-each-ref", "--format=%(refname)", f"refs/holdfast/{failed.run_id}/@rescue")
    assert "left behind" in world.git("show", f"{rescued}:rubbish.txt")
    kinds = await world.kinds(failed.run_id)
    assert kinds.count("run.failed") == 1
    assert kinds[-1] == "run.completed"


async def test_only_a_failed_run_is_retried(world: World) -> None:
    completed = await world.run()
    waiting = await world.run(hand_in, phase("spec", risk="high"))

    assert await code_of(world.engine().retry(completed.run_id)) == "run_not_in_state"
    assert await code_of(world.engine().retry(waiting.run_id)) == "run_not_in_state"
    assert await code_of(world.engine().retry(uuid.uuid4())) == "run_not_found"


async def test_a_failed_run_is_not_resumed_and_of_two_retries_one_works(world: World) -> None:
    failed = await world.run(lambda _turn: None)
    assert await code_of(world.engine().resume(failed.run_id)) == "run_already_terminal"

    engine = world.engine()
    results = await asyncio.gather(*(engine.retry(failed.run_id) for _ in range(2)), return_exceptions=True)

    outcomes = sorted(item.code if isinstance(item, HoldfastError) else item.state.value for item in results)  # type: ignore[union-attr]
    assert outcomes[0] == "completed"
    assert outcomes[1] in ("run_busy", "run_not_in_state")


async def test_a_set_up_that_failed_is_done_again_after_a_retry(world: World) -> None:
    made = template("spec", setup=[["test", "-e", str(world.folder / "mended")]], sandbox=False)

    failed = await world.run(template=made)
    again = await world.engine().retry(failed.run_id)
    (world.folder / "mended").touch()
    result = await world.engine().retry(failed.run_id)

    assert failed.error is not None
    assert failed.error.code == "checks_failed"
    assert (failed.state, again.state, result.state) == (RunStatus.FAILED, RunStatus.FAILED, RunStatus.COMPLETED)


# -- abort ------------------------------------------------------------------------------------------------------------


async def test_a_live_owner_acts_on_an_abort_in_the_middle_of_a_turn(world: World) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def script(_turn: Turn) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    task = asyncio.create_task(world.run(script, "spec", "plan"))
    await started.wait()
    [run_id] = world.db.store.list_runs()
    result = await world.engine(db=world.open_database()).abort(run_id, "enough", by="ann")
    driven = await task

    assert stopped.is_set()
    assert (result.state, driven.state) == (RunStatus.CANCELLED, RunStatus.CANCELLED)
    assert world.phases_done() == ["spec"]
    [event] = world.events(run_id, "run.cancelled")
    assert (event.payload["reason"], event.payload["by"]) == ("enough", "ann")
    assert (await world.kinds(run_id))[-1] == "run.cancelled"


async def test_an_abort_reaches_an_owner_in_another_process(world: World, zygote: Zygote) -> None:
    run_id = str(uuid.uuid4())
    owner = zygote.start(world, "run_and_hang", run_id, "nothing")
    owner.wait_for(world.folder / "is-hanging")

    result = await world.engine().abort(run_id, "from outside")

    assert result.state is RunStatus.CANCELLED
    assert owner.wait() == {"result": {"run_id": run_id, "state": "cancelled", "error": None}}


async def test_a_dead_owners_run_is_aborted_here(world: World, zygote: Zygote) -> None:
    run_id = str(uuid.uuid4())
    owner = zygote.start(world, "run_and_hang", run_id, "nothing")
    owner.wait_for(world.folder / "is-hanging")
    owner.kill()

    assert (await world.engine().abort(run_id)).state is RunStatus.CANCELLED


async def test_a_run_is_aborted_even_if_nothing_of_it_can_be_used_any_more(world: World) -> None:
    waiting = await world.run(hand_in, phase("spec", risk="high"))
    world.repo.rename(world.folder / "elsewhere")
    assert (await world.engine().abort(waiting.run_id)).state is RunStatus.CANCELLED

    (world.folder / "elsewhere").rename(world.repo)
    broken = await world.run(hand_in, phase("spec", risk="high"))
    await world.sql("UPDATE workflow_templates SET definition = 'no JSON'")
    world.is_damaged = True
    assert (await world.engine().abort(broken.run_id)).state is RunStatus.CANCELLED


async def test_what_is_over_is_not_aborted(world: World) -> None:
    completed = await world.run()

    assert await code_of(world.engine().abort(completed.run_id)) == "run_already_terminal"
    assert await code_of(world.engine().abort(uuid.uuid4())) == "run_not_found"
    assert (await world.kinds(completed.run_id))[-1] == "run.completed"


async def test_an_abort_after_a_retry_waits_for_the_new_end(world: World) -> None:
    started = asyncio.Event()

    async def script(_turn: Turn) -> None:
        if len(world.turns) == 1:
            raise RuntimeError("no luck")
        started.set()
        await asyncio.Event().wait()

    failed = await world.run(script)
    task = asyncio.create_task(world.engine(script).retry(failed.run_id))
    await started.wait()

    result = await world.engine(script, db=world.open_database()).abort(failed.run_id)

    assert result.state is RunStatus.CANCELLED
    assert (await task).state is RunStatus.CANCELLED


@pytest.mark.parametrize(
    ("kind", "state"),
    [("run.cancel.requested", RunStatus.CANCELLED), ("run.pause.requested", RunStatus.PAUSED)],
)
async def test_a_request_that_is_written_before_the_end_wins(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str, state: RunStatus
) -> None:
    """It comes at the last moment: the owner has read the journal, and writes that the run is complete."""
    from holdfast.runtime.events import create_event
    from holdfast.runtime.run_log import RunLog

    original, requested = RunLog.append, []

    async def append(log: RunLog, *events: Any, **options: Any) -> None:
        if not requested and any(getattr(event, "kind", "") == "run.completed" for event in events):
            requested.append(world.open_database().store.save_event(create_event(log.run_id, kind, by="ann")))
        await original(log, *events, **options)

    monkeypatch.setattr(RunLog, "append", append)

    result = await world.run()

    assert result.state is state
    kinds = await world.kinds(result.run_id)
    assert "run.completed" not in kinds
    if state is RunStatus.PAUSED:
        assert (await world.engine().resume(result.run_id)).state is RunStatus.COMPLETED


async def test_an_abort_wins_over_a_failure_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.engine.run import stop
    from holdfast.runtime.events import EventKind, create_event

    original = stop.write_report

    async def write_report(about: Any, *args: Any) -> Any:
        world.open_database().store.save_event(create_event(about.run_id, EventKind.RUN_CANCEL_REQUESTED))
        return await original(about, *args)

    monkeypatch.setattr(stop, "write_report", write_report)

    result = await world.run(lambda _turn: None)

    assert result.state is RunStatus.CANCELLED
    assert "run.failed" not in await world.kinds(result.run_id)


async def test_an_abort_ends_the_check_that_is_running(world: World) -> None:
    pid_file = world.folder / "pid"
    made = phase("spec", checks=[["sh", "-c", f"echo $$ > {pid_file}.part; mv {pid_file}.part {pid_file}; sleep 600"]])
    task = asyncio.create_task(world.run(template=template(made, sandbox=False)))
    while not pid_file.exists() and not task.done():
        await asyncio.sleep(0.01)
    [run_id] = world.db.store.list_runs()

    result = await world.engine(db=world.open_database()).abort(run_id)

    assert result.state is RunStatus.CANCELLED
    assert (await task).state is RunStatus.CANCELLED
    wait_until(lambda: not Path(f"/proc/{int(pid_file.read_text())}").exists(), "the check is gone")


# -- fork -------------------------------------------------------------------------------------------------------------


def writes_its_own_file(turn: Turn) -> None:
    turn.write(f"{turn.phase_key}.txt", f"{turn.run_id}\n")
    turn.hand_in()


@pytest.mark.parametrize("is_plain", [False, True], ids=["repository", "plain folder"])
async def test_a_fork_begins_with_state_and_files_of_the_moment_before_the_phase(world: World, is_plain: bool) -> None:
    folder = world.repo
    if is_plain:
        folder = world.folder / "plain"
        folder.mkdir()
        (folder / "app.py").write_text("print('plain')\n")
    original = await world.run(writes_its_own_file, "spec", "plan", "code", repo_path=folder)
    before = await world.kinds(original.run_id)
    seen: list[list[str]] = []

    def script(turn: Turn) -> None:
        seen.append(sorted(path.name for path in turn.root.glob("*.txt")))
        writes_its_own_file(turn)

    fork = await world.engine(script).fork(original.run_id, "plan")

    assert fork.state is RunStatus.COMPLETED
    assert fork.run_id != original.run_id
    assert seen == [["spec.txt"], ["plan.txt", "spec.txt"]]
    assert (world.worktree(fork.run_id) / "spec.txt").read_text() == f"{original.run_id}\n"
    assert (world.worktree(fork.run_id) / "plan.txt").read_text() == f"{fork.run_id}\n"
    assert (world.worktree(original.run_id) / "plan.txt").read_text() == f"{original.run_id}\n"
    assert await world.kinds(original.run_id) == before
    assert [row.phase_key for row in await world.artifacts(fork.run_id)] == ["spec", "plan", "code"]
    assert (await world.run_row(original.run_id)).state == "completed"


async def test_a_fork_can_be_forked_and_a_failed_run_too(world: World) -> None:
    async def script(turn: Turn) -> None:
        if turn.phase_key == "code":
            raise RuntimeError("no luck")
        writes_its_own_file(turn)

    failed = await world.run(script, "spec", "plan", "code")
    fork = await world.engine(writes_its_own_file).fork(failed.run_id, "code")
    again = await world.engine(writes_its_own_file).fork(fork.run_id, "code")

    assert (failed.state, fork.state, again.state) == (RunStatus.FAILED, RunStatus.COMPLETED, RunStatus.COMPLETED)
    assert (world.worktree(again.run_id) / "plan.txt").read_text() == f"{failed.run_id}\n"
    assert await code_of(world.engine().fork(fork.run_id, "plan")) == "run_not_in_state"


async def test_a_run_is_only_forked_where_it_has_been(world: World) -> None:
    waiting = await world.run(hand_in, phase("spec", risk="high"), "plan", "code")

    assert await code_of(world.engine().fork(waiting.run_id, "code")) == "run_not_in_state"
    assert await code_of(world.engine().fork(waiting.run_id, "nowhere")) == "config_invalid"
    assert await code_of(world.engine().fork(uuid.uuid4(), "spec")) == "run_not_found"
    with contextlib.suppress(HoldfastError):
        assert (await world.engine().fork(waiting.run_id, "spec")).state is RunStatus.PAUSED
