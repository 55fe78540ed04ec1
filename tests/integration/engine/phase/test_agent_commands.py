"""Commands of agents under the engine: they end with their phase, are found again, and a person settles a doubt."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine_world import Turn, World, artifact, phase, template
from tests.support.progress_limit import until

import holdfast.engine
from holdfast.agents.build import build_agent
from holdfast.agents.tools.shell import granted_shell
from holdfast.enums import Backend, RunStatus
from holdfast.errors import ConfigInvalid
from holdfast.persona import AgentPersona
from holdfast.workspace import Tree, Workspace, write_tree

SLOW = "echo x >> log.txt; touch begun; exec sleep 432"


def running_a_command(line: str, timeout_s: float = 100) -> Any:
    async def run() -> str:
        shell = granted_shell()
        assert shell is not None
        return (await shell.run(line, timeout_s=timeout_s)).output

    async def script(turn: Turn) -> None:
        answer = await turn.use_tool("execute", run, command=line)
        turn.write("answer.txt", str(getattr(answer, "content", answer)))
        turn.hand_in()

    return script


def is_running(argument: str) -> bool:
    return any(_read(path).split(b"\0")[:2] == [b"sleep", argument.encode()] for path in Path("/proc").glob("[0-9]*"))


def _read(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""  # it has ended since it was listed


def find(world: World, name: str) -> list[Path]:
    return [path for path in (world.data_dir / "worktrees").rglob(name) if path.is_file()]


async def test_the_command_of_a_phase_that_takes_too_long_is_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.phase.middleware._DRAIN_S", 0.2)

    result = await world.run(running_a_command(SLOW), phase("spec", timeout_seconds=2))

    assert result.state is RunStatus.FAILED
    assert result.error is not None
    assert result.error.code == "phase_timeout"
    assert not is_running("432")


async def test_no_tree_is_read_while_a_command_could_swap_a_folder_for_a_link(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_beside: list[bool] = []

    def look(workspace: Workspace) -> Tree:
        read_beside.append(bool(find(world, "working")))
        return write_tree(workspace)

    monkeypatch.setattr("holdfast.engine.scope.write_tree", look)

    async def execute(turn: Turn, line: str) -> None:
        async def run() -> str:
            shell = granted_shell()
            assert shell is not None
            return (await shell.run(line, timeout_s=100)).output

        await turn.use_tool("execute", run, command=line)

    async def script(turn: Turn) -> None:
        async def short() -> None:
            await until(lambda: find(world, "working"), "the long command")
            await execute(turn, "touch short")
            turn.write("go", "")

        long_line = "touch working; until [ -e go ]; do sleep 0.02; done; rm working"
        await asyncio.gather(execute(turn, long_line), short())
        await execute(turn, "touch last")
        turn.hand_in()

    result = await world.run(script)

    assert result.state is RunStatus.COMPLETED
    assert True not in read_beside
    results = [e.payload["result"] for e in world.events(result.run_id, "tool.result")]
    assert ["tree" in each for each in results if isinstance(each, dict)][:3] == [False, True, True]


async def test_the_command_of_an_aborted_run_is_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.engine.phase.middleware._DRAIN_S", 0.2)
    engine = world.engine(running_a_command(SLOW))
    made = world.know(template("spec"))
    run_id = await engine.create(made, repo_path=world.repo)
    task = asyncio.create_task(engine.resume(run_id))
    await until(lambda: find(world, "begun"))

    await engine.abort(run_id, "enough")

    assert (await task).state is RunStatus.CANCELLED
    assert not is_running("432")


@pytest.mark.parametrize("answer", ["result", "reject", "approve"])
async def test_a_person_settles_what_became_of_a_lost_command(
    world: World, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr("holdfast.engine.phase.middleware._DRAIN_S", 0.2)
    run_id = await lose_a_command(world)
    waiting = await world.engine(running_a_command(SLOW)).resume(run_id)
    [question] = await world.approvals(run_id)

    assert (waiting.state, waiting.waiting_for, question.about) == (RunStatus.PAUSED, "outcome", "outcome")
    assert question.shown["tool"] == "execute"
    assert question.shown["args"]["command"] == SLOW
    options: dict[str, Any] = {"result": "it had said hello"} if answer == "result" else {}
    action = "reject" if answer == "reject" else "approve"
    await world.engine().decide(run_id, question.id, action, **options)
    engine = world.engine(running_a_command(SLOW))

    if answer == "approve":
        task = asyncio.create_task(engine.resume(run_id))
        await until(lambda: find(world, "log.txt")[0].read_text() == "x\nx\n")
        await engine.abort(run_id)
        await task
        return
    result = await engine.resume(run_id)
    assert [path.read_text() for path in find(world, "log.txt")] == ["x\n"]
    if answer == "result":
        assert result.state is RunStatus.COMPLETED
        assert [path.read_text() for path in find(world, "answer.txt")] == ["it had said hello"]
    else:
        assert result.state is RunStatus.FAILED
        assert result.error is not None
        assert result.error.code == "tool_outcome_unknown"


async def lose_a_command(world: World) -> str:
    """Start a command, give the run up as a shutdown does, then end the command with its runner."""
    engine = world.engine(running_a_command(SLOW))
    made = world.know(template("spec"))
    run_id = await engine.create(made, repo_path=world.repo)
    task = asyncio.create_task(engine.resume(run_id))
    await until(lambda: find(world, "begun"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert is_running("432"), "a shutdown leaves it to whoever comes next"
    [started] = (world.data_dir / "spool").glob("*/pid.json")
    for who in ("runner", "leader"):
        os.kill(json.loads(started.read_text())[who][0], signal.SIGKILL)
    await until(lambda: not is_running("432"))
    return run_id


async def test_a_result_is_only_for_a_call_in_doubt(world: World) -> None:
    waiting = await world.run(running_a_command("git push"))
    [approval] = await world.approvals(waiting.run_id)

    with pytest.raises(ConfigInvalid):
        await world.engine().decide(waiting.run_id, approval.id, "approve", result="done")


async def test_a_command_line_agent_does_a_phase(world: World) -> None:
    content = json.dumps(artifact("00000000-0000-0000-0000-000000000000", "spec"))
    body = f"cat > task.md; mkdir -p out; echo '{content}' > out/spec.json; echo handed in"
    who = AgentPersona.model_validate(
        {"name": "tool", "version": 1, "backend": "command", "capabilities": ["spec_write"], "argv": ["sh", "-c", body]}
    )
    engine = world.engine(pool=(who,), backends=frozenset({Backend.COMMAND}))
    holdfast.engine.build_agent = build_agent

    result = await engine.run(template("spec"), repo_path=world.repo)

    assert result.state is RunStatus.COMPLETED
    assert "`spec`" in find(world, "task.md")[0].read_text()
    pieces = [event.payload["text"] for event in world.events(result.run_id, "text.delta")]
    assert "".join(pieces) == "handed in\n"
    [done] = [e for e in world.events(result.run_id, "tool.result") if "exit_code" in str(e.payload["result"])]
    assert done.payload["result"]["tree"]
