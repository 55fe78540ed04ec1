"""What engines do in processes of their own. A job gets the database's URL, the world's folder and its arguments."""

import asyncio
import functools
import inspect
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.support.engine_world import Turn, World, template

from holdfast.workflow import WorkflowTemplate

Job = Callable[..., Awaitable[Any]]


def find_job(name: str) -> Job:
    if name in _JOBS:
        return _JOBS[name]
    from tests.support.crash import cleanup_child as cleaner
    from tests.support.crash import conversation_child as talker
    from tests.support.crash import workflow_child as child

    job: Job = next(getattr(module, name) for module in (cleaner, child, talker) if hasattr(module, name))
    return job


def _in_world(job: Callable[..., Awaitable[Any]]) -> Job:
    @functools.wraps(job)
    async def run(url: str, folder: Path, *args: Any) -> Any:
        world = World(url, folder)
        try:
            return await job(world, *args)
        finally:
            await world.close()

    return run


def _to_dict(result: Any) -> dict[str, Any]:
    return {"run_id": str(result.run_id), "state": result.state.value, "error": result.error and result.error.code}


@_in_world
async def decide(world: World, run_id: str, approval_id: str, action: str) -> None:
    await world.engine().decide(run_id, approval_id, action)


@_in_world
async def decide_overdue_and_die(world: World, moment: str) -> None:
    """Answer what is overdue, and die right before or after the answer is written."""
    append = world.db.store.append

    def dying(*args: Any, **options: Any) -> Any:
        done = append(*args, **options) if moment == "after" else None
        os.kill(os.getpid(), signal.SIGKILL)
        return done

    world.db.store.append = dying  # type: ignore[method-assign]
    await world.engine().decide_overdue()


@_in_world
async def verb(world: World, name: str, definition: dict[str, Any], *args: Any) -> Any:
    """Call the engine's verb of that name; agents hand in what is asked for."""
    world.know(WorkflowTemplate.model_validate(definition))
    return _to_dict(await getattr(world.engine(), name)(*args))


@_in_world
async def run_and_hang(world: World, run_id: str, script: str) -> Any:
    """Start a run whose agent writes down how far it got, and then never ends."""

    async def follow(turn: Turn) -> None:
        done = globals()[f"_{script}"](world, turn)
        if inspect.isawaitable(done):
            await done
        (world.folder / "is-hanging").touch()
        await asyncio.Event().wait()

    made = world.know(template("spec"))
    return _to_dict(await world.engine(follow).run(made, repo_path=world.repo, pre_allocated_run_id=run_id))


@_in_world
async def init_schema(world: World) -> None:
    await world.db.init_schema()


@_in_world
async def init_schema_and_die(world: World, statement: int) -> None:
    """Make the tables, and die at a statement of the migration."""
    from sqlalchemy import Engine, event

    seen = [0]

    @event.listens_for(Engine, "before_cursor_execute")
    def count(*_args: Any) -> None:
        seen[0] += 1
        if seen[0] == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    await world.db.init_schema()


def _nothing(_world: World, _turn: Turn) -> None:
    pass


def note(world: World, word: str) -> str:
    """A side effect that can be counted."""
    with (world.folder / "effects").open("a") as file:
        file.write(f"{word}\n")
    return word


async def _two_tools(world: World, turn: Turn) -> None:
    await turn.use_tool("deploy", lambda: note(world, "deploy"))
    turn.write("half.txt", "half done\n")
    await turn.use_tool("write_file", lambda: note(world, "write"), file_path="/half.txt", content="half done\n")


async def _tool_in_flight(world: World, turn: Turn) -> None:
    async def never_ends() -> None:
        note(world, "charge")
        (world.folder / "is-hanging").touch()
        await asyncio.Event().wait()

    await turn.use_tool("charge", never_ends)


async def _model_in_flight(world: World, turn: Turn) -> None:
    await turn.use_model("first")

    class Hangs:
        model, max_tokens, _llm_type = "rehearsal-1", 1000, "fake"

    from langchain.agents.middleware import ModelRequest
    from langchain_core.messages import HumanMessage

    async def never_answers(_request: Any) -> None:
        (world.folder / "is-hanging").touch()
        await asyncio.Event().wait()

    request = ModelRequest(model=Hangs(), messages=[HumanMessage("second")], tools=[], model_settings={})
    await turn.middleware[0].awrap_model_call(request, never_answers)


_JOBS: dict[str, Job] = {
    name: globals()[name]
    for name in ("decide", "decide_overdue_and_die", "verb", "run_and_hang", "init_schema", "init_schema_and_die")
}
