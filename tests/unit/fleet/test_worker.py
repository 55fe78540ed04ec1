"""What a worker does with runs that it cannot drive, and how long one that is stopped waits."""

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.engine.run import foreign_commands
from holdfast.engine.run.foreign_commands import CommandLook, end_foreign_commands
from holdfast.errors import StoreUnavailable
from holdfast.fleet import worker as worker_module
from holdfast.fleet.run_drive import NoDrive, WorkflowDrive
from holdfast.fleet.worker import Worker, WorkerOptions


class QuietQueue:
    """A queue of this process in which nothing is due."""

    def describe(self) -> Any:
        return SimpleNamespace(is_shared=False)

    async def stop(self) -> None: ...

    async def put_back(self, run_ids: list[str]) -> None: ...


class DrivesWithoutDatabase:
    """Runs whose database is away."""

    async def find_flow(self, run_id: str) -> None:
        raise StoreUnavailable("The database cannot be reached.")

    def end(self, run_id: str) -> None: ...


class SilentModel(WorkflowDrive):
    """A run whose model never answers."""

    def __init__(self) -> None: ...

    def drain(self) -> bool:
        return True


class LongStep(NoDrive):
    """A flow in the middle of a step."""

    def drain(self) -> bool:
        return True


async def test_a_run_of_a_workflow_is_given_up_before_a_flow_is() -> None:
    options = WorkerOptions(grace_s=3600.0, workflow_grace_s=0.0)
    nothing = cast(Any, None)
    worker = Worker(nothing, nothing, cast(Any, QuietQueue()), nothing, nothing, options)
    call = asyncio.create_task(asyncio.Event().wait())
    step = asyncio.create_task(asyncio.wait([call]))  # ends by itself, once the other has been given up
    idle: Any = asyncio.create_task(asyncio.Event().wait())
    worker._sweep = cast(Any, SimpleNamespace(wake=lambda: None))
    worker._background = [idle]
    worker._tasks.update({"run": cast(Any, call), "flow": cast(Any, step)})
    worker._open.update({"run": SilentModel(), "flow": LongStep()})

    await worker.stop()

    assert call.cancelled()
    assert step.done()
    assert not step.cancelled()


async def test_a_run_waits_no_longer_because_the_database_was_away_before(monkeypatch: pytest.MonkeyPatch) -> None:
    now, poll_s = 0.0, 2.0
    clock = SimpleNamespace(monotonic=lambda: now, time=time.time)
    monkeypatch.setattr(worker_module, "time", clock)
    nothing, drives, sweep = cast(Any, None), cast(Any, DrivesWithoutDatabase()), SimpleNamespace(wake=lambda: None)
    worker = Worker(nothing, nothing, cast(Any, QuietQueue()), drives, nothing, WorkerOptions(poll_s=poll_s))
    worker._sweep = cast(Any, sweep)
    for _outage in range(6):
        task = worker.take("run")
        assert task is not None
        await task
        assert worker.find_reason("run") == "The database cannot be reached."
        now += poll_s


async def test_f1_commands_left_here_are_looked_at_until_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_commands, "_LOOK_S", 0.0)
    nothing, driven = cast(Any, None), []
    answers: list[Any] = [
        CommandLook([], is_over=False),  # the process that was killed still has the run, as its lease says
        StoreUnavailable("The database cannot be reached."),
        CommandLook(["run:step"], is_over=False),
        CommandLook([], is_over=True),
    ]

    async def look(_db: Any, spool_dir: Path, **options: Any) -> CommandLook:
        assert spool_dir == Path("spool")
        driven.append(options["driven"])
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return cast(CommandLook, answer)

    monkeypatch.setattr(foreign_commands, "stop_foreign_commands", look)

    await end_foreign_commands(nothing, Path("spool"), {"mine": nothing})

    assert (answers, driven) == ([], [{"mine"}] * 4)


@pytest.mark.parametrize("was_there", [True, False])
async def test_a_worker_that_starts_waits_for_living_owners_unless_the_database_was_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, was_there: bool
) -> None:
    noted: list[str] = []

    async def say(*_args: Any) -> bool:
        return True

    async def say_reachable(*_args: Any) -> bool:
        return was_there

    async def rest(*_args: Any, **_options: Any) -> None:
        noted.append("looks")

    async def find_none(*_args: Any, **_options: Any) -> tuple[list[str], list[str]]:
        return [], []

    class SharedQueue(QuietQueue):
        def describe(self) -> Any:
            return SimpleNamespace(is_shared=True)

        serve = rest

    monkeypatch.setattr(worker_module, "register", say)
    monkeypatch.setattr(worker_module, "was_reachable", say_reachable)
    monkeypatch.setattr(worker_module, "keep_left", find_none)
    monkeypatch.setattr(worker_module, "Sweep", lambda *_args, **_options: SimpleNamespace(run=rest))
    monkeypatch.setattr(worker_module, "end_foreign_commands", rest)
    journal = cast(Any, SimpleNamespace(store=None, note_outage=lambda: noted.append("patient")))
    nothing, drives = cast(Any, None), cast(Any, SimpleNamespace(spool_dir=tmp_path / "spool"))
    worker = Worker(nothing, journal, cast(Any, SharedQueue()), drives, nothing, WorkerOptions())

    await worker.start()
    await asyncio.wait(worker._background)

    assert noted == ([] if was_there else ["patient"]) + ["looks"] * 3
