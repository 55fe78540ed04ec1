"""The middleware as an agent of someone else's drives it: directly, with requests that are little more than a call."""

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from tests.support.engine_world import Turn, Unserialisable, World, git, phase

from holdfast.agents.tools.shell import granted_shell
from holdfast.enums import RunStatus
from holdfast.runtime.step import step_key


async def test_every_middleware_is_langchains_and_wraps_tool_calls(world: World) -> None:
    from langchain.agents.middleware import AgentMiddleware

    await world.run()

    [turn] = world.turns
    assert turn.middleware
    for middleware in turn.middleware:
        assert isinstance(middleware, AgentMiddleware)
        assert type(middleware).awrap_tool_call is not AgentMiddleware.awrap_tool_call


@pytest.mark.parametrize("stand_in", [SimpleNamespace, MagicMock], ids=["plain", "mock"])
async def test_each_middleware_alone_makes_a_call_once_over_a_restart(world: World, stand_in: Any) -> None:
    made: list[str] = []
    answers: list[Any] = []

    async def script(turn: Turn) -> None:
        for number, middleware in enumerate(turn.middleware):
            request = stand_in(tool_call={"name": f"tool{number}", "args": {"x": object()}, "id": "call-1"})

            async def handler(_request: Any, number: int = number) -> Any:
                made.append(f"tool{number}")
                return Unserialisable("live")

            answers.append(await middleware.awrap_tool_call(request, handler))

    run_id = await world.run_and_stop(script)
    live = list(made)

    async def again(turn: Turn) -> None:
        await script(turn)
        turn.hand_in()

    result = await world.engine(again).resume(run_id)

    assert result.state is RunStatus.COMPLETED
    assert made == live
    assert answers[0].value == "live"
    assert "done, result not recorded" in str(answers[len(live)].content)


async def test_calls_side_by_side_and_the_same_call_twice_are_calls_of_their_own(world: World) -> None:
    made: list[str] = []

    async def script(turn: Turn) -> None:
        await asyncio.gather(*(turn.use_tool("fetch", lambda n=n: made.append(n), page=n) for n in ("a", "b")))
        for _ in range(2):
            await turn.use_tool("ping", lambda: made.append("ping"))

    run_id = await world.run_and_stop(script)

    async def again(turn: Turn) -> None:
        await script(turn)
        turn.hand_in()

    assert (await world.engine(again).resume(run_id)).state is RunStatus.COMPLETED
    assert sorted(made) == ["a", "b", "ping", "ping"]


async def test_a_tools_failure_is_the_agents_to_handle_and_is_replayed(world: World) -> None:
    made: list[str] = []

    def fail() -> None:
        made.append("tried")
        raise KeyError("no such page")

    async def script(turn: Turn) -> None:
        with pytest.raises(KeyError):
            await turn.use_tool("fetch", fail)

    run_id = await world.run_and_stop(script)

    async def again(turn: Turn) -> None:
        await script(turn)
        turn.hand_in()

    assert (await world.engine(again).resume(run_id)).state is RunStatus.COMPLETED
    assert made == ["tried"]


async def test_a_replay_that_asks_for_something_else_is_refused_and_the_run_stays_as_it_is(world: World) -> None:
    from holdfast.errors import HoldfastError

    async def one(turn: Turn) -> None:
        await turn.use_tool("fetch", lambda: "a", page=1)

    async def other(turn: Turn) -> None:
        await turn.use_tool("fetch", lambda: pytest.fail("called"), page=2)

    run_id = await world.run_and_stop(one)

    with pytest.raises(HoldfastError) as error:
        await world.engine(other).resume(run_id)

    assert error.value.code == "nondeterminism"
    assert (await world.run_row(run_id)).state == "running"

    async def as_before(turn: Turn) -> None:
        await one(turn)
        turn.hand_in()

    assert (await world.engine(as_before).resume(run_id)).state is RunStatus.COMPLETED


async def test_a_tool_that_changes_files_records_which_files_there_are_then(world: World) -> None:
    async def script(turn: Turn) -> None:
        await turn.use_tool("generate", lambda: turn.write("made.txt", "made\n"))
        turn.hand_in()

    result = await world.run(script)

    [done] = world.events(result.run_id, "tool.result")
    assert world.git("show", f"{done.payload['result']['tree']}:made.txt") == "made"


async def test_a_lost_worktree_gets_back_what_the_last_tool_left(world: World) -> None:
    import shutil

    async def script(turn: Turn) -> None:
        await turn.use_tool("generate", lambda: turn.write("made.txt", "made\n"))

    run_id = await world.run_and_stop(script, "spec")
    shutil.rmtree(world.worktree(run_id))

    async def again(turn: Turn) -> None:
        await script(turn)
        assert (turn.root / "made.txt").read_text() == "made\n"
        turn.hand_in()

    assert (await world.engine(again).resume(run_id)).state is RunStatus.COMPLETED


async def test_a_turn_that_hangs_in_a_tool_ends_soon_after_its_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.phase.middleware._DRAIN_S", 0.2)

    async def script(turn: Turn) -> None:
        await turn.use_tool("wait", asyncio.Event().wait)

    result = await world.run(script, phase("spec", timeout_seconds=0.2))

    assert result.error is not None
    assert result.error.code == "phase_timeout"


async def test_a_command_is_not_said_to_start_on_files_that_a_later_one_has_changed(world: World) -> None:
    """What is left of several commands at once is recorded by the last of them; until then no tree says how it is."""

    async def script(turn: Turn) -> None:
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def run_long() -> None:
            shell, key = granted_shell(), step_key()
            assert shell is not None
            shell.of_run.add(key)  # as of a command of the spool
            begun.set()
            await may_end.wait()
            shell.of_run.discard(key)

        await turn.use_tool("write_file", lambda: turn.write("first.txt", "one\n"))
        long = asyncio.create_task(turn.use_tool("execute", run_long, command="long"))
        await begun.wait()
        await turn.use_tool("execute", lambda: turn.write("second.txt", "two\n"), command="short")
        await turn.use_tool("execute", lambda: "nothing", command="beside")
        may_end.set()
        await long
        await turn.use_tool("execute", lambda: "nothing", command="after")
        turn.hand_in()

    result = await world.run(script)

    assert result.state is RunStatus.COMPLETED, result.error
    trees = [event.payload.get("tree_before") for event in world.events(result.run_id, "tool.started")]
    listed = [tree and git(world.worktree(result.run_id), "ls-tree", "--name-only", tree).split() for tree in trees]
    first = ["app.py", "first.txt"]
    assert listed == [first, first, None, [*first, "second.txt"]]
