"""Every way to interrupt a run, in the middle of everything it can be in: it takes effect, and no answer is waited for.

What is interrupted would go on for an hour or for ever, so a test that ends has interrupted it. How long that takes is
measured by the bench (`benchmarks/interrupts.py`), not by a clock here.
"""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.support.engine_world import World, artifact, phase
from tests.support.model_server import Drips, Hangs, ModelServer, Reply, Says, asks
from tests.support.progress_limit import until
from tests.support.served_engine import RUN_ID, ServedEngine
from tests.support.slow_git import SlowGit

from holdfast.engine.results import RunResult
from holdfast.enums import RunStatus

SPEC = json.dumps(artifact(RUN_ID, "spec"))
STUBBORN = "trap '' TERM; : > {}; while :; do sleep 0.05; done"


@dataclass
class Scene:
    """A run in the middle of something: `is_reached` says when it is there."""

    engine: ServedEngine
    is_reached: Callable[[], bool]
    phase: dict[str, Any] = field(default_factory=lambda: phase("spec", timeout_seconds=3600))
    options: dict[str, Any] = field(default_factory=dict)
    """Of the template."""
    clean_up: Callable[[], None] = lambda: None


class Stage:
    """Sets up the scenes."""

    def __init__(self, world: World, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        self._world = world
        self._stack = stack
        self._monkeypatch = monkeypatch

    def set_up(self, activity: str) -> Scene:
        scene: Scene = getattr(self, f"_{activity}")()
        self._stack.callback(scene.clean_up)
        return scene

    def _serve(self, *replies: Reply, **more: list[Reply]) -> ModelServer:
        return self._stack.enter_context(ModelServer({"": list(replies), **more}))

    def _model(self, reply: Reply) -> Scene:
        server = self._serve(reply)
        return Scene(ServedEngine(self._world, server), server.has_request.is_set)

    def _fast_stream(self) -> Scene:
        server = self._serve(Drips(pause_s=0.001))
        return Scene(ServedEngine(self._world, server), self._has_event("text.delta"))

    def _slow_stream(self) -> Scene:
        return self._model(Drips(pause_s=0.2))

    def _silent_model(self) -> Scene:
        return self._model(Hangs(has_head=True))

    def _slow_head(self) -> Scene:
        return self._model(Hangs())

    def _commenting_model(self) -> Scene:
        return self._model(Hangs(has_comments=True))

    def _tool(self) -> Scene:
        """A tool that waits in a thread, for a file system that does not answer."""
        from holdfast.agents.tools.files import WholeFileBackend

        is_reached, may_end = threading.Event(), threading.Event()

        def wait(*_args: Any, **_options: Any) -> Any:
            is_reached.set()
            may_end.wait()

        self._monkeypatch.setattr(WholeFileBackend, "ls", wait)
        server = self._serve(asks(("ls", {"path": "/"})), Hangs())
        return Scene(ServedEngine(self._world, server), is_reached.is_set, clean_up=may_end.set)

    def _command(self) -> Scene:
        """A command of the agent's that does not want to end."""
        server = self._serve(asks(("execute", {"command": STUBBORN.format("reached"), "timeout": 3000})), Hangs())
        return Scene(ServedEngine(self._world, server), self._has_file("reached"), options={"approves": True})

    def _check(self) -> Scene:
        """The same of the template's."""
        server = self._serve(Hangs())
        setup = [["sh", "-c", STUBBORN.format("reached")]]
        return Scene(ServedEngine(self._world, server), self._has_file("reached"), options={"setup": setup})

    def _subagent(self) -> Scene:
        task = {"description": "Sub work", "subagent_type": "general-purpose"}
        server = self._serve(asks(("task", task)), Hangs(), **{"Sub work": [Drips(pause_s=0.01)]})
        return Scene(ServedEngine(self._world, server), lambda: ("Sub work", 0) in server.places)

    def _git(self) -> Scene:
        """Git stands still in the middle of its work on the run's files."""
        slow = self._stack.enter_context(SlowGit(self._world.folder / "slow", "ls-files", self._monkeypatch))
        server = self._serve(Hangs())
        return Scene(ServedEngine(self._world, server), slow.is_reached)

    def _stubborn_git(self) -> Scene:
        slow = self._stack.enter_context(
            SlowGit(self._world.folder / "slow", "ls-files", self._monkeypatch, ignores="TERM")
        )
        server = self._serve(Hangs())
        return Scene(ServedEngine(self._world, server), slow.is_reached)

    def _approval(self) -> Scene:
        """Someone asks the person in this process, who says nothing."""
        has_question = asyncio.Event()

        async def ask(_request: Any) -> Any:
            has_question.set()
            await asyncio.Event().wait()

        server = self._serve(asks(("write_file", {"file_path": "/out/spec.json", "content": SPEC})), Says("Done."))
        return Scene(
            ServedEngine(self._world, server, ask),
            has_question.is_set,
            phase("spec", risk="high", timeout_seconds=3600),
        )

    def _has_event(self, kind: str) -> Callable[[], bool]:
        store = self._world.db.store
        return lambda: any(event.kind == kind for event in store.list_events(RUN_ID))

    def _has_file(self, name: str) -> Callable[[], bool]:
        return (self._world.worktree(RUN_ID) / name).exists


ACTIVITIES = (
    *("fast_stream", "slow_stream", "silent_model", "slow_head", "commenting_model"),
    *("tool", "subagent", "command", "check", "git", "stubborn_git", "approval"),
)
TIMED = ACTIVITIES[:8]
"""What an agent does, for which its phase has a limit; what else a run waits for has limits of its own."""
Interrupt = Callable[[Scene, "asyncio.Task[RunResult]"], Awaitable[RunStatus]]


async def abort(scene: Scene, task: "asyncio.Task[RunResult]") -> RunStatus:
    result = await scene.engine.open().abort(RUN_ID, "enough", by="ann")
    assert (await task).state is result.state
    return result.state


async def pause(scene: Scene, task: "asyncio.Task[RunResult]") -> RunStatus:
    result = await scene.engine.open().pause(RUN_ID, by="ann")
    assert (await task).state is result.state
    assert result.waiting_for == "person"
    return result.state


async def shut_down(scene: Scene, task: "asyncio.Task[RunResult]") -> RunStatus:
    """What a server does with its runs at SIGTERM."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return (await scene.engine.open().result(RUN_ID)).state


INTERRUPTS: dict[str, tuple[Interrupt, RunStatus]] = {
    "abort": (abort, RunStatus.CANCELLED),
    "pause": (pause, RunStatus.PAUSED),
    "shutdown": (shut_down, RunStatus.RUNNING),
}


@pytest.fixture
async def stage(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        yield Stage(world, stack, monkeypatch)


async def interrupt_run(stage: Stage, activity: str, interrupt: str) -> None:
    scene = stage.set_up(activity)
    task = scene.engine.start(scene.phase, **scene.options)
    await until(lambda: scene.is_reached() or task.done(), f"the run is at its {activity}")
    assert not task.done(), await task
    act, state = INTERRUPTS[interrupt]

    assert await act(scene, task) is state

    if state is not RunStatus.CANCELLED:  # whoever is next can have it at once, and ends what it left at work
        assert (await scene.engine.open().abort(RUN_ID)).state is RunStatus.CANCELLED


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("interrupt", INTERRUPTS)
@pytest.mark.parametrize("activity", ACTIVITIES)
async def test_it_takes_effect_whatever_the_run_does(stage: Stage, activity: str, interrupt: str) -> None:
    await interrupt_run(stage, activity, interrupt)


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
@pytest.mark.parametrize(
    ("activity", "interrupt"),
    [("fast_stream", "abort"), ("slow_head", "pause"), ("subagent", "pause"), ("git", "shutdown")],
)
async def test_on_postgres_too(stage: Stage, activity: str, interrupt: str) -> None:
    await interrupt_run(stage, activity, interrupt)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("activity", TIMED)
async def test_a_phase_that_takes_too_long_fails(stage: Stage, activity: str) -> None:
    scene = stage.set_up(activity)
    limited = phase("spec", timeout_seconds=2)

    task = scene.engine.start(limited, **scene.options)
    await until(lambda: scene.is_reached() or task.done(), f"the run is at its {activity}")
    result = await task

    assert result.state is RunStatus.FAILED
    assert result.error is not None
    assert result.error.code == "phase_timeout"
